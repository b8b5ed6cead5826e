"""Produce requests of one record each: how many a broker answers in a second, beside Apache Kafka.

Here it is not bytes that cost but requests: reading a frame, decoding, appending, encoding, writing. The load is a
socket and bytes that were made beforehand, so that almost nothing of the measurement is the client's. With one request
in flight every one of them waits for the one before, which is what a program does that produces and waits; with many
in flight a broker can serve several per wake-up.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

from bench.apache import HOST, Figures, Side, compare, create_topic, print_verdicts, scaled
from pessoa.records.builder import build_batch
from pessoa.records.record import Record
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pessoa.wire.frames import request_frame

if TYPE_CHECKING:
    from bench.report import Report

# The last one that names topics by their names.
VERSION = 12
TOPIC = "requests"
RECORD_BYTES = 100
# (requests in flight, requests in all)
CASES = ((1, 20_000), (64, 60_000))
AT_LEAST = {"one-record requests, 64 in flight": 1.5}


def run(report: Report) -> None:
    compare(report, measure)
    print_verdicts(report, AT_LEAST)


def measure(side: Side) -> Figures:
    create_topic(side, TOPIC, 1)
    figures: Figures = {}
    with socket.create_connection((HOST, side.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer_bytes = exchange_one(connection)
        for in_flight, count in CASES:
            # Apache's code is compiled while it runs: what is measured comes after as much again.
            requests_per_s(connection, in_flight, scaled(count), answer_bytes)
            rate = requests_per_s(connection, in_flight, scaled(count), answer_bytes)
            figures[f"one-record requests, {in_flight} in flight", "req/s"] = rate
    return figures


def request_bytes() -> bytes:
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, b"x" * RECORD_BYTES)])
    request = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
        ],
    )
    return b"".join(request_frame(request, VERSION, 1, "bench"))


def exchange_one(connection: socket.socket) -> int:
    """The size of an answer, which is that of all answers: only its offset differs."""
    connection.sendall(request_bytes())
    size: int = struct.unpack(">i", read_exactly(connection, 4))[0]
    answer = read_exactly(connection, size)
    # Correlation id, tags, one topic, its name, one partition, its index: then the error.
    position = 4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4
    error = struct.unpack_from(">h", answer, position)[0]
    if error:
        raise SystemExit(f"the produce was refused with error {error}")
    return 4 + size


def requests_per_s(connection: socket.socket, in_flight: int, count: int, answer_bytes: int) -> float:
    one = request_bytes()
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


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise SystemExit("the broker has closed the connection")
        data += piece
    return data
