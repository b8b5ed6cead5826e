"""The topic `_schemas`: read from its start by every instance, written by the leader alone.

Reading: a TableReader (client/table_topic.py) hands batches to the loop, which replays them into the state.
`wait_until` waits for an offset to have been replayed.

Writing: a transactional producer whose transactional id is the same for all instances of a group. Opening it fences the
one before, and ends its unfinished transaction; from then on that one gets an error for every write. So a write
that is acknowledged was the leader's, and a write that came too late never becomes visible to readers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from pessoa.client.table_topic import Batch, TableReader
from pessoa.client.topic_creation import TopicUnavailable, table_spec
from pessoa.schema_registry.registry_config import Config
from pessoa.schema_registry.registry_records import NoopKey, Record, decode, encode_key, encode_value
from pessoa.web.problems import HttpProblem

log = logging.getLogger("pessoa.schema_registry")

# A transaction holds a handful of records; one that takes longer belongs to a leader that has died.
_TRANSACTION_TIMEOUT_MS = 10_000
# Kafka's default for the size of a record batch, less what a batch needs around one record.
MAX_RECORD_BYTES = 1_048_588 - 1024


Settings = dict[str, str | int | float | bool]


class Fenced(TopicUnavailable):
    """The producer of this instance was fenced: another instance is the leader, and writes of this one are refused."""


class Store:
    """The reader of the `_schemas` topic. `replay` is called in the loop with every record, in order."""

    def __init__(self, config: Config, settings: dict[str, str], replay: Callable[[Record], None]) -> None:
        self._config = config
        self._settings: Settings = {**settings, "bootstrap.servers": config.bootstrap_servers, "log_level": 3}
        table = table_spec(config.topic, replication_factor=config.replication_factor)
        self._reader = TableReader(f"{config.group_id}-reader", self._settings, [table], self._hand_over)
        self._replay = replay
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end_reached = asyncio.Event()
        # The last offset that was replayed, or that is known to hold nothing.
        self.applied_offset = -1
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.unreadable_count = 0

    def __repr__(self) -> str:
        return f"<Store {self._config.topic}, replayed to {self.applied_offset}>"

    async def start(self) -> None:
        """Create the topic if it is missing, and read it to its end."""
        self._loop = asyncio.get_running_loop()
        timeout_s = self._config.init_timeout_ms / 1000
        await asyncio.to_thread(self._reader.start, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await self._end_reached.wait()
        except TimeoutError:
            raise TopicUnavailable(
                f"{self._config.topic} could not be read to its end within {timeout_s:.0f} s"
            ) from None

    async def stop(self) -> None:
        await asyncio.to_thread(self._reader.stop)

    async def wait_until(self, offset: int, timeout_s: float) -> None:
        """Return when the record at this offset has been replayed."""
        if offset <= self.applied_offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, future))
        try:
            # Not wait_for: Python 3.11's forgets a cancellation that comes in the moment of the result, and a term that
            # does not end keeps the whole service from ending.
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise TopicUnavailable(
                f"offset {offset} of {self._config.topic} did not come back in {timeout_s} s"
            ) from None

    def _hand_over(self, batch: Batch) -> None:
        """Pass a batch of records from the reader's thread to the event loop."""
        assert self._loop is not None
        records: list[Record | None] = []
        for row in batch.rows:
            record = decode(row.key, row.value)
            records.append(record and record._replace(timestamp_ms=row.timestamp_ms))
        offset = max(batch.positions.values(), default=0) - 1
        try:
            self._loop.call_soon_threadsafe(self._apply, records, offset, bool(batch.ends))
        except RuntimeError:
            self._reader.stop()  # the loop has been closed over our head

    def _apply(self, records: Sequence[Record | None], offset: int, is_end: bool) -> None:
        for record in records:
            if record is None:
                self.unreadable_count += 1
            else:
                self._replay(record)
        self.applied_offset = max(self.applied_offset, offset)
        if is_end:
            self._end_reached.set()
        if self._waiters:
            for wanted, future in self._waiters:
                if wanted <= self.applied_offset and not future.done():
                    future.set_result(None)
            self._waiters = [each for each in self._waiters if not each[1].done()]

    def writer(self) -> Writer:
        return Writer(self._config, self._settings)


class Writer:
    """The leader's transactional producer; opening one fences that of the previous leader."""

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
        """Fence the previous leader's producer. Return the offset of a no-op record: everything up to it must be read
        before anything is decided."""
        return await self._run(self._open)

    async def write(self, records: Sequence[Record]) -> int:
        """Write all records in one transaction, or none; return the offset of the last record."""
        return await self._run(lambda: self._write(records))

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        # librdkafka stops when nothing refers to it any more.
        self._producer = None

    async def _run(self, work: Callable[[], int]) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> int:
        try:
            self._producer = Producer(self._settings)
            self._producer.init_transactions(self._timeout_s)
        except KafkaException as failure:
            raise _as_topic_error(failure) from None
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
            raise _as_topic_error(failure) from None
        known_offsets = [offset for offset in offsets if offset is not None]
        if failures or len(offsets) != len(records) or not known_offsets:
            raise TopicUnavailable(f"{len(records) - len(known_offsets)} records were not acknowledged")
        return max(known_offsets)

    def _give_up(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(self._timeout_s)
        except KafkaException as failure:
            log.debug("nothing to abort: %s", failure)


def check_size(records: Sequence[Record]) -> None:
    """Raise an HttpProblem for a record that is too large for a broker, before any record of its batch is written."""
    for record in records:
        size = len(encode_key(record.key)) + len(encode_value(record.value) or b"")
        if size > MAX_RECORD_BYTES:
            raise HttpProblem(422, f"Schema too large: {size} bytes, of which {MAX_RECORD_BYTES} are possible", 42209)


def _as_topic_error(failure: KafkaException) -> TopicUnavailable:
    error: KafkaError = failure.args[0]
    if error.fatal() or error.code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    ):
        return Fenced(str(error))
    return TopicUnavailable(str(error))
