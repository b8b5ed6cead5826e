"""The topic `_schemas`: read from its start by every instance, written by the leader alone.

Reading: a thread polls a consumer (read_committed, no group) and hands batches of decoded records to the loop, which
replays them into the state. `wait_until` waits for an offset to have been replayed.

Writing: a transactional producer whose transactional id is the same for all instances of a group. Opening it fences the
one before, and ends its unfinished transaction; from then on that one gets an error for whatever it tries. So a write
that is acknowledged was the leader's, and a write that came too late never becomes visible to readers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from pessoa.schema_registry.config import Config
from pessoa.schema_registry.records import NoopKey, Record, decode, encode_key, encode_value
from pessoa.web.problems import HttpProblem

log = logging.getLogger("pessoa.schema_registry")

_POLL_S = 0.5
_BATCH = 500
# How long one question to a cluster that may not be there takes at most.
_ATTEMPT_S = 2.0
# A transaction holds a handful of records; one that takes longer belongs to a leader that has died.
_TRANSACTION_TIMEOUT_MS = 10_000
# Kafka's default for the size of a record batch, less what a batch needs around one record.
MAX_RECORD_BYTES = 1_048_588 - 1024


Settings = dict[str, str | int | float | bool]


class StoreFailed(RuntimeError):
    """A write whose outcome is not known, or a store that cannot be opened."""


class Fenced(StoreFailed):
    """Another instance has become leader; nothing that this one writes counts any more."""


class Store:
    """`replay` is called in the loop with every record, in order."""

    def __init__(self, config: Config, settings: dict[str, str], replay: Callable[[Record], None]) -> None:
        self._config = config
        self._settings: Settings = {**settings, "bootstrap.servers": config.bootstrap_servers, "log_level": 3}
        self._replay = replay
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = threading.Event()
        self._reader: threading.Thread | None = None
        self._end_reached = asyncio.Event()
        # The last offset that was replayed, or that is known to hold nothing.
        self.applied_offset = -1
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.unreadable_count = 0

    def __repr__(self) -> str:
        return f"<Store {self._config.topic}, replayed to {self.applied_offset}>"

    async def start(self) -> None:
        """Make the topic if need be, and read it to its end."""
        self._loop = asyncio.get_running_loop()
        timeout_s = self._config.init_timeout_ms / 1000
        await asyncio.to_thread(self._ensure_topic, timeout_s)
        self._reader = threading.Thread(target=self._read, name="registry-reader", daemon=True)
        self._reader.start()
        try:
            async with asyncio.timeout(timeout_s):
                await self._end_reached.wait()
        except TimeoutError:
            raise StoreFailed(f"{self._config.topic} could not be read to its end within {timeout_s:.0f} s") from None

    async def stop(self) -> None:
        self._stop.set()
        if self._reader is not None:
            await asyncio.to_thread(self._reader.join)

    async def wait_until(self, offset: int, timeout_s: float) -> None:
        """Return when the record at this offset has been replayed."""
        if offset <= self.applied_offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        try:
            # Not wait_for: Python 3.11's forgets a cancellation that comes in the moment of the result, and a term that
            # does not end keeps the whole service from ending.
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise StoreFailed(f"offset {offset} of {self._config.topic} did not come back in {timeout_s} s") from None

    # The topic.

    def _ensure_topic(self, timeout_s: float) -> None:
        admin = AdminClient(self._settings)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                metadata = admin.list_topics(timeout=_ATTEMPT_S)
                if self._config.topic not in metadata.topics:
                    self._create_topic(admin, len(metadata.brokers))
                else:
                    self._check_topic(admin, metadata.topics[self._config.topic])
            except KafkaException as failure:
                if time.monotonic() > deadline or self._stop.is_set():
                    sentence = f"Kafka at {self._config.bootstrap_servers} does not answer: {failure}"
                    raise StoreFailed(sentence) from None
                self._stop.wait(0.2)
            else:
                return

    def _create_topic(self, admin: AdminClient, broker_count: int) -> None:
        factor = min(self._config.replication_factor, max(broker_count, 1))
        if factor < self._config.replication_factor:
            log.warning("%s has %d replicas, for want of brokers", self._config.topic, factor)
        topic = NewTopic(self._config.topic, 1, factor, config={"cleanup.policy": "compact"})
        for future in admin.create_topics([topic]).values():
            try:
                future.result()
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _check_topic(self, admin: AdminClient, metadata: Any) -> None:
        if len(metadata.partitions) != 1:
            count = len(metadata.partitions)
            raise StoreFailed(f"{self._config.topic} has {count} partitions; a registry's topic has one")
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._config.topic)
        (future,) = admin.describe_configs([resource]).values()
        policy = future.result()["cleanup.policy"].value
        if policy != "compact":
            raise StoreFailed(
                f"{self._config.topic} has cleanup.policy={policy}, which would forget schemas; it must be compact"
            )

    # The reader's thread.

    def _read(self) -> None:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": f"{self._config.group_id}-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(self._config.topic, 0, 0)])
            while not self._stop.is_set():
                first = consumer.poll(_POLL_S)
                if first is not None:
                    self._hand_over([first, *consumer.consume(_BATCH, 0)])
        finally:
            consumer.close()

    def _hand_over(self, messages: Sequence[Any]) -> None:
        records: list[Record | None] = []
        offset = -1
        is_end = False
        for message in messages:
            error = message.error()
            if error is None:
                records.append(decode(message.key(), message.value()))
                offset = message.offset()
            elif error.code() == KafkaError._PARTITION_EOF:
                # Markers of transactions take offsets too; the end says that nothing is left before it.
                offset = max(offset, message.offset() - 1)
                is_end = True
            else:
                log.warning("reading %s: %s", self._config.topic, error)
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._apply, records, offset, is_end)
        except RuntimeError:
            self._stop.set()  # the loop has been closed over our head

    def _apply(self, records: Sequence[Record | None], offset: int, is_end: bool) -> None:
        for record in records:
            if record is None:
                self.unreadable_count += 1
            else:
                self._replay(record)
        self.applied_offset = max(self.applied_offset, offset)
        if is_end:
            self._end_reached.set()
        if self._waiting:
            for wanted, future in self._waiting:
                if wanted <= self.applied_offset and not future.done():
                    future.set_result(None)
            self._waiting = [each for each in self._waiting if not each[1].done()]

    def writer(self) -> Writer:
        return Writer(self._config, self._settings)


class Writer:
    """The one hand that writes, while it is the one."""

    def __init__(self, config: Config, settings: Settings) -> None:
        self._topic = config.topic
        self._timeout_s = max(config.timeout_ms / 1000, _TRANSACTION_TIMEOUT_MS / 1000)
        self._settings = {
            **settings,
            "transactional.id": f"{config.group_id}-{config.topic}-leader",
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            "message.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            "linger.ms": 0,
            "acks": "all",
        }
        self._producer: Producer | None = None
        # librdkafka's calls block; one thread keeps them in order.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry-writer")

    async def open(self) -> int:
        """Shut out the leader before us. The offset up to which everything must be read before deciding anything."""
        return await self._run(self._open)

    async def write(self, records: Sequence[Record]) -> int:
        """Write all or nothing; the offset of the last record."""
        return await self._run(lambda: self._write(records))

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        # librdkafka stops when nobody holds it any more.
        self._producer = None

    async def _run(self, work: Callable[[], int]) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> int:
        try:
            self._producer = Producer(self._settings)
            self._producer.init_transactions(self._timeout_s)
        except KafkaException as failure:
            raise _understood(failure) from None
        return self._write([Record(NoopKey(), None)])

    def _write(self, records: Sequence[Record]) -> int:
        producer = self._producer
        assert producer is not None
        # None where librdkafka infers from the answer to a later batch that one whose own answer was lost is written.
        offsets: list[int | None] = []
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                failures.append(error)

        try:
            producer.begin_transaction()
            for record in records:
                producer.produce(
                    self._topic,
                    partition=0,
                    key=encode_key(record.key),
                    value=encode_value(record.value),
                    on_delivery=delivered,
                )
            producer.commit_transaction(self._timeout_s)
            producer.poll(0)
        except KafkaException as failure:
            self._give_up(producer)
            raise _understood(failure) from None
        told = [offset for offset in offsets if offset is not None]
        if failures or len(offsets) != len(records) or not told:
            raise StoreFailed(f"{len(records) - len(told)} records were not acknowledged")
        return max(told)

    def _give_up(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(self._timeout_s)
        except KafkaException as failure:
            log.debug("nothing to abort: %s", failure)


def check_size(records: Sequence[Record]) -> None:
    """A record that no broker takes must be refused before anything of its batch is written."""
    for record in records:
        size = len(encode_key(record.key)) + len(encode_value(record.value) or b"")
        if size > MAX_RECORD_BYTES:
            raise HttpProblem(422, f"Schema too large: {size} bytes, of which {MAX_RECORD_BYTES} are possible", 42209)


def _understood(failure: KafkaException) -> StoreFailed:
    error: KafkaError = failure.args[0]
    if error.fatal() or error.code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    ):
        return Fenced(str(error))
    return StoreFailed(str(error))
