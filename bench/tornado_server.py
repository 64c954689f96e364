"""The yardstick of the no-op: a plain tornado RequestHandler that decodes the envelope and gives a small answer."""

import asyncio

import tornado.netutil
import tornado.web
from tornado.httpserver import HTTPServer

from protos import remote_api_pb2 as remote_api


class Handler(tornado.web.RequestHandler):
    def post(self) -> None:
        remote_api.Request.FromString(self.request.body)
        self.set_header("Content-Type", "application/octet-stream")
        self.finish(remote_api.Response(response=b"").SerializeToString())


async def main() -> None:
    server = HTTPServer(tornado.web.Application([("/rpc_http", Handler)]))
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1", backlog=2048)
    server.add_sockets(sockets)
    print(f"tornado serves http://127.0.0.1:{sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
