"""Connectors to other servers, end to end: one worker, a real Spark, real servers.

The functions named `start_…` start all connectors first, and each test waits for its result. Tests that need a server
which is not installed are skipped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from pessoa.connect.connectors.mirror_names import Checkpoint, Heartbeat
from pessoa.pipelines.spark_server import session_at
from pessoa.testing import Broker
from tests.apache.broker import ApacheKafka
from tests.connect.servers import Mosquitto, mongo, mosquitto, mosquitto_program, opensearch, publish
from tests.connect.serving import connect_worker, wait_for_states, wait_until
from tests.support.logged_process import LoggedProcess

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
MIRROR = "org.apache.kafka.connect.mirror."
RECORDS = 300
SALES = 100
PARTITIONS = 3


class Cluster:
    """A Kafka cluster with clients for tests."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int, **config: str) -> None:
        settings = {name.replace("_", "."): text for name, text in config.items()}
        new = NewTopic(topic, partitions, 1, config=settings)
        self.admin.create_topics([new])[topic].result(60)

    def produce(self, topic: str, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in numbers:
            producer.produce(
                topic, f"valor {number}".encode() if number % 10 else None, f"chave {number}".encode(),
                number % PARTITIONS, timestamp=1_700_000_000_000 + number, headers=[("n", str(number).encode())],
            )  # fmt: skip
        assert producer.flush(120) == 0

    def send(self, topic: str, rows: Sequence[tuple[str | None, bytes | None]]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, value in rows:
            producer.produce(topic, value, None if key is None else key.encode())
        assert producer.flush(120) == 0

    def read(self, topic: str, count: int) -> list[Any]:
        """Wait until a topic has `count` records, and return what was read."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "test", "auto.offset.reset": "earliest",
             "allow.auto.create.topics": False}
        )  # fmt: skip
        found: list[Any] = []
        try:
            wait_until(lambda: topic in consumer.list_topics(timeout=60).topics, f"{topic} comes into being")
            numbers = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in numbers])

            def enough() -> bool:
                found.extend(message for message in consumer.consume(1000, 0.5) if message.error() is None)
                return len(found) >= count

            wait_until(enough, f"{topic} has {count} records")
        finally:
            consumer.close()
        return found

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        (future,) = self.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
        future.result(60)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        (future,) = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        try:
            places = future.result(60).topic_partitions
        except KafkaException:
            return {}
        return {(each.topic, each.partition): each.offset for each in places if each.offset >= 0}

    def config(self, topic: str, name: str) -> str | None:
        (future,) = self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        value: str | None = future.result(60)[name].value
        return value

    def partitions(self, topic: str) -> int:
        topics = self.admin.list_topics(timeout=60).topics
        return len(topics[topic].partitions) if topic in topics else 0


class Stage:
    """A worker with the clusters and servers that its connectors read and write."""

    def __init__(self, here: Cluster, http: httpx.Client, folder: Path) -> None:
        self.here = here
        self.http = http
        self.folder = folder
        self.there: dict[str, Cluster] = {}
        self.search = self.mongo = ""
        self.mqtt: Mosquitto | None = None

    def run(self, name: str, **config: str) -> None:
        settings = {key.replace("__", "-").replace("_", "."): value for key, value in config.items()}
        answer = self.http.put(f"/connectors/{name}/config", json=settings)
        assert answer.status_code in (200, 201), answer.text


def start_mirrors(stage: Stage) -> None:
    """Mirror topics of our cluster under prefixed names, and topics of Apache Kafka under their own names."""
    for alias, there in stage.there.items():
        topic = f"pedidos-{alias}"
        there.create(topic, PARTITIONS, retention_ms="123456789", cleanup_policy="compact")
        there.produce(topic, range(RECORDS))
        there.commit("leitores", topic, dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
        there.commit("atrasados", topic, {0: 5})
        policy = "IdentityReplicationPolicy" if alias == "apache" else "DefaultReplicationPolicy"
        clusters = {
            "source_cluster_alias": alias, "source_cluster_bootstrap_servers": there.bootstrap,
            "target_cluster_alias": "aqui", "target_cluster_bootstrap_servers": stage.here.bootstrap,
            "replication_policy_class": MIRROR + policy, "topics": "pedidos.*", "replication_factor": "1",
        }  # fmt: skip
        stage.run(
            f"{alias}-source", connector_class=f"{MIRROR}MirrorSourceConnector", refresh_topics_interval_seconds="1",
            sync_topic_configs_interval_seconds="1", tasks_max="2" if alias == "porto" else "1", **clusters,
        )  # fmt: skip
        stage.run(
            f"{alias}-checkpoint", connector_class="MirrorCheckpoint", groups="leitores,atrasados",
            emit_checkpoints_interval_seconds="1", sync_group_offsets_enabled="true",
            sync_group_offsets_interval_seconds="1", **clusters,
        )  # fmt: skip
    stage.run("porto-heartbeat", connector_class="MirrorHeartbeat", **clusters | {"source_cluster_alias": "porto"})


def start_search(stage: Stage) -> None:
    """Write products (one without a numeric price, one deleted, one written twice), and start the search sinks."""
    schema = {
        "type": "struct", "optional": False,
        "fields": [
            {"field": "nome", "type": "string", "optional": False},
            {"field": "preco", "type": "double", "optional": True},
            {"field": "visto", "type": "int64", "optional": True, "name": "org.apache.kafka.connect.data.Timestamp"},
        ],
    }  # fmt: skip

    def product(name: str, price: float) -> bytes:
        payload = {"nome": name, "preco": price, "visto": 1_700_000_000_000}
        return json.dumps({"schema": schema, "payload": payload}).encode()

    rows: list[tuple[str, bytes | None]] = [(f"p{n}", product(f"produto {n}", n / 4)) for n in range(50)]
    stage.here.send("Produtos", [*rows, ("p7", None), ("p3", product("outro", 9.5))])
    stage.here.send("produtos-livres", [("a", b'{"preco": 1}'), ("b", b'{"preco": "caro"}'), ("c", b'{"preco": 2}')])
    letters = {
        "errors_tolerance": "all", "errors_deadletterqueue_topic_name": "recusados",
        "errors_deadletterqueue_context_headers_enable": "true", "errors_deadletterqueue_topic_replication_factor": "1",
    }  # fmt: skip
    stage.run(
        "search", connector_class="io.confluent.connect.elasticsearch.ElasticsearchSinkConnector", topics="Produtos",
        connection_url=stage.search, behavior_on_null_values="delete", batch_size="20", type_name="_doc",
    )  # fmt: skip
    stage.run(
        "search-free", connector_class="ElasticsearchSink", topics="produtos-livres", connection_url=stage.search,
        value_converter_schemas_enable="false", value_converter=JSON, **letters,
    )  # fmt: skip


def start_sensors(stage: Stage) -> None:
    """Copy MQTT messages of sensors into a topic, and from there into MongoDB."""
    if stage.mqtt is None:
        return
    stage.run(
        "mqtt", connector_class="io.confluent.connect.mqtt.MqttSourceConnector", mqtt_server_uri=stage.mqtt.url,
        mqtt_topics="casa/+", kafka_topic="leituras", mqtt_qos="1", mqtt_clean_session_enabled="false",
    )  # fmt: skip
    publish(stage.mqtt, *((f"casa/{n}", json.dumps({"n": n, "graus": n / 2})) for n in range(30)), retain=True)
    stage.run(
        "mongo", connector_class="com.mongodb.kafka.connect.MongoSinkConnector", connection_uri=stage.mongo,
        database="loja", topics="leituras", value_converter=JSON, value_converter_schemas_enable="false",
        document_id_strategy="com.mongodb.kafka.connect.sink.processor.id.strategy.FullKeyStrategy",
    )  # fmt: skip


def start_tables(stage: Stage) -> None:
    """Write sales as a table of Parquet files; one of them does not match the table's schema."""
    rows: list[tuple[str | None, bytes | None]] = [
        (str(n), json.dumps({"id": n, "loja": "Porto" if n % 2 else "Faro", "total": n / 4, "a mais": 1}).encode())
        for n in range(SALES)
    ]
    stage.here.create("vendas", 2)
    stage.here.send("vendas", [*rows, ("x", b'{"id": "nenhum", "loja": "Porto"}'), ("y", None)])
    stage.run(
        "table", connector_class="TableSink", topics="vendas", table_path=str(stage.folder / "vendas"),
        table_schema="id BIGINT, total DOUBLE, _offset BIGINT, _timestamp TIMESTAMP, loja STRING",
        table_partition_by="loja", value_converter=JSON, value_converter_schemas_enable="false",
        errors_tolerance="all", errors_deadletterqueue_topic_name="vendas-recusadas",
        errors_deadletterqueue_topic_replication_factor="1",
    )  # fmt: skip


STARTS: tuple[Callable[[Stage], None], ...] = (start_mirrors, start_search, start_sensors, start_tables)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, spark_address: str) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("more-connectors")
    with ExitStack() as stack:
        here, porto = stack.enter_context(Broker()), stack.enter_context(Broker())
        apache = stack.enter_context(ApacheKafka())
        settings = {"pessoa.spark.remote": spark_address, "key.converter": STRING, "pessoa.pace.ms": "500"}
        http = stack.enter_context(connect_worker(here.bootstrap_servers, folder / "home", settings))
        stage = Stage(Cluster(here.bootstrap_servers), http, folder)
        stage.there = {"porto": Cluster(porto.bootstrap_servers), "apache": Cluster(apache.bootstrap_servers)}
        stage.search, stage.mongo = stack.enter_context(opensearch()), stack.enter_context(mongo())
        if mosquitto_program() is not None:
            stage.mqtt = stack.enter_context(mosquitto())
        for start in STARTS:
            start(stage)
        yield stage


def _facts(message: Any) -> tuple[object, ...]:
    return message.partition(), message.key(), message.value(), message.headers(), message.timestamp()


@pytest.mark.apache
@pytest.mark.parametrize(("alias", "remote"), [("porto", "porto.pedidos-porto"), ("apache", "pedidos-apache")])
def test_a_mirrored_topic_has_the_records_partitions_and_configs_of_its_source_and_later_changes(
    stage: Stage, alias: str, remote: str
) -> None:
    here, there, topic = stage.here, stage.there[alias], f"pedidos-{alias}"
    copied, original = here.read(remote, RECORDS), there.read(topic, RECORDS)
    assert sorted(map(_facts, copied)) == sorted(map(_facts, original))
    assert here.partitions(remote) == PARTITIONS
    assert here.config(remote, "retention.ms") == "123456789"
    assert here.config(remote, "cleanup.policy") == "compact"
    there.admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result(60)
    change = ConfigEntry("retention.ms", "987654321", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    (done,) = there.admin.incremental_alter_configs([resource]).values()
    done.result(60)
    wait_until(lambda: here.partitions(remote) == PARTITIONS + 1, "the partition was added")
    wait_until(lambda: here.config(remote, "retention.ms") == "987654321", "the setting has followed")
    there.produce(topic, range(RECORDS, 2 * RECORDS))
    assert len({_facts(each)[1] for each in here.read(remote, 2 * RECORDS)}) == 2 * RECORDS


@pytest.mark.apache
@pytest.mark.parametrize(("alias", "remote"), [("porto", "porto.pedidos-porto"), ("apache", "pedidos-apache")])
def test_translated_group_offsets_never_skip_records_and_reach_the_end_with_the_source_group(
    stage: Stage, alias: str, remote: str
) -> None:
    here, there, topic = stage.here, stage.there[alias], f"pedidos-{alias}"
    ends = {number: there_end(there, topic, number) for number in range(PARTITIONS)}
    there.commit("leitores", topic, ends)
    expected = {(remote, number): there_end(here, remote, number) for number in range(PARTITIONS)}

    def translated() -> bool:
        found = here.committed("leitores")
        return {place: found.get(place) for place in expected} == expected

    wait_until(translated, "a group that has read everything there has read everything here")
    first = here.committed("atrasados").get((remote, 0))
    assert first is None or 0 <= first <= 6
    records = {each.key(): each.value() for each in here.read(f"{alias}.checkpoints.internal", PARTITIONS)}
    checkpoints = [Checkpoint.read(key, value) for key, value in records.items()]
    assert {each.group for each in checkpoints} <= {"leitores", "atrasados"}
    assert {each.topic for each in checkpoints} == {remote}


def there_end(cluster: Cluster, topic: str, number: int) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=60)[1])
    finally:
        consumer.close()


@pytest.mark.apache
def test_mirror_heartbeats_name_the_source_and_the_target_cluster(stage: Stage) -> None:
    wait_for_states(stage.http, "porto-heartbeat", "RUNNING", "RUNNING")
    message = stage.here.read("heartbeats", 2)[0]
    beat = Heartbeat.read(message.key(), message.value())
    assert (beat.source, beat.target) == ("porto", "aqui")


@pytest.mark.apache
def test_connect_mirror_maker_copies_the_topics_named_in_its_properties_file(stage: Stage, spark_address: str) -> None:
    there = stage.there["porto"]
    there.create("contos", 2)
    there.send("contos", [(str(n), b"era uma vez") for n in range(40)])
    file = stage.folder / "mm2.properties"
    settings = {
        "clusters": "faro, aqui", "faro.bootstrap.servers": there.bootstrap, "faro->aqui.enabled": "true",
        "aqui.bootstrap.servers": stage.here.bootstrap, "faro->aqui.topics": "contos", "replication.factor": "1",
        "pessoa.home": str(stage.folder / "mm2"), "pessoa.spark.remote": spark_address,
    }  # fmt: skip
    file.write_text("".join(f"{name} = {text}\n" for name, text in settings.items()), encoding="utf-8")
    command = [sys.executable, "-m", "pessoa.cli.mirror_maker", str(file)]
    with LoggedProcess(command, stage.folder / "mm2.output", name="connect-mirror-maker") as process:
        assert {each.value() for each in stage.here.read("faro.contos", 40)} == {b"era uma vez"}
        process.stop()


@pytest.mark.apache
def test_the_elasticsearch_sink_indexes_records_by_key_and_deletes_documents_on_tombstones(stage: Stage) -> None:
    def documents() -> dict[str, Any]:
        httpx.post(f"{stage.search}/produtos/_refresh", timeout=60)
        answer = httpx.get(f"{stage.search}/produtos/_search?size=1000&version=true", timeout=60).json()
        return {each["_id"]: each for each in answer.get("hits", {}).get("hits", ())}

    def done() -> bool:
        found = documents()
        return len(found) == 49 and found["p3"]["_source"]["nome"] == "outro"

    wait_until(done, "all products are there, without the one that was deleted")
    found = documents()
    assert "p7" not in found
    assert found["p3"]["_version"] == 51
    assert found["p4"]["_source"] == {"nome": "produto 4", "preco": 1.0, "visto": 1_700_000_000_000}
    mapping = httpx.get(f"{stage.search}/produtos/_mapping", timeout=60).json()["produtos"]["mappings"]["properties"]
    assert {name: each["type"] for name, each in mapping.items()} == {
        "nome": "text",
        "preco": "double",
        "visto": "date",
    }


@pytest.mark.apache
def test_a_document_that_opensearch_refuses_is_sent_to_the_dead_letter_topic(stage: Stage) -> None:
    (letter,) = stage.here.read("recusados", 1)
    assert letter.key() == b"b"
    reason = dict(letter.headers())["__connect.errors.exception.message"].decode()
    assert "mapper_parsing_exception" in reason
    httpx.post(f"{stage.search}/produtos-livres/_refresh", timeout=60)
    assert httpx.get(f"{stage.search}/produtos-livres/_count", timeout=60).json()["count"] == 2


@pytest.mark.apache
def test_mqtt_messages_are_copied_through_a_topic_into_mongodb_documents(stage: Stage) -> None:
    if stage.mqtt is None:
        pytest.skip("there is no mosquitto on this machine")
    from pymongo import MongoClient

    messages = {each.key(): json.loads(each.value()) for each in stage.here.read("leituras", 30)}
    assert messages[b"casa/7"] == {"n": 7, "graus": 3.5}
    publish(stage.mqtt, ("casa/7", '{"n": 7, "graus": 40}'))
    with MongoClient[dict[str, Any]](stage.mongo) as client:

        def found() -> dict[str, Any]:
            return {each["_id"]: each for each in client["loja"]["leituras"].find()}

        wait_until(lambda: len(found()) == 30 and found()["casa/7"]["graus"] == 40, "all readings are documents")
        assert found()["casa/8"] == {"_id": "casa/8", "n": 8, "graus": 4.0}


@pytest.mark.apache
def test_the_table_sink_writes_records_as_parquet_rows_and_sends_wrong_ones_to_the_dead_letter_topic(
    stage: Stage, spark_address: str
) -> None:
    session = session_at(spark_address)
    folder = str(stage.folder / "vendas")

    def rows() -> list[Any]:
        if not list(Path(folder).glob("_spark_metadata/*")):
            return []
        return list(session.read.parquet(folder).collect())

    wait_until(lambda: len(rows()) >= SALES, "all sales are rows")
    found = {each["id"]: each for each in rows()}
    assert sorted(found) == list(range(SALES))
    assert {(each["loja"], each["total"]) for each in rows() if each["id"] == 7} == {("Porto", 1.75)}
    assert found[7]["_timestamp"] is not None
    assert {path.name for path in Path(folder).iterdir()} >= {"loja=Porto", "loja=Faro"}
    assert [each.key() for each in stage.here.read("vendas-recusadas", 1)] == [b"x"]
    session.stop()


@pytest.mark.apache
def test_connectors_to_other_servers_are_listed_and_validation_names_wrong_mirror_keys(stage: Stage) -> None:
    listed = {each["class"]: each["type"] for each in stage.http.get("/connector-plugins").json()}
    assert listed[f"{MIRROR}MirrorSourceConnector"] == "source"
    assert listed["io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"] == "sink"
    assert listed["com.mongodb.kafka.connect.MongoSinkConnector"] == "sink"
    assert listed["io.confluent.connect.mqtt.MqttSourceConnector"] == "source"
    assert listed["io.debezium.connector.postgresql.PostgresConnector"] == "source"
    settings = {"connector.class": f"{MIRROR}MirrorSourceConnector", "name": "x", "source.cluster.alias": "a",
                "target.cluster.alias": "a", "target.cluster.bootstrap.servers": "h:1"}  # fmt: skip
    answer = stage.http.put("/connector-plugins/MirrorSourceConnector/config/validate", json=settings).json()
    wrong = {each["value"]["name"] for each in answer["configs"] if each["value"]["errors"]}
    assert wrong == {"source.cluster.alias", "target.cluster.alias", "source.cluster.bootstrap.servers"}
