import com.sun.tools.attach.VirtualMachine;
import com.sun.tools.attach.VirtualMachineDescriptor;
import java.io.IOException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Has the Cassandra of one data directory move its data to the other nodes and leave the ring; ends when it has.
 *
 * <p>Run as `java Decommission.java DIRECTORY`, by the user whose process that is: nodetool would need a port for JMX,
 * open to everybody on the machine as long as Cassandra runs. Here the virtual machine is attached to.
 */
public class Decommission {
    private static final String DAEMON = "org.apache.cassandra.service.CassandraDaemon";
    private static final long MIB = 1 << 20;
    private static final long POLL_MILLISECONDS = 2000;

    private final MBeanServerConnection beans;
    private final ObjectName service = new ObjectName("org.apache.cassandra.db:type=StorageService");
    private final ObjectName sent = new ObjectName("org.apache.cassandra.metrics:type=Streaming,name=TotalOutgoingBytes");

    private Decommission(MBeanServerConnection beans) throws Exception {
        this.beans = beans;
    }

    public static void main(String[] arguments) throws Exception {
        String address = addressOf(arguments[0]);
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            new Decommission(connector.getMBeanServerConnection()).run();
        }
    }

    private static String addressOf(String directory) throws Exception {
        for (VirtualMachineDescriptor each : VirtualMachine.list()) {
            if (!each.displayName().startsWith(DAEMON)) {
                continue;
            }
            VirtualMachine machine = VirtualMachine.attach(each);
            try {
                if (directory.equals(machine.getSystemProperties().getProperty("cassandra.storagedir"))) {
                    return machine.startLocalManagementAgent();
                }
            } finally {
                machine.detach();
            }
        }
        throw new IOException("no Cassandra runs on " + directory);
    }

    /** One that was asked before goes on, whoever asked; one that has failed may be asked again. */
    private void run() throws Exception {
        Thread teller = new Thread(this::tell);
        teller.setDaemon(true);
        teller.start();
        String mode = mode();
        while (!mode.equals("DECOMMISSIONED")) {
            if (mode.equals("LEAVING")) {
                Thread.sleep(POLL_MILLISECONDS);
            } else {
                beans.invoke(service, "decommission", new Object[] {false}, new String[] {"boolean"});
            }
            mode = mode();
        }
    }

    private String mode() throws Exception {
        return (String) beans.getAttribute(service, "OperationMode");
    }

    /** A line each time that more has been sent. */
    private void tell() {
        try {
            String load = (String) beans.getAttribute(service, "LoadString");
            long before = ((Number) beans.getAttribute(sent, "Count")).longValue();
            long told = -1;
            while (true) {
                long now = (((Number) beans.getAttribute(sent, "Count")).longValue() - before) / MIB;
                if (now != told) {
                    System.out.println(now + " MiB sent, it has " + load);
                }
                told = now;
                Thread.sleep(POLL_MILLISECONDS);
            }
        } catch (Exception ended) {
            return; // with the program, or with what it watches
        }
    }
}
