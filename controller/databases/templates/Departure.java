import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.log4j.Level;
import org.apache.log4j.LogManager;

/**
 * Has the region servers and then the DataNodes of a cluster take over what one node has; ends when they have.
 *
 * <p>Run as `java Departure.java HOST`, with the node's configuration and HBase's jars as class path. The file of
 * excluded nodes, which the NameNode reads, names the host by then. May be run again after it was broken off.
 */
public class Departure {
    private static final long POLL_MILLISECONDS = 1000;
    /** HMaster answers a move when the region is open elsewhere. Asked twice, it would move it twice. */
    private static final int MOVE_MILLISECONDS = 60_000;
    private static final int MOST_FAILURES = 60;

    private final String host;
    private final Admin admin;
    private final DistributedFileSystem files;
    private final Set<ServerName> marked = new HashSet<>();
    private String told = "";
    private int failures; // one after the other

    private Departure(String host, Admin admin, DistributedFileSystem files) {
        this.host = host;
        this.admin = admin;
        this.files = files;
    }

    public static void main(String[] arguments) throws Exception {
        LogManager.getRootLogger().setLevel(Level.OFF); // each line is one that the operator is told
        Configuration configuration = HBaseConfiguration.create();
        configuration.setInt(HConstants.HBASE_RPC_TIMEOUT_KEY, MOVE_MILLISECONDS);
        try (FileSystem files = FileSystem.get(configuration);
                Connection connection = ConnectionFactory.createConnection(configuration);
                Admin admin = connection.getAdmin()) {
            new Departure(arguments[0], admin, (DistributedFileSystem) files).run();
        } catch (IOException error) {
            System.err.println(inOneLine(error)); // whoever runs this keeps few of the last ones
            System.exit(1);
        }
    }

    private void run() throws Exception {
        checkRoom();
        while (hasRegions()) {
            Thread.sleep(POLL_MILLISECONDS);
        }
        files.refreshNodes();
        endLogs();
        while (!isDecommissioned() || hasRegions()) {
            tell("blocks to be copied: " + files.getLowRedundancyBlocksCount());
            Thread.sleep(POLL_MILLISECONDS);
        }
    }

    /** HDFS would look for other places for ever. It counts with the copies that the NameNode was started with. */
    private void checkRoom() throws IOException {
        long others = live().stream().filter(each -> !isOurs(each) && each.isInService()).count();
        int copies = files.getServerDefaults().getReplication();
        if (others < copies) {
            throw new IOException(
                    others + " DataNodes would be left, and HDFS keeps " + copies + " copies: add a node first");
        }
    }

    /** Moves them, if so. What cannot be moved now, because it is divided or its server starts, may be in a while. */
    private boolean hasRegions() throws IOException {
        try {
            int found = moveRegions();
            failures = 0;
            return found > 0;
        } catch (IOException error) {
            failures++;
            if (failures > MOST_FAILURES) {
                throw error;
            }
            tell(inOneLine(error));
            return true;
        }
    }

    /**
     * How many regions were there still. A region server that is marked gets no others, but one that has ended and was
     * started again is not marked any more.
     */
    private int moveRegions() throws IOException {
        int found = 0;
        for (ServerName server : admin.getRegionServers()) {
            if (!server.getHostname().equalsIgnoreCase(host)) {
                continue;
            }
            if (!marked.contains(server)) { // HMaster would move regions only off one that is not marked yet
                admin.decommissionRegionServers(List.of(server), false);
                marked.add(server);
            }
            List<RegionInfo> regions = admin.getRegions(server);
            for (RegionInfo region : regions) {
                tell("regions to be moved: " + (regions.size() - found));
                admin.move(region.getEncodedNameAsBytes());
                found++;
            }
        }
        return found;
    }

    /** Blocks that are being written stay where they are; new ones go elsewhere. */
    private void endLogs() throws IOException {
        for (ServerName server : admin.getRegionServers()) {
            admin.rollWALWriter(server);
        }
        admin.flushMasterStore();
    }

    private boolean isDecommissioned() throws IOException {
        List<DatanodeInfo> ours = live().stream().filter(this::isOurs).toList();
        if (ours.isEmpty()) {
            throw new IOException("HDFS knows no live DataNode " + host);
        }
        if (ours.stream().anyMatch(DatanodeInfo::isInService)) {
            throw new IOException("the NameNode does not exclude " + host + " although its list names it");
        }
        return ours.stream().allMatch(DatanodeInfo::isDecommissioned);
    }

    private List<DatanodeInfo> live() throws IOException {
        return Arrays.asList(files.getDataNodeStats(DatanodeReportType.LIVE));
    }

    private boolean isOurs(DatanodeInfo node) {
        return node.getHostName().equalsIgnoreCase(host);
    }

    private static String inOneLine(IOException error) {
        return Objects.toString(error.getMessage(), error.toString()).lines().findFirst().orElse("");
    }

    /** A line each time that there is something new. */
    private void tell(String text) {
        if (!text.equals(told)) {
            System.out.println(text);
        }
        told = text;
    }
}
