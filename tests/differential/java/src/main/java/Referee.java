import com.google.appengine.tools.development.testing.LocalDatastoreServiceTestConfig;
import com.google.appengine.tools.development.testing.LocalServiceTestHelper;
import com.google.appengine.repackaged.com.google.protobuf.ByteString;
import com.google.apphosting.api.ApiProxy;
import com.google.apphosting.base.protos.api.RemoteApiPb;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/**
 * Google's in-memory Datastore for tests, on a loopback port that speaks remote_api: POST /rpc_http, POST /reset.
 *
 * <p>The helper's environment belongs to a thread, so that one thread answers everything. The only argument is the
 * application's id; the port is printed when the server is ready. It ends when its standard input does.
 */
public final class Referee {
  private static final int INTERNAL_ERROR = 3;

  private final String app;
  private LocalServiceTestHelper helper;

  private Referee(String app) {
    this.app = app;
  }

  public static void main(String[] arguments) throws IOException {
    Referee referee = new Referee(arguments[0]);
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/rpc_http", exchange -> referee.reply(exchange, false));
    server.createContext("/reset", exchange -> referee.reply(exchange, true));
    server.setExecutor(Executors.newSingleThreadExecutor());
    server.start();
    System.out.println("port " + server.getAddress().getPort());
    System.out.flush();
    while (System.in.read() >= 0) {
      // nothing is ever sent; the end of the input is the end of the one who started this
    }
    System.exit(0);
  }

  private void reply(HttpExchange exchange, boolean reset) throws IOException {
    byte[] request = exchange.getRequestBody().readAllBytes();
    byte[] answer = new byte[0];
    if (reset) {
      reset();
    } else {
      answer = call(RemoteApiPb.Request.parseFrom(request)).toByteArray();
    }
    exchange.sendResponseHeaders(200, answer.length == 0 ? -1 : answer.length);
    try (OutputStream body = exchange.getResponseBody()) { // closed alone, so that the connection is kept alive
      if (answer.length > 0) {
        body.write(answer);
      }
    }
  }

  private void reset() {
    if (helper != null) {
      helper.tearDown();
    }
    LocalDatastoreServiceTestConfig config = new LocalDatastoreServiceTestConfig();
    config.setApplyAllHighRepJobPolicy().setNoStorage(true);
    helper = new LocalServiceTestHelper(config);
    helper.setEnvAppId(app).setEnforceApiDeadlines(false).setUp();
  }

  private static RemoteApiPb.Response call(RemoteApiPb.Request request) {
    RemoteApiPb.Response.Builder response = RemoteApiPb.Response.newBuilder();
    try {
      byte[] message = request.getRequest().toByteArray();
      byte[] answer = ApiProxy.makeSyncCall(request.getServiceName(), request.getMethod(), message);
      response.setResponse(ByteString.copyFrom(answer));
    } catch (ApiProxy.ApplicationException error) {
      fail(response, error.getApplicationError(), error.getErrorDetail());
    } catch (RuntimeException error) {
      fail(response, INTERNAL_ERROR, error.toString());
    }
    return response.build();
  }

  private static void fail(RemoteApiPb.Response.Builder response, int code, String detail) {
    response.getApplicationErrorBuilder().setCode(code).setDetail(detail == null ? "" : detail);
  }
}
