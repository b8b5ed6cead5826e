// Spring for Apache Kafka as the servant of a test: one JSON request per line, one JSON line for each: {"answer": …} or
// {"error": "…"}. What can be asked stands in tests/conformance/drivers/__init__.py. Members of groups are methods with
// @KafkaListener, each in an application context of its own; records are sent by a KafkaTemplate.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.MapPropertySource;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.KafkaListenerContainerFactory;
import org.springframework.kafka.config.ShareKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.support.ShareAcknowledgment;
import org.springframework.kafka.transaction.KafkaTransactionManager;

public class SpringDriver {
    static final long PATIENCE_S = 60;
    static final ObjectMapper JSON = new ObjectMapper();

    /** What a listener has read since it was last asked. */
    static class Inbox {
        final LinkedBlockingQueue<String> values = new LinkedBlockingQueue<>();

        List<String> take() throws InterruptedException {
            List<String> taken = new ArrayList<>();
            String first = values.poll(100, TimeUnit.MILLISECONDS);
            if (first != null) {
                taken.add(first);
                values.drainTo(taken);
            }
            return taken;
        }
    }

    /** An ordinary listener. */
    static class Reader {
        final Inbox inbox;

        Reader(Inbox inbox) {
            this.inbox = inbox;
        }

        @KafkaListener(topics = "${topic}", groupId = "${group}", containerFactory = "containers")
        void listen(String value) {
            inbox.values.add(value);
        }
    }

    /** A listener whose container begins a transaction for each record, and adds the record's offset to it. */
    static class Piper {
        final KafkaTemplate<String, String> template;
        final String target;
        final CountDownLatch left;

        Piper(KafkaTemplate<String, String> template, String target, CountDownLatch left) {
            this.template = template;
            this.target = target;
            this.left = left;
        }

        @KafkaListener(topics = "${topic}", groupId = "${group}", containerFactory = "containers")
        void listen(String value) {
            template.send(target, value + "!");
            left.countDown();
        }
    }

    /** A listener of a share group, which says of each record what it was told to say. */
    static class Worker {
        final Inbox inbox;
        final String verdict;

        Worker(Inbox inbox, String verdict) {
            this.inbox = inbox;
            this.verdict = verdict;
        }

        @KafkaListener(topics = "${topic}", groupId = "${group}", containerFactory = "containers")
        void listen(ConsumerRecord<String, String> record, ShareAcknowledgment acknowledgment) {
            inbox.values.add(record.deliveryCount().get() + " " + record.value());
            switch (verdict) {
                case "release" -> acknowledgment.release();
                case "reject" -> acknowledgment.reject();
                default -> acknowledgment.acknowledge();
            }
        }
    }

    @Configuration
    @EnableKafka
    static class Listening {}

    static final Map<String, AnnotationConfigApplicationContext> contexts = new HashMap<>();
    static final Map<String, Inbox> inboxes = new HashMap<>();

    static String text(JsonNode request, String name) {
        return request.path(name).asText("");
    }

    static Map<String, Object> settings(JsonNode request) {
        List<String> servers = new ArrayList<>();
        request.get("servers").forEach(one -> servers.add(one.asText()));
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", String.join(",", servers));
        settings.put("reconnect.backoff.ms", "20");
        return settings;
    }

    static Map<String, Object> consumerSettings(JsonNode request) {
        Map<String, Object> settings = settings(request);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "100");
        if (text(request, "protocol").equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("heartbeat.interval.ms", "200");
        }
        return settings;
    }

    static DefaultKafkaProducerFactory<String, String> producers(JsonNode request) {
        Map<String, Object> settings = settings(request);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        if (!text(request, "acks").isEmpty()) {
            settings.put("acks", text(request, "acks"));
            settings.put("enable.idempotence", text(request, "acks").equals("all"));
        }
        if (!text(request, "codec").isEmpty()) {
            settings.put("compression.type", text(request, "codec"));
        }
        settings.put("max.block.ms", "5000");
        DefaultKafkaProducerFactory<String, String> factory = new DefaultKafkaProducerFactory<>(settings);
        if (!text(request, "id").isEmpty()) {
            factory.setTransactionIdPrefix(text(request, "id"));
        }
        return factory;
    }

    static Object administer(JsonNode request) throws Exception {
        String topic = text(request, "topic");
        int partitions = request.path("partitions").asInt();
        try (Admin admin = Admin.create(settings(request))) {
            switch (text(request, "op")) {
                case "topic_create" -> admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
                case "topic_grow" -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(partitions))).all().get();
                case "topic_delete" -> admin.deleteTopics(List.of(topic)).all().get();
                default -> {
                    return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
                }
            }
        }
        return null;
    }

    static Object produce(JsonNode request) throws Exception {
        DefaultKafkaProducerFactory<String, String> factory = producers(request);
        try {
            KafkaTemplate<String, String> template = new KafkaTemplate<>(factory);
            List<java.util.concurrent.Future<?>> sent = new ArrayList<>();
            for (JsonNode one : request.get("records")) {
                Integer partition = one.path("partition").asInt(-1) < 0 ? null : one.get("partition").asInt();
                Long timestamp = one.path("timestamp").asLong() > 0 ? one.get("timestamp").asLong() : null;
                String key = one.path("key").isTextual() ? one.get("key").asText() : null;
                ProducerRecord<String, String> record =
                        new ProducerRecord<>(text(request, "topic"), partition, timestamp, key, text(one, "value"));
                for (JsonNode header : one.path("headers")) {
                    record.headers().add(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8));
                }
                sent.add(template.send(record));
            }
            template.flush();
            for (java.util.concurrent.Future<?> one : sent) {
                one.get(PATIENCE_S, TimeUnit.SECONDS);
            }
        } finally {
            factory.destroy();
        }
        return null;
    }

    static Object transact(JsonNode request) throws Exception {
        DefaultKafkaProducerFactory<String, String> factory = producers(request);
        try {
            new KafkaTemplate<>(factory).executeInTransaction(operations -> {
                request.get("values").forEach(value -> operations.send(text(request, "topic"), value.asText()));
                operations.flush();
                if (!request.get("commit").asBoolean()) {
                    throw new AbortedOnPurpose();
                }
                return null;
            });
        } catch (AbortedOnPurpose wanted) {
            return null;
        } finally {
            factory.destroy();
        }
        return null;
    }

    static class AbortedOnPurpose extends RuntimeException {}

    static Object read(JsonNode request) throws Exception {
        Map<String, Object> settings = consumerSettings(request);
        settings.put("isolation.level", request.path("committed").asBoolean() ? "read_committed" : "read_uncommitted");
        List<Map<String, Object>> found = new ArrayList<>();
        TopicPartition partition = new TopicPartition(text(request, "topic"), request.get("partition").asInt());
        try (Consumer<String, String> consumer = new DefaultKafkaConsumerFactory<String, String>(settings).createConsumer()) {
            consumer.assign(List.of(partition));
            if (text(request, "op").equals("offset_at")) {
                return consumer.offsetsForTimes(Map.of(partition, request.get("time").asLong())).get(partition).offset();
            }
            consumer.seek(partition, request.get("offset").asLong());
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            while (found.size() < request.get("count").asInt()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + found.size() + " records came");
                }
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
                    Map<String, Object> record = new HashMap<>();
                    List<List<String>> headers = new ArrayList<>();
                    for (Header header : one.headers()) {
                        headers.add(List.of(header.key(), new String(header.value(), StandardCharsets.UTF_8)));
                    }
                    record.put("partition", one.partition());
                    record.put("offset", one.offset());
                    record.put("key", one.key());
                    record.put("value", one.value());
                    record.put("headers", headers);
                    record.put("timestamp", one.timestamp());
                    found.add(record);
                }
            }
        }
        return found;
    }

    /** An application context in which `listener` is a bean, and its containers are those of `factory`. */
    static AnnotationConfigApplicationContext listen(
            JsonNode request, Object listener, KafkaListenerContainerFactory<?> factory) {
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();
        Map<String, Object> names = Map.of("topic", text(request, "topic"), "group", text(request, "group"));
        context.getEnvironment().getPropertySources().addFirst(new MapPropertySource("request", names));
        context.addBeanFactoryPostProcessor(beans -> {
            beans.registerSingleton("containers", factory);
        });
        context.register(Listening.class);
        registerListener(context, listener);
        context.refresh();
        return context;
    }

    @SuppressWarnings("unchecked")
    static void registerListener(AnnotationConfigApplicationContext context, Object listener) {
        // By a supplier: only beans that the context makes are searched for @KafkaListener.
        context.registerBean("listener", (Class<Object>) listener.getClass(), () -> listener);
    }

    static Object join(JsonNode request) {
        Inbox inbox = new Inbox();
        ConcurrentKafkaListenerContainerFactory<String, String> factory = new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(consumerSettings(request)));
        factory.getContainerProperties().setAckMode(ContainerProperties.AckMode.RECORD);
        contexts.put(text(request, "member"), listen(request, new Reader(inbox), factory));
        inboxes.put(text(request, "member"), inbox);
        return null;
    }

    static Object joinShareGroup(JsonNode request) {
        Inbox inbox = new Inbox();
        Map<String, Object> settings = consumerSettings(request);
        settings.keySet().removeAll(List.of("auto.offset.reset", "heartbeat.interval.ms"));
        ShareKafkaListenerContainerFactory<String, String> factory =
                new ShareKafkaListenerContainerFactory<>(new DefaultShareConsumerFactory<>(settings));
        factory.getContainerProperties().setShareAckMode(ContainerProperties.ShareAckMode.MANUAL);
        contexts.put(text(request, "member"), listen(request, new Worker(inbox, text(request, "verdict")), factory));
        inboxes.put(text(request, "member"), inbox);
        return null;
    }

    /**
     * Java's own share consumer, with a worker that takes longer than a lock lasts: renews the lock of each record it was
     * given until `hold_ms` have passed, then accepts. Answers with the errors of renewals and acceptances, and how many
     * renewals there were.
     */
    static Object renewLocks(JsonNode request) throws Exception {
        Map<String, Object> settings = consumerSettings(request);
        settings.keySet().removeAll(List.of("auto.offset.reset", "heartbeat.interval.ms"));
        settings.put("group.id", text(request, "group"));
        settings.put("share.acknowledgement.mode", "explicit");
        List<String> errors = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        long renewals = 0;
        int left = request.get("count").asInt();
        long endNanos = Long.MAX_VALUE;
        long deadlineNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(text(request, "topic")));
            while (left > 0) {
                if (System.nanoTime() > deadlineNanos) {
                    throw new IllegalStateException(left + " records were not accepted in time, renewals: " + renewals);
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    if (seen.isEmpty()) {
                        endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(request.get("hold_ms").asLong());
                    }
                    seen.add(record.deliveryCount().get() + " " + record.value());
                    boolean isDone = System.nanoTime() > endNanos;
                    consumer.acknowledge(record, isDone ? AcknowledgeType.ACCEPT : AcknowledgeType.RENEW);
                    left -= isDone ? 1 : 0;
                    renewals += isDone ? 0 : 1;
                }
                consumer.commitSync().values().forEach(one -> one.ifPresent(error -> errors.add(error.toString())));
                // The work.
                Thread.sleep(100);
            }
        }
        return Map.of("seen", new TreeSet<>(seen), "errors", errors, "renewals", renewals);
    }

    static Object pipe(JsonNode request) throws Exception {
        DefaultKafkaProducerFactory<String, String> producers = producers(request);
        Map<String, Object> settings = consumerSettings(request);
        settings.put("isolation.level", "read_committed");
        ConcurrentKafkaListenerContainerFactory<String, String> factory = new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(settings));
        factory.getContainerProperties().setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        CountDownLatch left = new CountDownLatch(request.get("count").asInt());
        Piper piper = new Piper(new KafkaTemplate<>(producers), text(request, "target"), left);
        try (AnnotationConfigApplicationContext context = listen(request, piper, factory)) {
            if (!left.await(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " records did not come");
            }
        } finally {
            producers.destroy();
        }
        return null;
    }

    static Object answer(JsonNode request) throws Exception {
        return switch (text(request, "op")) {
            case "topic_create", "topic_grow", "topic_delete", "topic_partitions" -> administer(request);
            case "produce" -> produce(request);
            case "read", "offset_at" -> read(request);
            case "transact" -> transact(request);
            case "pipe" -> pipe(request);
            case "join" -> join(request);
            case "share_join" -> joinShareGroup(request);
            case "share_renew" -> renewLocks(request);
            case "poll" -> inboxes.get(text(request, "member")).take();
            case "leave" -> {
                contexts.remove(text(request, "member")).close();
                yield null;
            }
            default -> throw new IllegalArgumentException("Spring does not know " + text(request, "op"));
        };
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> reply = new HashMap<>();
            try {
                reply.put("answer", answer(JSON.readTree(line)));
            } catch (Exception error) {
                Throwable cause = Optional.ofNullable(error.getCause()).orElse(error);
                reply.put("error", String.valueOf(cause));
            }
            System.out.println(JSON.writeValueAsString(reply));
        }
        System.exit(0);
    }
}
