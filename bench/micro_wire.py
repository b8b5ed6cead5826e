"""The codec on the messages that matter for speed, compared with kio and kafka-python.

Produce v9 with six partitions of 16 KiB, Fetch v16, request and response, for as many, Metadata v12 with 20 topics of
six partitions. Before the measurement all three must decode the same bytes and encode them without a difference. Every
number is the best of several rounds in which the three take turns, so that a busy moment affects all of them.
kio's reader is native code; its writer, kafka-python and ours are Python.

A message is encoded into one piece here, because the others can do only that. Our broker sends a list of buffers and
does not copy record data: "as buffers" is its cost.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from timeit import Timer
from typing import Any

from kafka.protocol.consumer import FetchRequest as KafkaPythonFetchRequest
from kafka.protocol.consumer import FetchResponse as KafkaPythonFetchResponse
from kafka.protocol.metadata import MetadataResponse as KafkaPythonMetadataResponse
from kafka.protocol.producer import ProduceRequest as KafkaPythonProduceRequest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from bench.report import OURS, Report
from pessoa.base.ids import Uuid
from pessoa.wire.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pessoa.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pessoa.wire.schema import Message

PARTITIONS = 6
TOPICS = 20
RECORDS = memoryview(bytes(16 * 1024))

ROUNDS = 7
ROUND_SECONDS = 0.03


@dataclass(frozen=True)
class Case:
    name: str
    message: Message
    version: int
    kio_class: Any
    kafka_python_class: Any


def run(report: Report) -> None:
    for case in cases():
        measure(report, case)


def cases() -> list[Case]:
    return [
        Case("Produce v9 request", produce_request(), 9, load_request_schema(0, 9), KafkaPythonProduceRequest),
        Case("Fetch v16 request", fetch_request(), 16, load_request_schema(1, 16), KafkaPythonFetchRequest),
        Case("Fetch v16 response", fetch_response(), 16, load_response_schema(1, 16), KafkaPythonFetchResponse),
        Case("Metadata v12 response", metadata(), 12, load_response_schema(3, 12), KafkaPythonMetadataResponse),
    ]


def produce_request() -> Message:
    partitions = [PartitionProduceData(index=index, records=RECORDS) for index in range(PARTITIONS)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="measurements", partition_data=partitions)]
    )


def fetch_request() -> Message:
    partitions = [
        FetchPartition(
            partition=index, current_leader_epoch=3, fetch_offset=1_000_000 + index, partition_max_bytes=1 << 20
        )
        for index in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_id=77,
        session_epoch=5,
        topics=[FetchTopic(topic_id=Uuid.of(1 << 100), partitions=partitions)],
    )


def fetch_response() -> Message:
    partitions = [
        PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=2_000_000,
            last_stable_offset=2_000_000,
            log_start_offset=0,
            aborted_transactions=None,
            records=RECORDS,
        )
        for index in range(PARTITIONS)
    ]
    topic = FetchableTopicResponse(topic_id=Uuid.of(1 << 100), partitions=partitions)
    return FetchResponse(throttle_time_ms=0, session_id=77, responses=[topic])


def metadata() -> Message:
    nodes = [1, 2, 3]
    brokers = [MetadataResponseBroker(node_id=node, host=f"broker-{node}.example", port=9092) for node in nodes]
    topics = [
        MetadataResponseTopic(
            error_code=0,
            name=f"topic-{number}",
            topic_id=Uuid.of((number + 1) << 100),
            partitions=[
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=nodes[index % 3],
                    leader_epoch=4,
                    replica_nodes=nodes,
                    isr_nodes=nodes,
                )
                for index in range(PARTITIONS)
            ],
        )
        for number in range(TOPICS)
    ]
    return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics)


def measure(report: Report, case: Case) -> None:
    data = case.message.encode(case.version)
    kind, version = type(case.message), case.version
    encode, decode = kind.encoder(version), kind.decoder(version)
    read, write = entity_reader(case.kio_class), entity_writer(case.kio_class)
    entity, _ = read(data, 0)
    other = case.kafka_python_class.decode(data, version=version)
    other._header = None  # a decoded message lacks the attribute, and cannot be encoded without it

    def kio_encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    encoders: dict[str, Callable[[], Any]] = {
        OURS: lambda: case.message.encode(version),
        "kio": kio_encode,
        "kafka-python": lambda: other.encode(version=version),
    }
    for subject, encoder in encoders.items():
        assert bytes(encoder()) == data, f"{subject} writes {case.name} in another way"
    assert decode(data, 0, len(data))[0] == case.message
    decoders: dict[str, Callable[[], Any]] = {
        OURS: lambda: decode(data, 0, len(data)),
        "kio": lambda: read(data, 0),
        "kafka-python": lambda: case.kafka_python_class.decode(data, version=version),
    }
    add(report, f"{case.name}, encode", encoders)
    if any(isinstance(buffer, memoryview) for buffer in encode(case.message, bytearray())):
        add(report, f"{case.name}, encode as buffers", {OURS: lambda: encode(case.message, bytearray())})
    add(report, f"{case.name}, decode", decoders)


def add(report: Report, name: str, subjects: dict[str, Callable[[], Any]]) -> None:
    timers = {subject: Timer(function) for subject, function in subjects.items()}
    counts = {subject: calls_per_round(timer) for subject, timer in timers.items()}
    best = dict.fromkeys(timers, float("inf"))
    for _ in range(ROUNDS):
        for subject, timer in timers.items():
            best[subject] = min(best[subject], timer.timeit(counts[subject]) / counts[subject])
    for subject, seconds in best.items():
        report.add(name, subject, seconds * 1e6, "µs")


def calls_per_round(timer: Timer) -> int:
    timer.timeit(3)  # the first calls compile and fill caches
    return max(1, int(ROUND_SECONDS / (timer.timeit(5) / 5)))
