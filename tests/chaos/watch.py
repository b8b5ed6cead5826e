"""Observers of the brokers during faults, which report at once when an invariant is violated.

Three observers query one broker each, all the time, and compare the responses:

    metadata    a partition has one leader in an epoch, on every broker; only replicas are in the ISR, and the
                leader is one of those
    ends        high watermark, last stable offset and log start never go back, also with a new leader (KIP-207)
    groups      a partition has one owner in each generation that the coordinator describes

A leader that was isolated or paused does not know that it was replaced, and answers with an old offset. Clients are
protected by the leader epoch that they send (KIP-320), and so are the observers: they send the latest epoch that any of
them has received, and remember the known offsets before they send a request.

A fourth observer reads OUT, the topic of the transactions, with read_committed: every record that it has read must be
there in the end and be committed, so a record that was visible too early is detected when its transaction is aborted.
Nor may it read a record of a transaction before the producer requests the commit. So everything that is read was
committed before, and transactions that read from each other in a circle (G1c) are impossible: each would have been
committed before the other.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from pessoa.client.blocking_connection import Connection, ConnectionFailed
from pessoa.client.client_errors import HandshakeFailed, RequestFailed, Unsupported
from pessoa.coordinator.groups.classic.consumer_payloads import read_assignment
from pessoa.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.errors import ErrorCode
from tests.chaos.load import GROUP, IN, OUT, PARTITIONS, Load, place_of
from tests.chaos.processes import IMPATIENT, TIMEOUT_S
from tests.simulation.history import TopicPartition, Violation

_PATIENCE_S = 2.0
_EVERY_S = 0.1
_LATEST, _EARLIEST = -1, -2
# The queried offsets: name, isolation level, and the special timestamp in ListOffsets.
_QUESTIONS = (("high watermark", 0, _LATEST), ("last stable offset", 1, _LATEST), ("log start", 0, _EARLIEST))


class Watch:
    def __init__(self, addresses: Iterable[str], load: Load, security: Mapping[str, str] | None = None) -> None:
        """`security` has the settings with which the observers log in."""
        self._load = load
        self._security = security or {}
        self._done = Event()
        self._lock = Lock()
        self.answers = 0
        self.groups_seen = 0
        self.seen = 0
        self._leaders: dict[tuple[TopicPartition, int], tuple[int, str]] = {}
        self._epochs: dict[TopicPartition, int] = {}
        # (name of the offset, partition) → the largest known offset
        self._ends: dict[tuple[str, TopicPartition], int] = {}
        self._threads = [Thread(target=self._observe, args=(one,), daemon=True) for one in addresses]
        self._threads.append(Thread(target=self._read_committed, daemon=True))

    def __repr__(self) -> str:
        return (
            f"<Watch: {self.answers} ends, {len(self._leaders)} terms of leaders, {self.groups_seen} assignments "
            f"and {self.seen} records of {OUT} seen>"
        )

    def start(self) -> None:
        for one in self._threads:
            one.start()

    def finish(self) -> None:
        self.abandon()
        for one in self._threads:
            one.join(3 * TIMEOUT_S)
            assert not one.is_alive(), f"{self!r} did not end"
        assert self.answers, "no broker answered the observers"
        self._load.raise_problems()

    def abandon(self) -> None:
        self._done.set()

    # Observers.

    def _observe(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        connection: Connection | None = None
        while not self._done.wait(_EVERY_S):
            deadline = time.monotonic() + _PATIENCE_S
            try:
                connection = connection or Connection(host, int(port), "observer", self._security, deadline)
                led = self._ask_for_leaders(connection, address, deadline)
                for question in _QUESTIONS if led else ():
                    self._ask_for_ends(connection, address, led, question, deadline)
                self._ask_for_owners(connection, address, deadline)
            except (ConnectionFailed, HandshakeFailed, RequestFailed, Unsupported, TimeoutError):
                # Expected: the broker is dead, paused, isolated or starting.
                if connection is not None:
                    connection.close()
                connection = None
            except Violation as problem:
                self._load.problems.append(f"the observer of {address}: {problem}")
        if connection is not None:
            connection.close()

    def _ask_for_leaders(self, connection: Connection, address: str, deadline: float) -> list[TopicPartition]:
        """Return the partitions that the broker itself claims to lead."""
        topics = [MetadataRequestTopic(name=name) for name in (IN, OUT)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = connection.send(request, MetadataResponse, deadline)
        own = [one.node_id for one in answer.brokers if f"{one.host}:{one.port}" == address]
        led = []
        for topic in answer.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name or "", found.partition_index)
                self.hear_of_in_sync(partition, found.leader_id, found.isr_nodes, found.replica_nodes, address)
                self.hear_of_leader(partition, found.leader_epoch, found.leader_id, address)
                if found.leader_id in own:
                    led.append(partition)
        return led

    def hear_of_in_sync(
        self, partition: TopicPartition, leader: int, in_sync: Collection[int], replicas: Collection[int], address: str
    ) -> None:
        strangers = set(in_sync) - set(replicas)
        if strangers:
            raise Violation(f"{partition}: {strangers} are in sync, but no replicas, says {address}")
        if leader >= 0 and leader not in in_sync:
            raise Violation(f"{partition}: {leader} leads, and only {in_sync} are in sync, says {address}")

    def hear_of_leader(self, partition: TopicPartition, epoch: int, leader: int, address: str) -> None:
        # A broker that does not know the leader says -1.
        if leader < 0:
            return
        with self._lock:
            self._epochs[partition] = max(epoch, self._epochs.get(partition, -1))
            known, witness = self._leaders.setdefault((partition, epoch), (leader, address))
            if known != leader:
                raise Violation(
                    f"two leaders of {partition} in epoch {epoch}: {known}, says {witness}; {leader}, says {address}"
                )

    def _ask_for_ends(
        self,
        connection: Connection,
        address: str,
        led: list[TopicPartition],
        question: tuple[str, int, int],
        deadline: float,
    ) -> None:
        what, isolation, timestamp = question
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        with self._lock:
            floors = {partition: self.floor(what, partition) for partition in led}
            for partition in led:
                asked = ListOffsetsPartition(
                    partition_index=partition.number,
                    current_leader_epoch=self._epochs[partition],
                    timestamp=timestamp,
                )
                by_topic.setdefault(partition.topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
            timeout_ms=int(1000 * _PATIENCE_S),
        )
        answer = connection.send(request, ListOffsetsResponse, deadline)
        for topic in answer.topics:
            for found in topic.partitions:
                if not found.error_code:
                    partition = TopicPartition(topic.name, found.partition_index)
                    self.hear_of_end(what, partition, found.offset, floors[partition], address)

    def floor(self, what: str, partition: TopicPartition) -> int:
        """Return the lowest offset that the response to a request sent from now on may have."""
        return self._ends.get((what, partition), 0)

    def hear_of_end(self, what: str, partition: TopicPartition, offset: int, floor: int, address: str) -> None:
        if offset < floor:
            raise Violation(f"the {what} of {partition} went back from {floor} to {offset}, says {address}")
        with self._lock:
            self.answers += 1
            self._ends[what, partition] = max(offset, self.floor(what, partition))

    def _ask_for_owners(self, connection: Connection, address: str, deadline: float) -> None:
        answer = connection.send(DescribeGroupsRequest(groups=[GROUP]), DescribeGroupsResponse, deadline)
        for group in answer.groups:
            # Only the group's coordinator describes it.
            if group.error_code == ErrorCode.NONE:
                self.hear_of_owners({one.member_id: one.member_assignment for one in group.members}, address)

    def hear_of_owners(self, assignments: Mapping[str, bytes], address: str) -> None:
        owners: dict[TopicPartition, str] = {}
        for member, assignment in assignments.items():
            for partition in owned_partitions(assignment):
                other = owners.setdefault(partition, member)
                if other != member:
                    raise Violation(f"{partition} belongs to {other} and to {member}, says {address}")
        if owners:
            self.groups_seen += 1

    # The reader of OUT.

    def _read_committed(self) -> None:
        consumer = Consumer(
            {
                "group.id": "watch",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **IMPATIENT,
                **self._load.client,
            }
        )
        last: dict[int, int] = {}
        try:
            consumer.assign([RdTopicPartition(OUT, number, 0) for number in range(PARTITIONS)])
            while not self._done.is_set():
                for message in consumer.consume(500, 0.1):
                    if message.error() is not None:
                        continue
                    self.see(*place_of(message), last)
        except (KafkaException, Violation) as problem:
            self._load.problems.append(f"the reader of {OUT}: {problem}")
        finally:
            with suppress(KafkaException):
                consumer.close()

    def see(self, number: int, offset: int, value: bytes, last: dict[int, int]) -> None:
        """Check a record that was read; `last` is partition → the offset that was read before."""
        if offset <= last.get(number, -1):
            raise Violation(f"{OUT}-{number}@{offset} is polled after {last[number]}")
        last[number] = offset
        with self._load.lock:
            self._load.history.see("watch", TopicPartition(OUT, number), offset, value, is_committed=True)
            transaction = self._load.history.writes[value].transaction
        if transaction is not None and transaction.name not in self._load.commits_begun:
            raise Violation(
                f"{value!r} is visible at {OUT}-{number}@{offset}, and {transaction.name} was never committed"
            )
        self.seen += 1


def owned_partitions(assignment: bytes) -> list[TopicPartition]:
    """Return the partitions of an assignment, which is empty while the group rebalances."""
    found = read_assignment(assignment).assigned_partitions if assignment else []
    return [TopicPartition(topic.topic, number) for topic in found for number in topic.partitions]
