package pessoa;

import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.utils.Utils;

/** Places a key that ends with the 8 bytes of its window where its inner key lies, as Kafka Streams does. */
public final class WindowedKeyPartitioner implements Partitioner {
    private static final int WINDOW_BYTES = 8;

    @Override
    public int partition(
            String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
        byte[] inner = Arrays.copyOf(keyBytes, keyBytes.length - WINDOW_BYTES);
        return Utils.toPositive(Utils.murmur2(inner)) % cluster.partitionsForTopic(topic).size();
    }

    @Override
    public void close() {}

    @Override
    public void configure(Map<String, ?> configs) {}
}
