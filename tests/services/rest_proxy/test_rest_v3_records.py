"""POST …/records and …/records:batch: a stream of records, each with its own report."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from pessoa.testing import Broker
from tests.services.rest_proxy.stage import Rest, proxy_in_front_of


def reports(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def post(rest: Rest, topic: str, body: bytes | Iterator[bytes]) -> Any:
    return rest.http.post(
        f"{rest.cluster}/topics/{topic}/records", content=body, headers={"content-type": "application/json"}
    )


def test_a_record_with_key_value_headers_and_timestamp_is_produced_as_sent(rest: Rest) -> None:
    topic = rest.topic(2)
    record = {
        "partition_id": 1,
        "headers": [{"name": "h", "value": base64.b64encode(b"v").decode()}, {"name": "none"}],
        "key": {"type": "BINARY", "data": base64.b64encode(b"key").decode()},
        "value": {"type": "JSON", "data": {"a": 1}},
        "timestamp": "2021-02-05T19:14:42Z",
    }
    answer = rest.http.post(f"{rest.cluster}/topics/{topic}/records", json=record)
    assert answer.status_code == 200
    assert answer.json() == {
        "error_code": 200,
        "cluster_id": rest.cluster.rpartition("/")[2],
        "topic_name": topic,
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2021-02-05T19:14:42.000Z",
        "key": {"size": 3, "type": "BINARY"},
        "value": {"size": 7, "type": "JSON"},
    }
    consumer = KafkaConsumer({"bootstrap.servers": rest.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 1, 0)])
    [message] = consumer.consume(1, 30)
    consumer.close()
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"key", b'{"a":1}', 1612552482000)
    assert message.headers() == [("h", b"v"), ("none", None)]


def test_records_with_a_string_with_null_and_without_key_and_value_are_written(rest: Rest) -> None:
    topic = rest.topic()
    body = b'{"value":{"type":"STRING","data":"caf\xc3\xa9"}}{"value":{"type":"JSON","data":null}} {}'
    first, second, third = reports(post(rest, topic, body))
    assert first["value"] == {"size": 5, "type": "STRING"}
    assert "key" not in first
    assert second["value"] == {"size": 0, "type": "JSON"}
    assert (third["error_code"], third["offset"]) == (200, 2)


def test_records_in_one_body_are_reported_in_order(rest: Rest) -> None:
    topic = rest.topic()
    body = b"\n".join(b'{"value":{"type":"JSON","data":%d}}' % number for number in range(500))
    assert [each["offset"] for each in reports(post(rest, topic, body))] == list(range(500))


def test_an_invalid_record_fails_and_the_other_records_of_the_body_are_written(rest: Rest) -> None:
    topic = rest.topic()
    good = b'{"value":{"type":"JSON","data":1}}'
    wrong = [
        b'{"value":{"type":"BINARY","data":"not base64!"}}',
        b'{"value":{"type":"XML","data":1}}',
        b'{"value":{"type":"JSON","data":1,"schema_id":1}}',
        b'{"value":{"type":"AVRO","data":1}}',
        b'{"value":{"schema":"x","data":1}}',
        b'{"value":{"subject":"s","subject_name_strategy":"TOPIC_NAME","data":1}}',
        b'{"timestamp":"never"}',
        b'{"value":}',
    ]
    found = reports(post(rest, topic, good.join([b"", *wrong, b""])))
    assert [each["error_code"] for each in found] == [200, *[400, 200] * len(wrong)]
    assert [each["offset"] for each in found if each["error_code"] == 200] == list(range(len(wrong) + 1))


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (b'{"partition_id":7}', 40402),
        (b'{"partition_id":-1}', 40402),
        (b'{"colour":"red"}', 422),
        (b'{"value":{"type":"JSON","data":"' + b"x" * 2_000_000 + b'"}}', 413),
    ],
)
def test_a_record_that_is_not_written_is_reported_with_its_error_code(rest: Rest, record: bytes, code: int) -> None:
    topic = rest.topic()
    answer = post(rest, topic, record)
    assert answer.status_code == 200
    assert [each["error_code"] for each in reports(answer)] == [code]


def test_each_record_is_reported_while_the_request_body_is_still_open(rest: Rest) -> None:
    topic = rest.topic()
    where = urlsplit(rest.url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=60) as connection:
        path = f"{rest.cluster}/topics/{topic}/records"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head.encode())
        stream = connection.makefile("rb")
        for number in range(3):
            record = b'{"value":{"type":"JSON","data":%d}}' % number
            # A record may be split over two chunks.
            for part in (record[:10], record[10:]):
                connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            while not (line := stream.readline()).startswith(b"{"):
                assert line, "the connection ended"
            assert json.loads(line)["offset"] == number
        connection.sendall(b"0\r\n\r\n")
        assert stream.read(7).endswith(b"0\r\n\r\n")


def test_a_record_before_an_incomplete_or_malformed_one_is_written(rest: Rest) -> None:
    topic = rest.topic()
    whole = b'{"value":{"type":"JSON","data":1}}'
    first, second = reports(post(rest, topic, whole + whole[:10]))
    assert (first["error_code"], second["error_code"]) == (200, 400)
    first, second = reports(post(rest, topic, whole + b"garbage"))
    assert (first["error_code"], second["error_code"]) == (200, 400)
    assert rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 2


def test_a_complete_record_is_written_when_the_connection_breaks_within_the_next_one(rest: Rest) -> None:
    topic = rest.topic()
    where = urlsplit(rest.url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=60) as connection:
        path = f"{rest.cluster}/topics/{topic}/records"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode() + b'{"value":{"type":"JSON","data":1}}{"val')
        assert b"200 OK" in connection.recv(100)

    def end_offset() -> int:
        found: int = rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"]
        return found

    rest.until(lambda: end_offset() == 1, "the whole record is written")


@pytest.mark.parametrize(("body", "expected"), [(b"", (422, 42206)), (b" ", (422, 42206)), (b"nonsense", (400, 400))])
def test_a_body_without_a_valid_record_is_refused(rest: Rest, body: bytes, expected: tuple[int, int]) -> None:
    answer = post(rest, rest.topic(), body)
    assert (answer.status_code, answer.json()["error_code"]) == expected


def test_a_stream_to_an_unknown_topic_gets_40403() -> None:
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        proxy_in_front_of(broker.bootstrap_servers) as rest,
    ):
        answer = post(rest, "nowhere", b"{}")
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40403)


def test_a_stream_that_is_open_too_long_is_closed_with_408() -> None:
    with Broker() as broker:
        proxy = proxy_in_front_of(broker.bootstrap_servers, pessoa_v3_produce_stream_timeout_ms="300")
        with proxy as rest:
            topic = rest.topic()
            where = urlsplit(rest.url)
            with socket.create_connection((where.hostname or "", where.port or 0), timeout=60) as connection:
                path = f"{rest.cluster}/topics/{topic}/records"
                head = (
                    f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
                )
                connection.sendall(head.encode() + b"{}")
                said = b""
                while b"408" not in said:
                    more = connection.recv(1000)
                    assert more, said
                    said += more


# Batches.


def batch(rest: Rest, topic: str, *entries: dict[str, Any]) -> Any:
    return rest.http.post(f"{rest.cluster}/topics/{topic}/records:batch", json={"entries": list(entries)})


def test_the_response_to_a_batch_lists_written_and_failed_entries(rest: Rest) -> None:
    topic = rest.topic()
    answer = batch(
        rest,
        topic,
        {"id": "a", "value": {"type": "JSON", "data": 1}},
        {"id": "b", "value": {"type": "BINARY", "data": "no!"}},
        {"id": "c", "partition_id": 9},
        {"id": "d", "key": {"type": "STRING", "data": "k"}},
    )
    assert answer.status_code == 207
    found = answer.json()
    assert [(each["id"], each["offset"]) for each in found["successes"]] == [("a", 0), ("d", 1)]
    assert [(each["id"], each["error_code"]) for each in found["failures"]] == [("b", 400), ("c", 40402)]


@pytest.mark.parametrize("ids", [[], ["a", "a"], [str(number) for number in range(11)]])
def test_a_batch_without_entries_with_duplicate_ids_or_with_too_many_entries_is_refused(
    rest: Rest, ids: list[str]
) -> None:
    topic = rest.topic()
    answer = batch(rest, topic, *({"id": each, "value": {"type": "JSON", "data": 1}} for each in ids))
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42208)
    assert rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 0
