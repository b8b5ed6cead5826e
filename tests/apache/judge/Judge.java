/*
 * Apache Kafka's own classes as a judge of bytes: a filter from lines to lines.
 *
 * A question is one line on standard input, its answer is one line on standard output, in the same order. Nothing else
 * is ever printed there. Questions may be sent without waiting for answers; answers are flushed when no further
 * question is at hand, so thousands of questions cost a few system calls. The end of the input ends the process.
 *
 *   V                                 every message Apache has           OK {"FetchRequest":[4,18],...}
 *   A                                 every API: key, versions, headers  OK {"FETCH":{"key":1,...},...}
 *   E                                 every error code                   OK [{"code":0,"name":"NONE",...},...]
 *   F <message>                       its fields and their defaults      OK {"maxWaitMs":{"default":0},...}
 *   M <message> <version> <hex>       read it, write it again            OK <hex> <json>
 *   T <message> <from> <to> <hex>     read one version, write another    OK <hex>
 *   B <hex>                           read a set of record batches       OK <json>
 *   W <codec> <json>                  write one record batch             OK <hex>
 *   C <kind> <json>                   write one control batch            OK <hex>
 *
 * Every failure is answered with ERR and the exception, and the next line is judged afresh. Bytes left over after
 * a message, a version outside its range, half a batch and a wrong checksum are errors too.
 *
 * A message is named as in Apache's schema files ("FetchRequest", "TopicRecord", "OffsetCommitKey"); its class carries
 * the suffix Data in some packages and not in others. All names are distinct across the packages below.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.jar.JarFile;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

public final class Judge {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message",
        "org.apache.kafka.common.metadata",
        "org.apache.kafka.coordinator.group.generated",
        "org.apache.kafka.coordinator.transaction.generated",
        "org.apache.kafka.coordinator.share.generated",
        "org.apache.kafka.raft.generated",
        "org.apache.kafka.server.log.remote.metadata.storage.generated");

    private static final HexFormat HEX = HexFormat.of();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final Map<String, Kind> KINDS = new HashMap<>();

    /** A message class: how to make one and how to turn one into JSON. */
    private record Kind(Constructor<?> constructor, Method toJson) {
        Message make() throws ReflectiveOperationException {
            return (Message) constructor.newInstance();
        }
    }

    public static void main(String[] args) throws IOException {
        // Libraries that print to System.out must not break the answers.
        PrintStream answers = new PrintStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader questions = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        String line;
        while ((line = questions.readLine()) != null) {
            answers.print(answer(line));
            answers.print('\n');
            if (!questions.ready()) {
                answers.flush();
            }
        }
        answers.flush();
    }

    private static String answer(String line) {
        try {
            String[] words = line.split(" ", 2);
            return "OK " + switch (words[0]) {
                case "V" -> JSON.writeValueAsString(versions());
                case "A" -> JSON.writeValueAsString(apis());
                case "E" -> JSON.writeValueAsString(errors());
                case "F" -> JSON.writeValueAsString(fields(kind(words[1]).constructor().getDeclaringClass()));
                case "M" -> roundTrip(words[1].split(" ", 3));
                case "T" -> translate(words[1].split(" ", 4));
                case "B" -> JSON.writeValueAsString(readBatches(HEX.parseHex(words[1])));
                case "W" -> writeBatch(words[1].split(" ", 2));
                case "C" -> writeControlBatch(words[1].split(" ", 2));
                default -> throw new IllegalArgumentException("No such question: " + words[0]);
            };
        } catch (InvocationTargetException wrapped) {
            return error(wrapped.getCause());
        } catch (Exception | OutOfMemoryError | StackOverflowError problem) {
            return error(problem);
        }
    }

    private static String error(Throwable problem) {
        return "ERR " + problem.toString().replaceAll("\\s+", " ");
    }

    // ---- messages ----

    private static String roundTrip(String[] words) throws Exception {
        Kind kind = kind(words[0]);
        short version = Short.parseShort(words[1]);
        Message message = read(kind, version, words[2]);
        return write(message, version) + " " + JSON.writeValueAsString(kind.toJson().invoke(null, message, version));
    }

    private static String translate(String[] words) throws Exception {
        Message message = read(kind(words[0]), Short.parseShort(words[1]), words[3]);
        return write(message, Short.parseShort(words[2]));
    }

    private static Message read(Kind kind, short version, String hex) throws ReflectiveOperationException {
        ByteBuffer input = ByteBuffer.wrap(HEX.parseHex(hex));
        Message message = kind.make();
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
            throw new IllegalArgumentException("Apache has versions " + message.lowestSupportedVersion() + " to "
                + message.highestSupportedVersion() + " of " + message.getClass().getSimpleName());
        }
        message.read(new ByteBufferAccessor(input), version);
        if (input.hasRemaining()) {
            throw new IllegalArgumentException(input.remaining() + " bytes are left over");
        }
        return message;
    }

    private static String write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(output), cache, version);
        if (output.hasRemaining()) {
            throw new IllegalStateException("Apache wrote " + output.remaining() + " bytes less than it announced");
        }
        return HEX.formatHex(output.array());
    }

    private static Kind kind(String name) throws ReflectiveOperationException {
        Kind known = KINDS.get(name);
        if (known == null) {
            known = findKind(name);
            KINDS.put(name, known);
        }
        return known;
    }

    private static Kind findKind(String name) throws ReflectiveOperationException {
        for (String parent : PACKAGES) {
            for (String suffix : List.of("", "Data")) {
                try {
                    Class<?> found = Class.forName(parent + "." + name + suffix);
                    if (Message.class.isAssignableFrom(found)) {
                        Class<?> converter = Class.forName(found.getName() + "JsonConverter");
                        return new Kind(found.getConstructor(), converter.getMethod("write", found, short.class));
                    }
                } catch (ClassNotFoundException elsewhere) {
                    // The next package or the next suffix may have it.
                }
            }
        }
        throw new ClassNotFoundException("Apache has no message " + name);
    }

    private static ObjectNode versions() throws Exception {
        ObjectNode ranges = NODES.objectNode();
        String ending = "JsonConverter.class";
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!path.endsWith(".jar")) {
                continue;
            }
            try (JarFile jar = new JarFile(path)) {
                for (String entry : (Iterable<String>) jar.stream().map(Object::toString)::iterator) {
                    int slash = entry.lastIndexOf('/');
                    if (!entry.endsWith(ending) || entry.contains("$")
                            || !PACKAGES.contains(entry.substring(0, slash).replace('/', '.'))) {
                        continue;
                    }
                    String name = entry.substring(slash + 1, entry.length() - ending.length());
                    // The generator adds Data to requests, responses and headers alone.
                    name = name.replaceAll("(?<=Request|Response|Header)Data$", "");
                    Message message = kind(name).make();
                    ranges.putArray(name).add(message.lowestSupportedVersion()).add(message.highestSupportedVersion());
                }
            }
        }
        return ranges;
    }

    /**
     * The fields of a generated class in their order on the wire, with the defaults of a fresh object. Fields that
     * hold structs, alone or in a collection, describe these under "of".
     */
    private static ObjectNode fields(Class<?> type) throws ReflectiveOperationException {
        Object fresh = type.getConstructor().newInstance();
        ObjectNode described = NODES.objectNode();
        for (Field field : type.getDeclaredFields()) {
            // What the generator adds for its own use, constants aside, is private; the fields of the schema are not.
            if (Modifier.isStatic(field.getModifiers()) || Modifier.isPrivate(field.getModifiers())) {
                continue;
            }
            field.setAccessible(true);
            ObjectNode node = described.putObject(field.getName());
            node.set("default", defaultValue(field.get(fresh)));
            Class<?> struct = structIn(field);
            if (struct != null) {
                node.set("of", fields(struct));
            }
        }
        return described;
    }

    private static JsonNode defaultValue(Object value) {
        if (value instanceof Message) {
            return NODES.objectNode();
        } else if (value instanceof byte[] bytes) {
            return NODES.textNode(HEX.formatHex(bytes));
        } else if (value instanceof ByteBuffer buffer) {
            return NODES.textNode(hexOrNull(buffer));
        } else if (value instanceof Uuid uuid) {
            return NODES.textNode(uuid.toString());
        } else if (value instanceof Collection<?> collection) {
            return JSON.valueToTree(List.copyOf(collection));
        }
        return JSON.valueToTree(value);
    }

    /** The class of the struct that a field holds; null for a field of primitives. */
    private static Class<?> structIn(Field field) {
        Class<?> type = field.getType();
        if (Message.class.isAssignableFrom(type)) {
            return type;
        }
        // Either List<X>, or a collection class of its own for entries with a key, which extends Some<X>.
        Type parameterised = type == List.class ? field.getGenericType() : type.getGenericSuperclass();
        if (parameterised instanceof ParameterizedType generic
                && generic.getActualTypeArguments()[0] instanceof Class<?> element
                && Message.class.isAssignableFrom(element)) {
            return element;
        }
        return null;
    }

    // ---- tables ----

    private static ObjectNode apis() {
        ObjectNode apis = NODES.objectNode();
        for (ApiKeys api : ApiKeys.values()) {
            if (!api.hasValidVersion()) {
                continue;
            }
            ObjectNode node = apis.putObject(api.name());
            node.put("key", api.id);
            node.put("oldestVersion", api.oldestVersion());
            node.put("latestVersion", api.latestVersion());
            node.put("latestStableVersion", api.latestVersion(false));
            node.set("listeners", JSON.valueToTree(api.messageType.listeners()));
            ObjectNode headers = node.putObject("headerVersions");
            for (short version : api.allVersions()) {
                headers.putArray(Short.toString(version))
                    .add(api.requestHeaderVersion(version)).add(api.responseHeaderVersion(version));
            }
        }
        return apis;
    }

    private static ArrayNode errors() {
        ArrayNode errors = NODES.arrayNode();
        for (Errors error : Errors.values()) {
            ObjectNode node = errors.addObject();
            node.put("code", error.code());
            node.put("name", error.name());
            node.put("retriable", error.exception() instanceof RetriableException);
        }
        return errors;
    }

    // ---- record batches ----

    private static ArrayNode readBatches(byte[] bytes) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        ArrayNode batches = NODES.arrayNode();
        int size = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            batches.add(describe(batch));
            size += batch.sizeInBytes();
        }
        if (size != bytes.length) {
            throw new IllegalArgumentException((bytes.length - size) + " bytes are left over");
        }
        return batches;
    }

    private static ObjectNode describe(RecordBatch batch) {
        ObjectNode node = NODES.objectNode();
        node.put("magic", batch.magic());
        node.put("baseOffset", batch.baseOffset());
        node.put("lastOffset", batch.lastOffset());
        node.put("nextOffset", batch.nextOffset());
        node.put("sizeInBytes", batch.sizeInBytes());
        node.put("leaderEpoch", batch.partitionLeaderEpoch());
        node.put("crc", batch.checksum());
        node.put("codec", batch.compressionType().name);
        node.put("timestampType", batch.timestampType().name);
        node.put("maxTimestamp", batch.maxTimestamp());
        node.put("producerId", batch.producerId());
        node.put("producerEpoch", batch.producerEpoch());
        node.put("baseSequence", batch.baseSequence());
        node.put("lastSequence", batch.lastSequence());
        node.put("isTransactional", batch.isTransactional());
        node.put("isControl", batch.isControlBatch());
        batch.deleteHorizonMs().ifPresent(horizon -> node.put("deleteHorizonMs", horizon));
        Integer count = batch.countOrNull();
        node.put("count", count);
        ArrayNode records = node.putArray("records");
        for (Record record : batch) {
            record.ensureValid();
            records.add(describe(record, batch.isControlBatch()));
        }
        if (count != null && count != records.size()) {
            throw new IllegalArgumentException("The batch claims " + count + " records and has " + records.size());
        }
        return node;
    }

    private static ObjectNode describe(Record record, boolean isControl) {
        ObjectNode node = NODES.objectNode();
        node.put("offset", record.offset());
        node.put("sequence", record.sequence());
        node.put("timestamp", record.timestamp());
        node.put("key", hexOrNull(record.key()));
        node.put("value", hexOrNull(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            byte[] value = header.value();
            headers.addArray().add(header.key()).add(value == null ? null : HEX.formatHex(value));
        }
        if (isControl) {
            ControlRecordType type = ControlRecordType.parse(record.key());
            node.put("controlType", type.name());
            node.set("control", describeControl(type, record));
        }
        return node;
    }

    private static JsonNode describeControl(ControlRecordType type, Record record) {
        return switch (type) {
            case COMMIT, ABORT -> {
                EndTransactionMarker marker = EndTransactionMarker.deserialize(record);
                yield NODES.objectNode().put("coordinatorEpoch", marker.coordinatorEpoch());
            }
            case LEADER_CHANGE -> LeaderChangeMessageJsonConverter.write(
                ControlRecordUtils.deserializeLeaderChangeMessage(record),
                ControlRecordUtils.LEADER_CHANGE_CURRENT_VERSION);
            case SNAPSHOT_HEADER -> SnapshotHeaderRecordJsonConverter.write(
                ControlRecordUtils.deserializeSnapshotHeaderRecord(record),
                ControlRecordUtils.SNAPSHOT_HEADER_CURRENT_VERSION);
            case SNAPSHOT_FOOTER -> SnapshotFooterRecordJsonConverter.write(
                ControlRecordUtils.deserializeSnapshotFooterRecord(record),
                ControlRecordUtils.SNAPSHOT_FOOTER_CURRENT_VERSION);
            case KRAFT_VERSION -> KRaftVersionRecordJsonConverter.write(
                ControlRecordUtils.deserializeKRaftVersionRecord(record),
                ControlRecordUtils.KRAFT_VERSION_CURRENT_VERSION);
            case KRAFT_VOTERS -> VotersRecordJsonConverter.write(
                ControlRecordUtils.deserializeVotersRecord(record),
                ControlRecordUtils.KRAFT_VOTERS_CURRENT_VERSION);
            default -> NODES.nullNode();
        };
    }

    private static String writeBatch(String[] words) throws IOException {
        JsonNode given = JSON.readTree(words[1]);
        ByteBufferOutputStream output = new ByteBufferOutputStream(1024);
        long baseOffset = given.path("baseOffset").asLong(0);
        boolean isLogAppendTime = given.path("timestampType").asText("CreateTime").equals("LogAppendTime");
        byte magic = (byte) given.path("magic").asInt(RecordBatch.CURRENT_MAGIC_VALUE);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            output,
            magic,
            Compression.of(words[0]).build(),
            isLogAppendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            baseOffset,
            given.path("logAppendTime").asLong(RecordBatch.NO_TIMESTAMP),
            given.path("producerId").asLong(RecordBatch.NO_PRODUCER_ID),
            (short) given.path("producerEpoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
            given.path("baseSequence").asInt(RecordBatch.NO_SEQUENCE),
            given.path("isTransactional").asBoolean(false),
            false,
            given.path("leaderEpoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH),
            Integer.MAX_VALUE,
            given.path("deleteHorizonMs").asLong(RecordBatch.NO_TIMESTAMP));
        long offset = baseOffset;
        for (JsonNode record : given.path("records")) {
            offset = record.path("offset").asLong(offset);
            byte[] key = bytesOrNull(record.path("key"));
            byte[] value = bytesOrNull(record.path("value"));
            long timestamp = record.path("timestamp").asLong(0);
            builder.appendWithOffset(offset, timestamp, key, value, headers(record.path("headers")));
            offset++;
        }
        return hex(builder.build());
    }

    private static Header[] headers(JsonNode given) {
        Header[] headers = new Header[given.size()];
        for (int i = 0; i < headers.length; i++) {
            headers[i] = new RecordHeader(given.get(i).get(0).asText(), bytesOrNull(given.get(i).get(1)));
        }
        return headers;
    }

    private static String writeControlBatch(String[] words) throws IOException {
        JsonNode given = JSON.readTree(words[1]);
        JsonNode message = given.path("message");
        long offset = given.path("baseOffset").asLong(0);
        long timestamp = given.path("timestamp").asLong(0);
        int epoch = given.path("leaderEpoch").asInt(0);
        ByteBuffer room = ByteBuffer.allocate(1 << 16);
        ControlRecordType type = ControlRecordType.valueOf(words[0]);
        return hex(switch (type) {
            case COMMIT, ABORT -> MemoryRecords.withEndTransactionMarker(
                offset, timestamp, epoch,
                given.path("producerId").asLong(), (short) given.path("producerEpoch").asInt(),
                new EndTransactionMarker(type, message.path("coordinatorEpoch").asInt()));
            case LEADER_CHANGE -> MemoryRecords.withLeaderChangeMessage(
                offset, timestamp, epoch, room,
                LeaderChangeMessageJsonConverter.read(message, ControlRecordUtils.LEADER_CHANGE_CURRENT_VERSION));
            case SNAPSHOT_HEADER -> MemoryRecords.withSnapshotHeaderRecord(
                offset, timestamp, epoch, room,
                SnapshotHeaderRecordJsonConverter.read(message, ControlRecordUtils.SNAPSHOT_HEADER_CURRENT_VERSION));
            case SNAPSHOT_FOOTER -> MemoryRecords.withSnapshotFooterRecord(
                offset, timestamp, epoch, room,
                SnapshotFooterRecordJsonConverter.read(message, ControlRecordUtils.SNAPSHOT_FOOTER_CURRENT_VERSION));
            case KRAFT_VERSION -> MemoryRecords.withKRaftVersionRecord(
                offset, timestamp, epoch, room,
                KRaftVersionRecordJsonConverter.read(message, ControlRecordUtils.KRAFT_VERSION_CURRENT_VERSION));
            case KRAFT_VOTERS -> MemoryRecords.withVotersRecord(
                offset, timestamp, epoch, room,
                VotersRecordJsonConverter.read(message, ControlRecordUtils.KRAFT_VOTERS_CURRENT_VERSION));
            default -> throw new IllegalArgumentException("No such control batch: " + words[0]);
        });
    }

    // ---- bytes as text ----

    private static String hex(MemoryRecords records) {
        return hexOrNull(records.buffer());
    }

    private static String hexOrNull(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    private static byte[] bytesOrNull(JsonNode hex) {
        return hex.isTextual() ? HEX.parseHex(hex.asText()) : null;
    }
}
