package pessoa;

import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;

/**
 * Gives a record the time that stands in its header `pessoa.time` (8 bytes, milliseconds), and takes the header away.
 * Spark's Kafka sink writes key, value, headers and partition, and has no column for a time.
 */
public final class RecordTime implements ProducerInterceptor<byte[], byte[]> {
    private static final String HEADER = "pessoa.time";

    @Override
    public ProducerRecord<byte[], byte[]> onSend(ProducerRecord<byte[], byte[]> record) {
        Header header = record.headers().lastHeader(HEADER);
        if (header == null) {
            return record;
        }
        long time = ByteBuffer.wrap(header.value()).getLong();
        record.headers().remove(HEADER);
        return new ProducerRecord<>(
                record.topic(), record.partition(), Math.max(0, time), record.key(), record.value(), record.headers());
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception exception) {}

    @Override
    public void close() {}

    @Override
    public void configure(Map<String, ?> configs) {}
}
