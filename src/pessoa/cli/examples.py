"""What to type: for each command a few lines that do something, each with what it does.

They stand at the foot of `--help`. A test reads them back and parses every one of them with the command's own options,
so an example cannot be wrong about those. Read only when help is printed: a tool has no time for it otherwise.
"""

from __future__ import annotations

_B = "--bootstrap-server localhost:9092"

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "kafka-topics": (
        (f"kafka-topics {_B} --create --topic orders --partitions 3 --replication-factor 3", "make a topic"),
        (f"kafka-topics {_B} --list", "all topics"),
        (f"kafka-topics {_B} --describe --topic orders", "its partitions, leaders and replicas"),
        (f"kafka-topics {_B} --alter --topic orders --partitions 6", "more partitions"),
    ),
    "kafka-console-producer": (
        (f"kafka-console-producer {_B} --topic orders", "every line typed becomes a record; Ctrl-D ends"),
        (f"seq 100 | kafka-console-producer {_B} --topic orders", "a hundred records"),
        (
            (
                f"kafka-console-producer {_B} --topic orders --reader-property parse.key=true "
                "--reader-property key.separator=:"
            ),
            "lines like key:value",
        ),
    ),
    "kafka-console-consumer": (
        (f"kafka-console-consumer {_B} --topic orders --from-beginning", "everything, and what comes; Ctrl-C ends"),
        (f"kafka-console-consumer {_B} --topic orders --group a", "share the partitions with others of the group"),
        (
            (
                f"kafka-console-consumer {_B} --topic orders --from-beginning --max-messages 10 "
                "--formatter-property print.key=true --formatter-property print.offset=true"
            ),
            "ten records, with key and offset",
        ),
    ),
    "kafka-consumer-groups": (
        (f"kafka-consumer-groups {_B} --list", "all groups"),
        (f"kafka-consumer-groups {_B} --describe --group a", "how far it is in each partition, and who reads it"),
        (
            f"kafka-consumer-groups {_B} --reset-offsets --group a --topic orders --to-earliest --execute",
            "let it begin again",
        ),
    ),
    "kafka-get-offsets": (
        (f"kafka-get-offsets {_B} --topic orders", "where each partition ends"),
        (f"kafka-get-offsets {_B} --topic orders --time earliest", "where each begins"),
    ),
    "kafka-configs": (
        (f"kafka-configs {_B} --describe --topic orders", "what a topic sets itself"),
        (f"kafka-configs {_B} --alter --topic orders --add-config retention.ms=3600000", "keep records for an hour"),
        (f"kafka-configs {_B} --alter --topic orders --delete-config retention.ms", "back to the default"),
    ),
    "kafka-broker-api-versions": (
        (f"kafka-broker-api-versions {_B}", "which requests each broker understands, and in which versions"),
    ),
    "kafka-cluster": (
        (f"kafka-cluster cluster-id {_B}", "the id of the cluster"),
        (f"kafka-cluster list-endpoints {_B}", "where its brokers are"),
    ),
    "kafka-features": (
        (f"kafka-features {_B} describe", "features and their levels"),
        (f"kafka-features {_B} upgrade --release-version 4.3 --dry-run", "would an upgrade work?"),
    ),
    "kafka-metadata-quorum": (
        (f"kafka-metadata-quorum {_B} describe --status", "who leads the quorum, and who votes"),
        (f"kafka-metadata-quorum {_B} describe --replication", "how far each voter is"),
    ),
    "kafka-log-dirs": (
        (f"kafka-log-dirs {_B} --describe", "what every partition takes on every disk, as JSON"),
        (f"kafka-log-dirs {_B} --describe --topic-list orders --broker-list 1", "of one topic on one broker"),
    ),
    "kafka-delete-records": (
        (
            f"kafka-delete-records {_B} --offset-json-file before.json",
            'before.json: {"version":1,"partitions":[{"topic":"orders","partition":0,"offset":100}]}',
        ),
    ),
    "kafka-leader-election": (
        (f"kafka-leader-election {_B} --election-type preferred --all-topic-partitions", "back to the first replicas"),
        (f"kafka-leader-election {_B} --election-type preferred --topic orders --partition 0", "of one partition"),
    ),
    "kafka-streams-application-reset": (
        (
            f"kafka-streams-application-reset {_B} --application-id contagem --input-topics pedidos --dry-run",
            "what would be reset",
        ),
        (
            f"kafka-streams-application-reset {_B} --application-id contagem --input-topics pedidos",
            "have it begin anew, its internal topics deleted",
        ),
    ),
    "kafka-streams-groups": (
        (f"kafka-streams-groups {_B} --describe --group contagem", "how far its input is read"),
        (f"kafka-streams-groups {_B} --describe --group contagem --members", "who is in it, with which tasks"),
        (
            f"kafka-streams-groups {_B} --reset-offsets --group contagem --all-input-topics --to-earliest --execute",
            "have it begin anew",
        ),
    ),
    "kafka-share-groups": (
        (f"kafka-share-groups {_B} --describe --group trabalhos", "where its partitions start, and their lag"),
        (f"kafka-share-groups {_B} --describe --group trabalhos --members", "who is in it"),
        (
            f"kafka-share-groups {_B} --reset-offsets --group trabalhos --topic pedidos --to-earliest --execute",
            "deliver everything again",
        ),
    ),
    "kafka-console-share-consumer": (
        (f"kafka-console-share-consumer {_B} --topic pedidos --group trabalhos", "take records from the queue"),
        (f"kafka-console-share-consumer {_B} --topic pedidos --group trabalhos --release", "and give each one back"),
    ),
    "kafka-share-consumer-perf-test": (
        (f"kafka-share-consumer-perf-test {_B} --topic t --num-records 100000", "how fast a share group reads"),
    ),
    "kafka-verifiable-share-consumer": (
        (
            f"kafka-verifiable-share-consumer {_B} --topic t --group-id g --max-messages 100",
            "100 records, and every event as JSON",
        ),
    ),
    "kafka-groups": (
        (f"kafka-groups {_B} --list", "groups of every type"),
        (f"kafka-groups {_B} --list --consumer", "only those of consumers"),
    ),
    "kafka-client-metrics": (
        (f"kafka-client-metrics {_B} --list", "what clients are asked to measure"),
        (
            f"kafka-client-metrics {_B} --alter --name slow --metrics org.apache.kafka.producer. --interval 10000",
            "ask producers every ten seconds",
        ),
    ),
    "kafka-reassign-partitions": (
        (
            f"kafka-reassign-partitions {_B} --generate --topics-to-move-json-file topics.json --broker-list 1,2,3",
            "propose a plan",
        ),
        (f"kafka-reassign-partitions {_B} --execute --reassignment-json-file plan.json", "begin to move"),
        (f"kafka-reassign-partitions {_B} --verify --reassignment-json-file plan.json", "how far is it?"),
    ),
    "kafka-transactions": (
        (f"kafka-transactions {_B} list", "all transactional ids and their states"),
        (f"kafka-transactions {_B} describe --transactional-id copier", "one of them"),
    ),
    "kafka-acls": (
        (f"kafka-acls {_B} --add --allow-principal User:ana --producer --topic orders", "ana may write"),
        (f"kafka-acls {_B} --list --topic orders", "who may do what"),
    ),
    "kafka-delegation-tokens": (
        (
            f"kafka-delegation-tokens {_B} --create --max-life-time-period -1 --command-config client.properties",
            "a token for the user of client.properties",
        ),
        (f"kafka-delegation-tokens {_B} --describe --command-config client.properties", "what tokens there are"),
    ),
    "kafka-storage": (
        ("kafka-storage random-uuid", "make up an id for a cluster"),
        ("kafka-storage format -t 4L6g3nShT-eMCtK--X86sw -c server.properties", "make a node's directories its own"),
        ("kafka-storage info -c server.properties", "whose they are"),
    ),
    "kafka-dump-log": (
        ("kafka-dump-log --files orders-0/00000000000000000000.log", "the batches of a segment"),
        ("kafka-dump-log --print-data-log --files orders-0/00000000000000000000.log", "and their records"),
        (
            "kafka-dump-log --offsets-decoder --files __consumer_offsets-7/00000000000000000000.log",
            "what groups have committed",
        ),
        (
            "kafka-dump-log --verify-index-only --files orders-0/00000000000000000000.index",
            "whether an index is true of its log",
        ),
    ),
    "kafka-producer-perf-test": (
        (
            f"kafka-producer-perf-test {_B} --topic fast --num-records 100000 --record-size 100 --throughput -1",
            "as fast as it goes",
        ),
    ),
    "kafka-consumer-perf-test": (
        (f"kafka-consumer-perf-test {_B} --topic fast --num-records 100000", "how fast a topic is read"),
    ),
    "kafka-e2e-latency": (
        (
            f"kafka-e2e-latency {_B} --topic fast --num-records 1000 --producer-acks all --record-size 100",
            "from producer to consumer, record by record",
        ),
    ),
    "kafka-verifiable-producer": (
        (f"kafka-verifiable-producer {_B} --topic sure --max-messages 100", "numbers, and which were acknowledged"),
    ),
    "kafka-verifiable-consumer": (
        (f"kafka-verifiable-consumer {_B} --topic sure --group-id a", "tell of everything that happens; Ctrl-C ends"),
    ),
    "kafka-avro-console-producer": (
        (
            (
                f"kafka-avro-console-producer {_B} --topic orders --property value.schema='"
                '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
                "'"
            ),
            'lines like {"id": 1}',
        ),
    ),
    "kafka-avro-console-consumer": (
        (f"kafka-avro-console-consumer {_B} --topic orders --from-beginning", "records as JSON"),
    ),
    "kafka-json-schema-console-producer": (
        (
            (
                f"kafka-json-schema-console-producer {_B} --topic orders --property value.schema='"
                '{"type":"object","properties":{"id":{"type":"integer"}}}'
                "'"
            ),
            'lines like {"id": 1}',
        ),
    ),
    "kafka-json-schema-console-consumer": (
        (f"kafka-json-schema-console-consumer {_B} --topic orders --from-beginning", "records as JSON"),
    ),
    "kafka-protobuf-console-producer": (
        (
            (
                f"kafka-protobuf-console-producer {_B} --topic orders --property value.schema='"
                'syntax = "proto3"; message Order { int32 id = 1; }'
                "'"
            ),
            'lines like {"id": 1}',
        ),
    ),
    "kafka-protobuf-console-consumer": (
        (f"kafka-protobuf-console-consumer {_B} --topic orders --from-beginning", "records as JSON"),
    ),
    "pessoa top": (
        ("pessoa top", "a table that is drawn anew every second; Ctrl-C ends"),
        ("pessoa top --once", "one table"),
    ),
    "pessoa control-center": (
        ("pessoa control-center", "on 9021, for the brokers on localhost:9092"),
        ("pessoa control-center --bootstrap-server kafka:9092 --port 9022", "for others, and elsewhere"),
    ),
    "pessoa rest-proxy": (
        ("pessoa rest-proxy", "on 8082, for the brokers on localhost:9092"),
        ("pessoa rest-proxy --bootstrap-server kafka:9092 --port 8090", "for others, and elsewhere"),
    ),
    "pessoa schema-registry": (
        ("pessoa schema-registry", "on 8081, for the brokers on localhost:9092"),
        ("pessoa schema-registry --bootstrap-server kafka:9092 --port 8090", "for others, and elsewhere"),
    ),
    "pessoa connect": (
        ("pessoa connect", "on 8083, for the brokers on localhost:9092"),
        ("pessoa connect --bootstrap-server kafka:9092 --override group.id=blue", "for others, in a group of its own"),
    ),
    "pessoa ksql-server": (
        ("pessoa ksql-server", "on 8088, for the brokers on localhost:9092"),
        (
            "pessoa ksql-server --bootstrap-server kafka:9092 --schema-registry http://kafka:8081",
            "for others, with schemas",
        ),
    ),
    "ksql": (
        ("ksql", "the prompt, for the server on localhost:8088"),
        ('ksql -e "SHOW STREAMS;"', "run statements, and leave"),
        ("ksql --output JSON http://localhost:8088", "answers as JSON"),
    ),
    "pessoa ksql": (("pessoa ksql", "the prompt of ksql"),),
    "pessoa pipelines": (
        ("pessoa pipelines serve", "the engine, on 8084"),
        ("pessoa pipelines start copy flows.py:copy --topic out", "a query: the function copy in flows.py"),
        ("pessoa pipelines list", "what runs"),
        ("pessoa pipelines top", "what runs, as it changes"),
    ),
    "pessoa shell": (
        ("pessoa shell", "the cluster on localhost:9092"),
        ("pessoa shell --cluster here=localhost:9092 --cluster there=kafka:9092", "two clusters, F2 changes"),
    ),
    "pessoa version": (("pessoa version", "what to say in a bug report"),),
    "connect-mirror-maker": (
        ("connect-mirror-maker mm2.properties", "copy topics between clusters as the file says"),
        ("connect-mirror-maker mm2.properties --clusters aqui", "only the flows into this cluster"),
    ),
    "connect-standalone": (
        ("connect-standalone worker.properties file-source.properties", "a worker with one connector"),
    ),
    "confluent": (
        ("confluent start", "all services"),
        ("confluent status", "what is up"),
        ("confluent produce orders", "every line typed becomes a record"),
        ("confluent load file-source", "a connector that reads test.txt"),
    ),
}

# Programs that call themselves otherwise in their usage, as Apache's do.
_PROGRAMS = {
    "verifiable-producer": "kafka-verifiable-producer",
    "verifiable-consumer": "kafka-verifiable-consumer",
    "verifiable-share-consumer": "kafka-verifiable-share-consumer",
    "kafka-transactions.sh": "kafka-transactions",
}


def text_of(command: str) -> str:
    """Return the examples at the end of a command's help; "" if it has none."""
    found = EXAMPLES.get(_PROGRAMS.get(command, command), ())
    lines = (f"  {typed}\n      {what}" for typed, what in found)
    return "\n".join(("Examples:", *lines)) + "\n" if found else ""


def for_click(command: str) -> str:
    """Return the examples with the mark that keeps click from wrapping their lines."""
    return f"\b\n{text_of(command)}"
