// The Kafka Streams program of the measurements of pipelines: a copy, a count by key ("total"), or a count by key in
// windows of a minute ("count"). Run by `bench/kafka_streams.py`: servers, kind, input topic, output topic, folder for
// state, linger.ms, application id.

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

public class KafkaStreamsApp {
    public static void main(String[] arguments) throws Exception {
        String kind = arguments[1], input = arguments[2], output = arguments[3];
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[6]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        // Every update is written, as in Spark's real-time mode.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.producerPrefix("linger.ms"), arguments[5]);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        if (kind.equals("copy")) {
            builder.stream(input, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .to(output, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
        } else if (kind.equals("total")) {
            builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .aggregate(() -> "0 0", KafkaStreamsApp::add, Materialized.with(Serdes.String(), Serdes.String()))
                .toStream()
                .mapValues(KafkaStreamsApp::json)
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        } else {
            builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofDays(1)))
                .aggregate(() -> "0 0", KafkaStreamsApp::add, Materialized.with(Serdes.String(), Serdes.String()))
                .toStream()
                .map((window, state) -> KeyValue.pair(window.key(), json(state)))
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        streams.start();
    }

    private static String add(String key, String value, String state) {
        String[] parts = state.split(" ");
        double sent = Double.parseDouble(value.substring(value.indexOf(':') + 1, value.indexOf('}')).trim());
        return (Long.parseLong(parts[0]) + 1) + " " + Math.max(sent, Double.parseDouble(parts[1]));
    }

    private static String json(String state) {
        String[] parts = state.split(" ");
        return "{\"count\": " + parts[0] + ", \"sent\": " + parts[1] + "}";
    }
}
