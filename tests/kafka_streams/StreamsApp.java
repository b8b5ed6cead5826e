// A Kafka Streams application for tests, in one of two shapes:
//
//   counts   words of "lines" → repartitioned by word → counted in the store "counts" → "counts-out"
//   joined   "left" and "right" joined by key within ten seconds → "joined-out"
//
//   java StreamsApp.java <bootstrap servers> <application id> <classic|streams> <state directory> <shape> <prefix>
//                        <exactly_once_v2|at_least_once> [key=value ...]
//
// Topics have <prefix> before their names. It prints its state whenever that changes ("state RUNNING"), and answers
// lines on standard input: "get <word>" with "<word> <count>" from its own store, "-" if it has none.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.QueryableStoreTypes;

public class StreamsApp {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("application.id", words[1]);
        settings.put("group.protocol", words[2]);
        settings.put("state.dir", words[3]);
        settings.put("processing.guarantee", words[6]);
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("auto.offset.reset", "earliest");
        for (String pair : Arrays.copyOfRange(words, 7, words.length)) {
            int equals = pair.indexOf('=');
            settings.put(pair.substring(0, equals), pair.substring(equals + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        if (words[4].equals("counts")) {
            counts(builder, words[5]);
        } else {
            joined(builder, words[5]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String word = line.substring("get ".length());
            Object count = streams.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()))
                .get(word);
            say(word + " " + (count == null ? "-" : count));
        }
        streams.close(Duration.ofSeconds(20));
    }

    private static void counts(StreamsBuilder builder, String prefix) {
        builder.stream(prefix + "lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()))
            .count(Named.as("counting"), Materialized.as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(prefix + "counts-out", Produced.with(Serdes.String(), Serdes.String()));
    }

    private static void joined(StreamsBuilder builder, String prefix) {
        KStream<String, String> left = builder.stream(prefix + "left");
        KStream<String, String> right = builder.stream(prefix + "right");
        left.join(right, (one, other) -> one + "+" + other, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(10)),
                StreamJoined.<String, String, String>as("pairs"))
            .to(prefix + "joined-out");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
