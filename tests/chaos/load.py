"""Clients that work while brokers fail: producers, members of a group, and a copier that uses transactions.

    producers ──▶ topic IN ──▶ members of a group           every poll is checked at once
                     └───────▶ copier ──▶ topic OUT          consume, transform, produce: exactly once

All of them are librdkafka, and recover from every fault by themselves. Everything that they write and read goes into
one `History`, whose checks are: no acknowledged record is lost or duplicated, an offset has one value, no
read_committed consumer reads an aborted record, a transaction is there whole or not at all. In addition each member
checks its own polls: within one assignment the next message has the next offset, neither a later nor an earlier one.
(IN has no transactions and is not compacted, so its offsets have no holes.)

The copier aborts some of its transactions on purpose. The value of a copy names the transaction as well, so a record
that is copied again after an abort has two values; `check_copies` checks that the committed copies are the records of
IN, each once.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from random import Random
from threading import Event, Lock, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as RdTopicPartition

from tests.chaos.processes import IMPATIENT, TIMEOUT_S, until
from tests.simulation.history import History, Outcome, TopicPartition, Transaction, Violation, Write

IN, OUT = "in", "out"
GROUP = "members"
PARTITIONS = 3
# A hundred records per second and producer: the test is about faults, not throughput.
_PRODUCE_EVERY_S = 0.01
# Usually all available records; a copier that is far behind copies more in one transaction.
_TRANSACTION_RECORDS = 400
_ABORTED_SHARE = 0.15
_PATIENT_S = 30.0
# librdkafka drops its state about a broker that Metadata does not list: one that was stopped, or is dead for longer
# than its session. A send_offsets_to_transaction that waits for that broker, the group's coordinator, then waits for
# ever, however soon the broker is back. A user would replace that client, and so does the copier.
_LONGEST_SILENCE_S = 15.0
_PASSING = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.REQUEST_TIMED_OUT,
)
EAGER = {"request.timeout.ms": 3_000, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200, "linger.ms": 0, **IMPATIENT}


class Load:
    """`with Load(bootstrap, seed) as load: …`; after `finish()` everything is sent, copied and in the history."""

    def __init__(
        self,
        bootstrap_servers: str,
        seed: int,
        producers: int = 2,
        members: int = 2,
        security: Mapping[str, str] | None = None,
    ) -> None:
        # The settings of each client: where the brokers are, and how to log in.
        self.client = {"bootstrap.servers": bootstrap_servers, **(security or {})}
        self.history = History()
        self.lock = Lock()
        self.problems: list[str] = []
        # Transactions whose commit was requested: no read_committed consumer may read records of the others.
        self.commits_begun: set[str] = set()
        self.is_done = Event()
        self.copier_is_done = Event()
        self.members_are_done = Event()
        self.producers = [SteadyProducer(self, f"p{number}") for number in range(producers)]
        self.members = [Member(self, f"m{number}") for number in range(members)]
        self.copier = Copier(self, Random(seed))
        self._threads = {
            "producers": [self._thread(one.run) for one in self.producers],
            "copier": [self._thread(self.copier.run)],
            "members": [self._thread(one.run) for one in self.members],
        }

    def _thread(self, run: Callable[[], None]) -> Thread:
        def guarded() -> None:
            try:
                run()
            except (AssertionError, KafkaException, Violation) as problem:
                # `raise_problems` raises it in the thread of the test.
                self.problems.append(f"{run.__qualname__}: {problem!r}")

        return Thread(target=guarded, daemon=True)

    def start(self) -> None:
        for threads in self._threads.values():
            for one in threads:
                one.start()

    @property
    def acknowledged(self) -> int:
        return self.history.acknowledged

    def wait_for(self, more: int, *, with_copies: bool = True) -> None:
        """Wait until every producer has `more` new acknowledgements in every partition and the copier has committed."""
        counts = [[len(times) for times in one.acknowledged_at_s] for one in self.producers]
        transactions = self.copier.committed

        def is_so() -> bool:
            self.raise_problems()
            return (self.copier.committed > transactions or not with_copies) and all(
                len(times) >= before + more
                for one, of_one in zip(self.producers, counts, strict=True)
                for times, before in zip(one.acknowledged_at_s, of_one, strict=True)
            )

        what = f"{more} more records in every partition{' and a transaction' if with_copies else ''}"
        until(is_so, lambda: f"{what} ({self!r})")

    def __repr__(self) -> str:
        return (
            f"<Load: {self.history.acknowledged} acknowledged, {self.copier.committed} transactions committed and "
            f"{self.copier.aborted} aborted in {self.copier.incarnations} incarnations, "
            f"{sum(one.polled for one in self.members)} polled>"
        )

    def raise_problems(self) -> None:
        assert not self.problems, self.problems

    def finish(self) -> None:
        """Stop producing, and wait until everything that was acknowledged is copied and polled."""
        self.is_done.set()
        self._join("producers")
        ends = self._ends()
        until(lambda: self.problems or self.copier.has_reached(ends), lambda: f"all records copied ({self!r})")
        self.copier_is_done.set()
        self._join("copier")
        until(lambda: self.problems or self._members_reached(ends), lambda: f"all records polled ({self!r})")
        self.members_are_done.set()
        self._join("members")
        self.raise_problems()

    def abandon(self) -> None:
        """After a failure: let every thread end soon."""
        for event in (self.is_done, self.copier_is_done, self.members_are_done):
            event.set()

    def _join(self, kind: str) -> None:
        for thread in self._threads[kind]:
            thread.join(3 * TIMEOUT_S)
            assert not thread.is_alive(), f"the {kind} did not end ({self!r})"

    def _ends(self) -> dict[int, int]:
        consumer = Consumer({"group.id": "ends", **IMPATIENT, **self.client})
        try:
            return {
                number: consumer.get_watermark_offsets(RdTopicPartition(IN, number), timeout=_PATIENT_S)[1]
                for number in range(PARTITIONS)
            }
        finally:
            consumer.close()

    def _members_reached(self, ends: dict[int, int]) -> bool:
        seen = self.history.seen_committed
        return all((seen.get(TopicPartition(IN, one)) or {-1: b""}).keys() >= {end - 1} for one, end in ends.items())

    def longest_pause_s(self, since_s: float, until_s: float) -> float:
        """Return the longest time without an acknowledgement, over all partitions, that began before `until_s`."""
        longest = 0.0
        for partition in range(PARTITIONS):
            times = sorted(at for one in self.producers for at in list(one.acknowledged_at_s[partition]))
            for before, after in pairwise(times):
                if after > since_s and before < until_s:
                    longest = max(longest, after - before)
        return longest


class SteadyProducer:
    """An idempotent producer with acks=all that writes numbers to every partition in turn."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self.name = name
        self.acknowledged_at_s: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self.unsure = 0

    def run(self) -> None:
        load = self._load
        producer = Producer(
            {
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 300_000,
                **EAGER,
                **load.client,
            }
        )
        number = 0
        while not load.is_done.is_set():
            value, partition = f"{self.name}-{number}".encode(), number % PARTITIONS
            with load.lock:
                write = load.history.begin_write(value, TopicPartition(IN, partition), self.name)
            producer.produce(IN, value, partition=partition, on_delivery=self._told(write))
            number += 1
            producer.poll(_PRODUCE_EVERY_S)
        assert producer.flush(2 * TIMEOUT_S) == 0

    def _told(self, write: Write) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                # The record may have been written all the same, so the history leaves that open.
                self.unsure += 1
                return
            offset, acknowledged_at_s = message.offset(), self.acknowledged_at_s[write.partition.number]
            if offset is None and not acknowledged_at_s:
                # librdkafka infers from the response to a later batch that a batch whose own response was lost is
                # written too. For the very first batch that may be wrong: a leader without state of the producer
                # accepts any sequence, as in Apache Kafka, so the first batch may be refused and the second accepted.
                self.unsure += 1
                return
            with self._load.lock:
                self._load.history.acknowledge(write, -1 if offset is None else offset)
            acknowledged_at_s.append(time.monotonic())

        return told


class Member:
    """A member of the group that reads IN; checks that its polls neither skip nor go back within an assignment."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self.name = name
        self.polled = 0
        self._next: dict[int, int] = {}

    def run(self) -> None:
        consumer = Consumer(
            {
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
                "auto.commit.interval.ms": 200,
                **IMPATIENT,
                **self._load.client,
            }
        )
        forget: Any = lambda *_: self._next.clear()  # noqa: E731
        consumer.subscribe([IN], on_assign=forget, on_revoke=forget, on_lost=forget)
        try:
            while not self._load.members_are_done.is_set():
                for message in consumer.consume(500, 0.1):
                    if message.error() is None:
                        self._take(message)
        finally:
            # The coordinator may be dead at the end of a failing test.
            with suppress(KafkaException):
                consumer.close()

    def _take(self, message: Message) -> None:
        partition, offset, value = place_of(message)
        expected = self._next.get(partition, offset)
        assert offset == expected, f"{self.name} polls {IN}-{partition}@{offset} where {expected} comes next"
        self._next[partition] = offset + 1
        with self._load.lock:
            self._load.history.see(self.name, TopicPartition(IN, partition), offset, value, is_committed=True)
        self.polled += 1


class Copier:
    """Consumes, transforms and produces in transactions. After a failure it starts again at the committed offsets."""

    def __init__(self, load: Load, rng: Random) -> None:
        self._load = load
        self._rng = rng
        self._number = 0
        self.committed = 0
        self.aborted = 0
        self.incarnations = 0
        self._progress_at_s = 0.0
        # Partition of IN → the offset up to which a commit was acknowledged
        self._reached: dict[int, int] = defaultdict(int)

    def has_reached(self, ends: dict[int, int]) -> bool:
        return all(self._reached[partition] >= end for partition, end in ends.items())

    def run(self) -> None:
        """Run one incarnation after another. One without progress is abandoned: the next incarnation fences it."""
        silence_s = _LONGEST_SILENCE_S
        while not self._load.copier_is_done.is_set():
            self.incarnations += 1
            self._progress_at_s = time.monotonic()
            copying = Thread(target=self._copy_guarded, args=(self.incarnations,), daemon=True)
            copying.start()
            before = self.committed
            while copying.is_alive() and time.monotonic() < self._progress_at_s + silence_s:
                copying.join(0.1)
            # An incarnation without a commit may have been slow on a busy machine: the next has more time.
            silence_s = _LONGEST_SILENCE_S if self.committed > before else min(2 * silence_s, TIMEOUT_S / 2)

    def _copy_guarded(self, number: int) -> None:
        try:
            self._copy_until_replaced(number)
        except KafkaException as problem:
            # An incarnation ends by a fatal error (it was fenced, or the coordinator has aborted its transaction), by a
            # transient error that lasted too long, or without an error.
            # (On a second call after a fatal error, only the code of the error shows that it is fatal.)
            if not (problem.args[0].fatal() or problem.args[0].code() in (KafkaError._FATAL, *_PASSING)):
                self._load.problems.append(f"the copier: {problem!r}")
        except (AssertionError, Violation) as problem:
            self._load.problems.append(f"the copier: {problem!r}")

    def _is_current(self, number: int) -> bool:
        return number == self.incarnations and not self._load.copier_is_done.is_set()

    def _copy_until_replaced(self, number: int) -> None:
        producer = Producer(
            {
                "transactional.id": "copier",
                "transaction.timeout.ms": 20_000,
                **EAGER,
                **self._load.client,
            }
        )
        retry_transient_errors(lambda: producer.init_transactions(_PATIENT_S))
        consumer = Consumer(
            {
                "group.id": "copier",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **IMPATIENT,
                **self._load.client,
            }
        )
        try:
            self._rewind(consumer)
            while self._is_current(number):
                messages = [one for one in consumer.consume(_TRANSACTION_RECORDS, 0.1) if one.error() is None]
                if messages and not self._copy(producer, consumer, messages):
                    self._rewind(consumer)
                if number == self.incarnations:
                    self._progress_at_s = time.monotonic()
        finally:
            consumer.close()

    def _rewind(self, consumer: Consumer) -> None:
        asked = [RdTopicPartition(IN, number) for number in range(PARTITIONS)]
        consumer.unassign()
        found = retry_transient_errors(lambda: consumer.committed(asked, timeout=_PATIENT_S))
        consumer.assign([RdTopicPartition(IN, one.partition, max(one.offset, 0)) for one in found])

    def _copy(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> bool:
        """Copy the messages in one transaction, and return whether it was committed; else it was aborted."""
        load = self._load
        with load.lock:
            self._number += 1
            transaction = load.history.begin_transaction(f"t{self._number}")
        producer.begin_transaction()
        try:
            ends: dict[int, int] = {}
            for message in messages:
                partition, offset, value = place_of(message)
                ends[partition] = offset + 1
                self._write(producer, transaction, partition, value)
            positions = [RdTopicPartition(IN, partition, end) for partition, end in ends.items()]
            metadata = consumer.consumer_group_metadata()
            retry_transient_errors(lambda: producer.send_offsets_to_transaction(positions, metadata, _PATIENT_S))
            if self._rng.random() >= _ABORTED_SHARE:
                load.commits_begun.add(transaction.name)
                retry_transient_errors(lambda: producer.commit_transaction(_PATIENT_S))
                with load.lock:
                    transaction.outcome = Outcome.OK
                self._reached.update(ends)
                self.committed += 1
                return True
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
        retry_transient_errors(lambda: producer.abort_transaction(_PATIENT_S))
        with load.lock:
            transaction.outcome = Outcome.FAILED
        self.aborted += 1
        return False

    def _write(self, producer: Producer, transaction: Transaction, partition: int, value: bytes) -> None:
        load = self._load
        copy = b"%s:%s" % (transaction.name.encode(), value)
        with load.lock:
            write = load.history.begin_write(copy, TopicPartition(OUT, partition), "copier", transaction)

        def told(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                with load.lock:
                    load.history.acknowledge(write, offset)

        producer.produce(OUT, copy, partition=partition, on_delivery=told)
        producer.poll(0)


def retry_transient_errors(call: Callable[[], Any]) -> Any:
    """Return the result of `call`, repeated after errors that librdkafka marks as retriable, and after timeouts."""
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while True:
        try:
            return call()
        except KafkaException as problem:
            error = problem.args[0]
            is_passing = error.retriable() or error.code() in _PASSING
            if error.fatal() or error.txn_requires_abort() or not is_passing or time.monotonic() > deadline:
                raise


def place_of(message: Message) -> tuple[int, int, bytes]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return partition, offset, value


def copied_values(committed: dict[TopicPartition, dict[int, bytes]]) -> Counter[bytes]:
    return Counter(
        value.partition(b":")[2]
        for place, records in committed.items()
        if place.topic == OUT
        for value in records.values()
    )
