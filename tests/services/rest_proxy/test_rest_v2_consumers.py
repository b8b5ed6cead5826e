"""/consumers: creating, reading, committing with and deleting consumer instances over HTTP."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pessoa.testing import Broker
from tests.services.rest_proxy.stage import PATIENCE, V2, V2_BINARY, V2_JSON, Consumer, Rest, proxy_in_front_of

GONE = {"error_code": 40403, "message": "Consumer instance not found."}


def values(records: list[dict[str, Any]]) -> list[Any]:
    return [each["value"] for each in records]


def on_partitions(topic: str, *numbers: int) -> dict[str, Any]:
    return {"partitions": [{"topic": topic, "partition": number} for number in numbers]}


@pytest.fixture
def reader(rest: Rest) -> Iterator[Consumer]:
    """An instance that starts at the beginning and reads JSON."""
    consumer = rest.consumer()
    yield consumer
    consumer.delete()


# Creation.


def test_creating_an_instance_returns_its_name_and_base_uri(rest: Rest) -> None:
    group = f"group-{uuid4()}"
    answer = rest.send("POST", f"/consumers/{group}", {"name": "one", "format": "json"})
    uri = f"{rest.url}/consumers/{group}/instances/one"
    assert (answer.status_code, answer.json()) == (200, {"instance_id": "one", "base_uri": uri})
    assert rest.send("DELETE", uri).status_code == 204


def test_the_base_uri_of_an_instance_has_the_host_of_the_request(rest: Rest) -> None:
    answer = rest.send("POST", f"/consumers/group-{uuid4()}", host="proxy.example:8082")
    assert answer.json()["base_uri"].startswith("http://proxy.example:8082/consumers/group-")
    assert answer.json()["instance_id"].startswith("rest-consumer-")


def test_creating_an_instance_prefers_id_to_name_and_accepts_an_empty_body(rest: Rest) -> None:
    path = f"/consumers/group-{uuid4()}"
    assert rest.send("POST", path, {"id": "a", "name": "b"}).json()["instance_id"] == "a"
    assert rest.send("POST", path).status_code == 200
    assert rest.send("POST", path, b"").status_code == 200


def test_a_second_instance_with_the_same_name_gets_40902_until_the_first_is_deleted(rest: Rest) -> None:
    path = f"/consumers/group-{uuid4()}"
    uri = rest.send("POST", path, {"name": "one"}).json()["base_uri"]
    answer = rest.send("POST", path, {"name": "one"})
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40902)
    assert rest.send("DELETE", uri).status_code == 204
    assert rest.send("POST", path, {"name": "one"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"format": "xml"}, 422, 422),
        ({"fetch.min.bytes": 10_000_001}, 422, 40001),
        ({"fetch.min.bytes": -2}, 422, 40001),
        ({"auto.offset.reset": "sometimes"}, 422, 42204),
        ({"colour": "blue"}, 422, 422),
        ({"fetch.min.bytes": "many"}, 400, 400),
        (b"{", 400, 400),
    ],
)
def test_creating_an_instance_with_an_invalid_body_is_refused(rest: Rest, body: Any, status: int, code: int) -> None:
    answer = rest.send("POST", f"/consumers/group-{uuid4()}", body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"format": "JSON", "auto.commit.enable": "false"},
        {"auto.commit.enable": True, "responseMinBytes": 5, "requestWaitMs": "100"},
        {"auto.offset.reset": "none", "consumer.request.timeout.ms": 10, "fetch.min.bytes": "7"},
    ],
)
def test_creating_an_instance_accepts_every_spelling_of_its_settings(rest: Rest, body: dict[str, Any]) -> None:
    assert rest.consumer(**body).delete().status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "", None),
        ("POST", "/subscription", {"topics": ["t"]}),
        ("GET", "/subscription", None),
        ("DELETE", "/subscription", None),
        ("POST", "/assignments", {"partitions": []}),
        ("GET", "/assignments", None),
        ("POST", "/positions", {"offsets": []}),
        ("POST", "/positions/beginning", {"partitions": []}),
        ("POST", "/positions/end", {"partitions": []}),
        ("GET", "/records", None),
        ("POST", "/offsets", None),
        ("GET", "/offsets", {"partitions": []}),
    ],
)
def test_every_request_to_an_unknown_instance_gets_40403(rest: Rest, method: str, path: str, body: Any) -> None:
    answer = rest.send(method, f"/consumers/unknown/instances/nothing{path}", body)
    assert (answer.status_code, answer.json()) == (404, GONE)


# Subscriptions and assignments.


def test_a_subscription_can_be_read_and_deleted(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    assert reader.get("/subscription").json() == {"topics": []}
    assert reader.post("/subscription", {"topics": [topic]}).status_code == 204
    assert reader.get("/subscription").json() == {"topics": [topic]}
    assert reader.delete("/subscription").status_code == 204
    assert reader.get("/subscription").json() == {"topics": []}


def test_a_pattern_subscribes_to_the_topics_whose_whole_name_matches(rest: Rest, reader: Consumer) -> None:
    stem = rest.topic()
    for suffix in ("-a", "-b", "-bb"):
        rest.http.post(f"{rest.cluster}/topics", json={"topic_name": stem + suffix, "partitions_count": 1})
        rest.wait_for_topic(stem + suffix)
        rest.produce(stem + suffix, suffix)
    assert reader.post("/subscription", {"topic_pattern": f"{stem}-[ab]"}).status_code == 204
    assert sorted(values(reader.read(2))) == ["-a", "-b"]
    assert reader.get("/subscription").json() == {"topics": [f"{stem}-a", f"{stem}-b"]}


@pytest.mark.parametrize(
    "body", [{}, {"topics": []}, {"topic_pattern": "("}, {"topics": ["no good name"]}, {"topc": 1}]
)
def test_an_invalid_subscription_gets_422(reader: Consumer, body: dict[str, Any]) -> None:
    answer = reader.post("/subscription", body)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 422)


def test_partitions_can_be_assigned_manually(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic(3)
    rest.send("POST", f"/topics/{topic}/partitions/1", {"records": [{"value": "one"}]}, V2_JSON)
    rest.send("POST", f"/topics/{topic}/partitions/2", {"records": [{"value": "two"}]}, V2_JSON)
    assert reader.post("/assignments", on_partitions(topic, 0, 2)).status_code == 204
    assert reader.get("/assignments").json() == on_partitions(topic, 0, 2)
    assert values(reader.read(1)) == ["two"]


def test_subscribing_and_assigning_exclude_each_other(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    reader.post("/subscription", {"topics": [topic]})
    answer = reader.post("/assignments", on_partitions(topic, 0))
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40903)
    assert answer.json()["message"].startswith("Illegal state: ")
    reader.delete("/subscription")
    assert reader.post("/assignments", on_partitions(topic, 0)).status_code == 204
    answer = reader.post("/subscription", {"topics": [topic]})
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40903)


def test_two_instances_of_a_group_share_the_partitions(rest: Rest) -> None:
    topic = rest.topic(4)
    group = f"group-{uuid4().hex[:8]}"
    given = {"format": "json", "auto.offset.reset": "earliest", "fetch.min.bytes": 0}
    both = [
        Consumer(rest, group, rest.send("POST", f"/consumers/{group}", {**given, "name": name}).json())
        for name in ("a", "b")
    ]
    for each in both:
        each.post("/subscription", {"topics": [topic]})
    parts: list[list[dict[str, Any]]] = []

    def are_shared() -> bool:
        parts.clear()
        for each in both:
            each.get("/records?timeout=100", accept=V2_JSON)
            parts.append(each.get("/assignments").json()["partitions"])
        return [len(part) for part in parts] == [2, 2]

    rest.until(are_shared, "each has two")
    assert sorted(each["partition"] for part in parts for each in part) == [0, 1, 2, 3]
    for each in both:
        each.delete()


# Reading.


def test_records_come_with_topic_key_value_partition_and_offset(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    body = {"records": [{"key": {"id": 1}, "value": {"a": [1.5, None, "é"]}}, {"value": None}]}
    rest.send("POST", f"/topics/{topic}", body, V2_JSON)
    reader.post("/subscription", {"topics": [topic]})
    assert reader.read(2) == [
        {"topic": topic, "key": {"id": 1}, "value": {"a": [1.5, None, "é"]}, "partition": 0, "offset": 0},
        {"topic": topic, "key": None, "value": None, "partition": 0, "offset": 1},
    ]


def test_an_instance_with_the_format_binary_returns_base64(rest: Rest) -> None:
    topic = rest.topic()
    data = base64.b64encode(bytes(range(256))).decode()
    rest.send("POST", f"/topics/{topic}", {"records": [{"key": "AA==", "value": data}]}, V2_BINARY)
    consumer = rest.consumer(format="binary")
    consumer.post("/subscription", {"topics": [topic]})
    [record] = consumer.read(1, accept=V2_BINARY)
    assert (record["key"], record["value"]) == ("AA==", data)
    consumer.delete()


def test_a_read_in_a_format_other_than_the_instances_gets_40601(rest: Rest, reader: Consumer) -> None:
    for accept in (V2_BINARY, V2, "*/*", "application/vnd.kafka.avro.v2+json"):
        answer = reader.get("/records", accept=accept)
        assert (answer.status_code, answer.json()["error_code"]) == (406, 40601)


def test_a_read_of_an_instance_with_fetch_min_bytes_minus_1_waits_for_its_whole_timeout(rest: Rest) -> None:
    topic = rest.topic()
    rest.produce(topic, 1)
    consumer = rest.consumer(**{"fetch.min.bytes": -1, "consumer.request.timeout.ms": 700})
    consumer.post("/assignments", on_partitions(topic, 0))
    started = time.monotonic()
    assert values(consumer.read(1)) == [1]
    assert time.monotonic() - started >= 0.69
    started = time.monotonic()
    assert consumer.get("/records?timeout=100", accept=V2_JSON).json() == []
    assert time.monotonic() - started >= 0.09
    consumer.delete()


def test_max_bytes_limits_a_read_and_no_record_is_lost(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    rest.produce(topic, *("x" * 98 for _ in range(10)))
    reader.post("/assignments", on_partitions(topic, 0))
    seen: list[int] = []

    def are_all_read() -> bool:
        records = reader.get("/records?max_bytes=250&timeout=500", accept=V2_JSON).json()
        assert len(records) <= 2
        seen.extend(each["offset"] for each in records)
        return len(seen) >= 10

    rest.until(are_all_read, "all records come")
    assert seen == list(range(10))
    # A record that is larger than max_bytes is not returned, and not skipped.
    rest.produce(topic, "x" * 1000)
    assert reader.get("/records?max_bytes=250&timeout=500", accept=V2_JSON).json() == []
    assert [each["offset"] for each in reader.read(1)] == [10]


def test_reading_a_record_that_is_not_json_gets_40801_and_a_seek_skips_it(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    producer = Producer({"bootstrap.servers": rest.bootstrap_servers})
    for value in (b"{broken", b'"fine"'):
        producer.produce(topic, value, partition=0)
    producer.flush()
    reader.post("/assignments", on_partitions(topic, 0))
    answers = [reader.get("/records", accept=V2_JSON)]

    def is_refused() -> bool:
        answers.append(reader.get("/records", accept=V2_JSON))
        return answers[-1].status_code != 200

    if answers[0].status_code == 200:
        rest.until(is_refused, "the broken record comes")
    answer = answers[-1]
    assert (answer.status_code, answer.json()["error_code"]) == (408, 40801)
    reader.post("/positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
    assert values(reader.read(1)) == ["fine"]


def test_concurrent_reads_of_one_instance_return_each_record_once(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    rest.produce(topic, *range(300))
    reader.post("/assignments", on_partitions(topic, 0))
    seen: list[int] = []
    with ThreadPoolExecutor(4) as threads:

        def are_all_read() -> bool:
            answers = threads.map(lambda _: reader.get("/records?max_bytes=50&timeout=300", accept=V2_JSON), range(4))
            for answer in answers:
                assert answer.status_code == 200, answer.text
                seen.extend(values(answer.json()))
            return len(seen) >= 300

        rest.until(are_all_read, "all records come")
    assert sorted(seen) == list(range(300))


# Positions and offsets.


def test_positions_are_set_to_an_offset_to_the_beginning_and_to_the_end(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    rest.produce(topic, *range(5))
    reader.post("/assignments", on_partitions(topic, 0))
    assert values(reader.read(5)) == [0, 1, 2, 3, 4]
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 3}]}
    assert reader.post("/positions", body).status_code == 204
    assert values(reader.read(2)) == [3, 4]
    assert reader.post("/positions/beginning", on_partitions(topic, 0)).status_code == 204
    assert values(reader.read(5)) == [0, 1, 2, 3, 4]
    reader.post("/positions/beginning", on_partitions(topic, 0))
    assert reader.post("/positions/end", on_partitions(topic, 0)).status_code == 204
    rest.produce(topic, "new")
    assert values(reader.read(1)) == ["new"]


def test_positions_are_set_by_timestamp(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    for moment, value in (("2020-01-01T00:00:00Z", "old"), ("2021-01-01T00:00:00Z", "newer")):
        record = {"value": {"type": "JSON", "data": value}, "timestamp": moment}
        assert rest.http.post(f"{rest.cluster}/topics/{topic}/records", json=record).json()["error_code"] == 200
    reader.post("/assignments", on_partitions(topic, 0))
    body = {"timestamps": [{"topic": topic, "partition": 0, "timestamp": "2020-06-01T00:00:00Z"}]}
    assert reader.post("/positions", body).status_code == 204
    assert values(reader.read(1)) == ["newer"]
    wrong = {"timestamps": [{"topic": topic, "partition": 0, "timestamp": "yesterday"}]}
    assert reader.post("/positions", wrong).json()["error_code"] == 400


def test_seeking_in_an_unassigned_partition_gets_40903(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic()
    for path, body in (
        ("/positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 0}]}),
        ("/positions/beginning", on_partitions(topic, 0)),
        ("/positions/end", on_partitions(topic, 0)),
    ):
        answer = reader.post(path, body)
        assert (answer.status_code, answer.json()["error_code"]) == (409, 40903)


def test_a_commit_without_a_body_commits_only_the_records_that_were_read(rest: Rest) -> None:
    topic = rest.topic()
    rest.produce(topic, *("x" * 98 for _ in range(5)))
    consumer = rest.consumer(**{"auto.commit.enable": "false"})
    consumer.post("/assignments", on_partitions(topic, 0))
    # All five records are polled, and three are returned.
    read = [each["offset"] for each in consumer.read(1, query="?max_bytes=350&timeout=1000")]
    assert read == [0, 1, 2]
    assert consumer.post("/offsets").json() == []
    answer = consumer.rest.http.request("GET", f"{consumer.uri}/offsets", json=on_partitions(topic, 0))
    assert answer.json() == {"offsets": [{"topic": topic, "partition": 0, "offset": 3, "metadata": ""}]}
    consumer.delete()


def test_a_commit_with_a_body_commits_the_offset_after_the_given_one(rest: Rest, reader: Consumer) -> None:
    topic = rest.topic(2)
    body = {"offsets": [{"topic": topic, "partition": 1, "offset": 20, "metadata": "note"}]}
    answer = reader.post("/offsets", body)
    assert (answer.status_code, answer.json()) == (200, [])
    found = rest.http.request("GET", f"{reader.uri}/offsets", json=on_partitions(topic, 0, 1)).json()
    # Partition 0 has no commit, and is left out.
    assert found == {"offsets": [{"topic": topic, "partition": 1, "offset": 21, "metadata": "note"}]}


def test_reading_committed_offsets_without_a_body_gets_40402(reader: Consumer) -> None:
    answer = reader.get("/offsets")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40402)


def test_an_instance_with_auto_commit_commits_when_it_is_deleted(rest: Rest) -> None:
    topic = rest.topic()
    rest.produce(topic, 1, 2, 3)
    consumer = rest.consumer()
    consumer.post("/subscription", {"topics": [topic]})
    consumer.read(3)
    consumer.delete()
    other = KafkaConsumer({"bootstrap.servers": rest.bootstrap_servers, "group.id": consumer.group})
    [place] = other.committed([TopicPartition(topic, 0)], timeout=PATIENCE)
    other.close()
    assert place.offset == 3


# The end of an instance.


def test_a_deleted_instance_leaves_its_group_at_once(rest: Rest) -> None:
    topic = rest.topic()
    rest.produce(topic, 1)
    consumer = rest.consumer()
    consumer.post("/subscription", {"topics": [topic]})
    consumer.read(1)
    assert consumer.delete().status_code == 204
    assert consumer.get("/records", accept=V2_JSON).json() == GONE
    admin = AdminClient({"bootstrap.servers": rest.bootstrap_servers})
    assert admin.describe_consumer_groups([consumer.group])[consumer.group].result().members == []


# Longer than the pause between two requests of an active client.
IDLE_S = 5


def test_an_idle_instance_expires_and_leaves_its_group() -> None:
    idle = {"consumer_instance_timeout_ms": str(IDLE_S * 1000)}
    with Broker() as broker, proxy_in_front_of(broker.bootstrap_servers, **idle) as rest:
        topic = rest.topic()
        rest.produce(topic, 1)
        consumer = rest.consumer()
        consumer.post("/subscription", {"topics": [topic]})
        consumer.read(1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        deadline = time.monotonic() + PATIENCE
        while admin.describe_consumer_groups([consumer.group])[consumer.group].result().members:
            assert time.monotonic() < deadline, "the member did not leave"
        assert consumer.get("/subscription").json() == GONE


def test_an_instance_with_regular_requests_does_not_expire() -> None:
    idle = {"consumer_instance_timeout_ms": str(IDLE_S * 1000)}
    with Broker() as broker, proxy_in_front_of(broker.bootstrap_servers, **idle) as rest:
        consumer = rest.consumer()
        until = time.monotonic() + IDLE_S + 2
        while time.monotonic() < until:
            assert consumer.get("/records?timeout=300", accept=V2_JSON).status_code == 200


def test_consumer_instances_leave_their_groups_when_the_proxy_stops() -> None:
    with Broker() as broker:
        with proxy_in_front_of(broker.bootstrap_servers) as rest:
            topic = rest.topic()
            rest.produce(topic, 1)
            consumer = rest.consumer()
            consumer.post("/subscription", {"topics": [topic]})
            consumer.read(1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert admin.describe_consumer_groups([consumer.group])[consumer.group].result().members == []


def test_more_consumer_instances_than_consumer_threads_are_all_served() -> None:
    with Broker() as broker, proxy_in_front_of(broker.bootstrap_servers, consumer_threads="2") as rest:
        topic = rest.topic()
        rest.produce(topic, 1)
        consumers = [rest.consumer() for _ in range(5)]
        for each in consumers:
            each.post("/assignments", on_partitions(topic, 0))
        assert [values(each.read(1)) for each in consumers] == [[1]] * 5
