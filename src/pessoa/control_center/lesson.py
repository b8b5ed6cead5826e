"""A lesson of the classroom: a producer, a topic and a consumer group that are real, small, and end with the page.

A lesson owns a scratch topic, one thread that produces at a pace that eyes can follow, and a thread for each member of
its group. Everything they do is done through librdkafka on the running cluster; `scene` is what the page draws. A
lesson ends after LESSON_S, or when its page is closed, and its topic and group go with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from secrets import token_hex

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

log = logging.getLogger(__name__)

LESSON_S = 1200.0
KEYS = ("a", "b", "c", "d", "f", "g")
PACES = {"slow": 1.0, "quick": 0.25}
# The members of a lesson's group; it has no more.
_NAMES = "ABCDEF"


@dataclass
class Sent:
    number: int
    key: str
    partition: int
    offset: int
    ms: float


@dataclass
class MemberState:
    name: str
    partitions: list[int] = field(default_factory=list)
    read: int = 0
    last: str = ""


@dataclass
class Scene:
    """A copy of a lesson's state for the page, so that nothing changes while it is drawn."""

    sent: list[Sent]
    members: list[MemberState]
    acks: str
    is_idempotent: bool
    is_producing: bool
    keyed: bool
    produced: int
    failed: int
    trouble: str
    average_ms: float | None


class _Member:
    def __init__(self, settings: dict[str, str | int | float | bool], topic: str, state: MemberState) -> None:
        self.state = state
        self._topic = topic
        self._settings = settings
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lesson-member-{state.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer(self._settings)

        def note(_: Consumer, __: list[TopicPartition]) -> None:
            self.state.partitions = []

        def assigned(_: Consumer, parts: list[TopicPartition]) -> None:
            self.state.partitions = sorted(one.partition for one in parts)

        try:
            consumer.subscribe([self._topic], on_assign=assigned, on_revoke=note, on_lost=note)
            while not self._ended.is_set():
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                self.state.read += 1
                self.state.last = f"{message.partition()}·{message.offset()}"
        except KafkaException as failure:
            log.info("a member of a lesson ended: %s", failure)
        finally:
            consumer.close()

    def end(self) -> None:
        self._ended.set()

    def join(self) -> None:
        self._thread.join(10)


class Lesson:
    """A running lesson with its own threads; `end` may be called more than once."""

    def __init__(self, settings: dict[str, str | int | float | bool]) -> None:
        self.topic = f"classroom-{token_hex(3)}"
        self.group = f"{self.topic}-group"
        self._settings = settings
        self._members: list[_Member] = []
        self._sent: deque[Sent] = deque(maxlen=60)
        self.acks = "all"
        self.is_idempotent = True
        self.is_producing = True
        self.keyed = True
        self.pace = "slow"
        self._produced = 0
        self._failed = 0
        self._trouble = ""
        self._ended = threading.Event()
        self._changed = threading.Event()
        self._until_s = time.monotonic() + LESSON_S
        self._thread = threading.Thread(target=self._produce, name="lesson-producer", daemon=True)

    def __repr__(self) -> str:
        return f"<Lesson on {self.topic}, {len(self._members)} members>"

    @property
    def is_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def is_over(self) -> bool:
        return self._ended.is_set() or time.monotonic() > self._until_s

    def begin(self) -> None:
        self._thread.start()

    def add_member(self) -> None:
        names = {one.state.name for one in self._members}
        free = next((name for name in _NAMES if name not in names), None)
        if free is None or self.is_over:
            return
        settings = {
            **self._settings, "group.id": self.group, "client.id": f"consumer-{free}", "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000, "partition.assignment.strategy": "roundrobin", "log_level": 0,
        }  # fmt: skip
        self._members.append(_Member(settings, self.topic, MemberState(free)))
        self._members.sort(key=lambda one: one.state.name)

    def remove_member(self) -> None:
        if self._members:
            self._members.pop().end()

    def change_producer(self, acks: str, is_idempotent: bool) -> None:
        self.acks, self.is_idempotent = acks, is_idempotent and acks == "all"
        self._changed.set()

    def scene(self) -> Scene:
        sent = list(self._sent)
        times = [one.ms for one in sent[-20:]]
        return Scene(
            sent, [one.state for one in self._members], self.acks, self.is_idempotent, self.is_producing, self.keyed,
            self._produced, self._failed, self._trouble, sum(times) / len(times) if times else None,
        )  # fmt: skip

    def end(self) -> None:
        self._ended.set()
        self._changed.set()
        for one in self._members:
            one.end()

    def join(self) -> None:
        """Wait until the threads of the lesson have ended."""
        if self._thread.is_alive():
            self._thread.join(10)
        for one in self._members:
            one.join()

    def _produce(self) -> None:
        number = 0
        while not self.is_over:
            self._changed.clear()
            producer = Producer({
                **self._settings, "acks": self.acks, "enable.idempotence": self.is_idempotent, "linger.ms": 0,
                "client.id": "classroom",
                # As Java's producers choose partitions.
                "partitioner": "murmur2_random", "message.timeout.ms": 10_000, "log_level": 0,
            })  # fmt: skip
            while not self._changed.is_set() and not self.is_over:
                if self.is_producing:
                    self._send(producer, number)
                    number += 1
                self._wait(producer, time.monotonic() + PACES[self.pace])
            producer.flush(2)
        self.end()

    def _wait(self, producer: Producer, until_s: float) -> None:
        """Poll the producer until the time is up, so that acknowledgements are noted when they arrive."""
        while time.monotonic() < until_s and not self._changed.is_set():
            producer.poll(0.05)

    def _send(self, producer: Producer, number: int) -> None:
        key = KEYS[(number * 5 + number // 4) % len(KEYS)]
        begun_s = time.perf_counter()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failed += 1
                self._trouble = error.str()
                return
            self._trouble = ""
            self._produced += 1
            took_ms = (time.perf_counter() - begun_s) * 1000
            self._sent.append(Sent(number, key, message.partition() or 0, message.offset() or 0, took_ms))

        partition = -1 if self.keyed else number % 3
        producer.produce(self.topic, f"event {number}", key if self.keyed else None, partition, delivered)
