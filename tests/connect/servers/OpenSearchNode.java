import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** Runs an OpenSearch node from the jars of its distribution; arguments are its folder and its two ports. */
public final class OpenSearchNode extends Node {
    private OpenSearchNode(Settings settings) {
        super(
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "pessoa"),
            List.of(Netty4Plugin.class),
            false
        );
    }

    public static void main(String[] words) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", words[0])
            .put("http.port", words[1])
            .put("transport.port", words[2])
            .put("http.host", "127.0.0.1")
            .put("transport.host", "127.0.0.1")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("discovery.type", "single-node")
            .put("cluster.name", "pessoa")
            .put("node.name", "pessoa")
            .put("cluster.routing.allocation.disk.threshold_enabled", "false")
            .build();
        new OpenSearchNode(settings).start();
        System.out.println("OpenSearch is listening");
        Thread.currentThread().join();
    }
}
