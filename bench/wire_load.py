"""A load of Produce requests that were encoded beforehand, so that the client needs hardly any CPU time.

The same bytes are sent again and again. The broker stamps the base offset of a batch, which the CRC does not cover, and
the producer is not idempotent, so each request appends another batch.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from bench.apache import HOST, NO_SETTINGS
from pessoa.client.blocking_connection import Connection
from pessoa.records.builder import build_batch
from pessoa.records.record import Record
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.frames import request_frame

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

# The last version that names topics (later ones have topic ids).
VERSION = 12
TIMEOUT_S = 60.0
RETRY_S = 0.05


class ProduceLoad(Connection):
    """A connection that sends one request repeatedly, after a login if its settings (under Java's names) demand one."""

    def __init__(self, port: int, request: bytes, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        super().__init__(HOST, port, "bench", settings, time.monotonic() + TIMEOUT_S)
        self._request = request
        self._socket.settimeout(TIMEOUT_S)
        self._answer_bytes = self._exchange_one()

    def _exchange_one(self) -> int:
        """Return the size of a response, which all responses have, since only their offsets differ. Retry until all
        partitions have leaders: Apache Kafka answers CreateTopics before that."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            self._socket.sendall(self._request)
            size: int = struct.unpack(">i", _read_exactly(self._socket, 4))[0]
            errors = _errors(_read_exactly(self._socket, size))
            if not errors:
                return 4 + size
            if time.monotonic() > deadline:
                raise SystemExit(f"the produce was refused with errors {errors}")
            time.sleep(RETRY_S)

    def requests_per_s(self, in_flight: int, count: int) -> float:
        connection, one, answer_bytes = self._socket, self._request, self._answer_bytes
        started = time.perf_counter()
        connection.sendall(one * in_flight)
        sent, answered, rest = in_flight, 0, 0
        while answered < count:
            arrived, rest = divmod(rest + len(connection.recv(65536)), answer_bytes)
            answered += arrived
            more = min(arrived, count - sent)
            if more > 0:
                connection.sendall(one * more)
                sent += more
        return count / (time.perf_counter() - started)


def produce_request(topic: str, partitions: int, records: int, record_bytes: int, acks: int = 1) -> bytes:
    """Return a Produce request with a batch of so many records for each partition."""
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([Record(number, now_ms, None, b"x" * record_bytes) for number in range(records)])
    data = [PartitionProduceData(index=index, records=memoryview(batch)) for index in range(partitions)]
    request = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return b"".join(request_frame(request, VERSION, 1, "bench"))


def _errors(answer: bytes) -> set[int]:
    # After the correlation id and an empty list of tagged fields.
    response, _ = ProduceResponse.decoder(VERSION)(answer, 5, len(answer))
    return {one.error_code for topic in response.responses for one in topic.partition_responses} - {0}


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise SystemExit("the broker has closed the connection")
        data += piece
    return data
