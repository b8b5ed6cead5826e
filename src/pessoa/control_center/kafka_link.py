"""The connection to the cluster: our blocking client in a few worker threads, consumers, and one producer.

A question is a function of a `Cluster`; `ask` runs it in a worker, each of which keeps a connection of its own. A
failure becomes an `HttpProblem` with a sentence, which the API returns and pages show. A question waits at most
ASK_TIMEOUT_MS for a broker that is away, so that a page reports it instead of waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from pessoa.client.client_errors import KafkaFailure, RequestFailed, TimedOut, Unsupported
from pessoa.client.cluster_client import Cluster
from pessoa.client.librdkafka import to_librdkafka
from pessoa.web.problems import HttpProblem
from pessoa.wire.errors import ErrorCode

log = logging.getLogger(__name__)
T = TypeVar("T")

CLIENT_ID = "control-center"
WORKERS = 4
ASK_TIMEOUT_MS = 5000
_NOT_FOUND = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.RESOURCE_NOT_FOUND,
)  # fmt: skip
_FORBIDDEN = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)  # fmt: skip
# A page may show 5 MB messages, and a topic may take larger ones.
_PRODUCE_MAX_BYTES = 64 << 20
# What a producer may hold, beside one message that is larger.
_QUEUED_KB = 65_536


class KafkaLink:
    def __init__(self, servers: str, settings: Mapping[str, str]) -> None:
        """`settings` are those of Kafka's Java clients."""
        self.servers = servers
        self._settings = {**settings, "client.id": CLIENT_ID, "default.api.timeout.ms": str(ASK_TIMEOUT_MS)}
        self._librdkafka = {"bootstrap.servers": servers, **to_librdkafka(dict(settings), log.warning)}
        self._workers = ThreadPoolExecutor(WORKERS, "kafka-link")
        self._own = threading.local()
        self._open_clusters: list[Cluster] = []
        self._producer: Producer | None = None
        self._producing = threading.Lock()

    def __repr__(self) -> str:
        return f"<KafkaLink to {self.servers}>"

    async def ask(self, question: Callable[[Cluster], T]) -> T:
        """Run the function with a `Cluster` in a worker thread and return its result. Raises an `HttpProblem`."""

        def run() -> T:
            cluster: Cluster | None = getattr(self._own, "cluster", None)
            if cluster is None:
                cluster = self._own.cluster = Cluster(self.servers, self._settings)
                self._open_clusters.append(cluster)
            return question(cluster)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, run)
        except KafkaFailure as failure:
            raise problem_of(failure) from failure

    def client_settings(self) -> dict[str, str | int | float | bool]:
        """Return the librdkafka settings of a client of this cluster."""
        return dict(self._librdkafka)

    def consumer(self, *, wants_ends: bool = False) -> Consumer:
        """Return a consumer that joins no group, for use in one thread."""
        return Consumer(
            {
                **self._librdkafka,
                "client.id": f"{CLIENT_ID}-messages",
                # librdkafka wants a name; without subscriptions and commits it means nothing to brokers.
                "group.id": "control-center",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": wants_ends,
                # What one reading may hold: memory is bounded by this, whatever the topic has.
                "queued.max.messages.kbytes": 8192,
                "fetch.message.max.bytes": 1 << 20,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )

    def producer(self) -> Producer:
        return Producer(
            {**self._librdkafka, "client.id": CLIENT_ID, "acks": "all", "message.max.bytes": _PRODUCE_MAX_BYTES,
             "message.timeout.ms": 15_000, "queue.buffering.max.kbytes": _QUEUED_KB, "log_level": 0}
        )  # fmt: skip

    async def produce(
        self, topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]], partition: int = -1
    ) -> tuple[int, int]:
        """Return partition and offset of the record, once it is acknowledged by all in-sync replicas."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[int, int]] = loop.create_future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            def tell() -> None:
                if done.done():
                    return
                if error is None:
                    done.set_result((message.partition() or 0, message.offset() or 0))
                else:
                    done.set_exception(HttpProblem(502, f"The record was not taken: {error.str()}"))

            loop.call_soon_threadsafe(tell)

        def send() -> None:
            with self._producing:
                if self._producer is None:
                    self._producer = self.producer()
                producer = self._producer
            # The headers of its stubs are of texts.
            producer.produce(topic, value, key, partition, delivered, headers=list(headers))
            producer.flush(16)

        try:
            await loop.run_in_executor(self._workers, send)
        except KafkaException as refused:
            # A partition that is not there, or a record that is too large, before it is sent.
            raise HttpProblem(400, f"The record was not taken: {refused.args[0].str()}") from None
        except (BufferError, ValueError) as failure:
            raise HttpProblem(503, f"The record cannot be sent now: {failure}") from None
        return await done

    def close(self) -> None:
        self._workers.shutdown(wait=True, cancel_futures=True)
        for cluster in self._open_clusters:
            cluster.close()


def problem_of(failure: KafkaFailure) -> HttpProblem:
    if isinstance(failure, TimedOut):
        return HttpProblem(504, f"No broker answered within {ASK_TIMEOUT_MS // 1000} s: {failure}", 50401)
    if isinstance(failure, Unsupported):
        return HttpProblem(501, f"This cluster cannot do that: {failure}", 50101)
    if isinstance(failure, RequestFailed):
        if failure.code in _NOT_FOUND:
            return HttpProblem(404, str(failure), 40401)
        if failure.code in _FORBIDDEN:
            return HttpProblem(403, f"The control centre's own user may not do that: {failure}", 40301)
        return HttpProblem(502 if failure.code.retriable else 400, str(failure))
    return HttpProblem(502, str(failure))
