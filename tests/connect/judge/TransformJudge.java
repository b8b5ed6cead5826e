// Applies Apache's own transforms: it reads one case per line and prints one result per line, both as JSON.
//
// in:  {"class", "config", "topic", "key", "value", "timestamp"}; key and value as JsonConverter has them, with schema.
// out: {"topic", "key", "value", "headers"}, {"dropped": true}, or {"error": <class of the exception>}
//
// It starts from its source (`java TransformJudge.java`), with the jars of Connect on the class path.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;

public class TransformJudge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonConverter ENVELOPE = new JsonConverter();

    public static void main(String[] arguments) throws Exception {
        ENVELOPE.configure(Map.of("schemas.enable", "true"), false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.write((JSON.writeValueAsString(judge(JSON.readTree(line))) + "\n").getBytes(StandardCharsets.UTF_8));
        }
        System.out.flush();
    }

    private static JsonNode judge(JsonNode given) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            @SuppressWarnings("unchecked")
            Transformation<SinkRecord> transform = (Transformation<SinkRecord>)
                Class.forName(given.get("class").asText()).getDeclaredConstructor().newInstance();
            Map<String, String> config = new HashMap<>();
            given.get("config").fields().forEachRemaining(pair -> config.put(pair.getKey(), pair.getValue().asText()));
            transform.configure(config);
            SinkRecord changed = transform.apply(record(given));
            transform.close();
            if (changed == null) {
                return answer.put("dropped", true);
            }
            answer.put("topic", changed.topic());
            answer.set("key", envelope(new SchemaAndValue(changed.keySchema(), changed.key())));
            answer.set("value", envelope(new SchemaAndValue(changed.valueSchema(), changed.value())));
            ObjectNode headers = answer.putObject("headers");
            for (Header header : changed.headers()) {
                headers.set(header.key(), envelope(new SchemaAndValue(header.schema(), header.value())));
            }
            return answer;
        } catch (Exception failure) {
            return JSON.createObjectNode().put("error", failure.getClass().getSimpleName());
        }
    }

    private static SinkRecord record(JsonNode given) throws Exception {
        SchemaAndValue key = read(given.get("key"));
        SchemaAndValue value = read(given.get("value"));
        Long timestamp = given.get("timestamp").isNull() ? null : given.get("timestamp").asLong();
        SinkRecord made = new SinkRecord(given.get("topic").asText(), 3, key.schema(), key.value(), value.schema(),
            value.value(), 42L, timestamp, TimestampType.CREATE_TIME);
        made.headers().addString("trace", "abc");
        return made;
    }

    private static SchemaAndValue read(JsonNode node) throws Exception {
        return node.isNull() ? SchemaAndValue.NULL : ENVELOPE.toConnectData("t", JSON.writeValueAsBytes(node));
    }

    private static JsonNode envelope(SchemaAndValue one) throws Exception {
        byte[] data = ENVELOPE.fromConnectData("t", one.schema(), one.value());
        return data == null ? JSON.nullNode() : JSON.readTree(data);
    }
}
