"""How the byte limits of a fetch apply to partitions whose batches are larger than the limits."""

from __future__ import annotations

import socket

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.records.batch import batches
from pessoa.testing import Broker
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from pessoa.wire.frames import request_frame

VERSION = 11
TIMEOUT_S = 60


def fetch(broker: Broker, topic: str, max_bytes: int, partition_max_bytes: int) -> FetchResponse:
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=partition_max_bytes) for index in range(3)
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[FetchTopic(topic=topic, partitions=partitions)]
    )
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as connection:
        connection.sendall(b"".join(request_frame(request, VERSION, 1, None)))
        stream = connection.makefile("rb")
        size = int.from_bytes(stream.read(4), "big")
        # Version 11 has the response header of a correlation id alone.
        return FetchResponse.decode(stream.read(size)[4:], VERSION)


def test_only_the_first_partition_gives_a_batch_that_is_larger_than_the_limit() -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition in range(3):
            producer.produce("t", b"x" * 5_000, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0

        def counts(max_bytes: int, partition_max_bytes: int) -> list[int]:
            [topic] = fetch(broker, "t", max_bytes, partition_max_bytes).responses
            found = [bytes(one.records or b"") for one in topic.partitions]
            counted = [len(list(batches(data))) for data in found]
            # Nothing but whole batches.
            assert [sum(batch.size for batch in batches(data)) for data in found] == [len(data) for data in found]
            return counted

        assert counts(1_000_000, 1_000) == [1, 0, 0]
        assert counts(1, 1_000_000) == [1, 0, 0]
        assert counts(1_000_000, 1_000_000) == [1, 1, 1]
