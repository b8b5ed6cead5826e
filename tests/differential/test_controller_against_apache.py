"""Our controller and Apache's, with the same simulated brokers.

A controller never sends requests to a broker, it only answers. So the test plays four brokers, towards Apache's
controller over its listener and towards ours in this process. Both get the same registrations, heartbeats, ISR changes,
reassignments, elections, configurations and deletions, drawn from a seed; after each step the responses are compared,
and each partition and broker in the metadata log: leaders, ISR, ELR, and both epochs.

Left out is what depends on time (Apache's clock is real) and what we do differently on purpose (docs/DEVIATIONS.md).
Each controlled shutdown takes a second: Apache's own broker has to learn of it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest

from pessoa.base.ids import Uuid
from pessoa.controller.assignments import is_directory_online
from pessoa.metadata.image import MetadataImage, PartitionImage
from pessoa.metadata.loader import MetadataLoader
from pessoa.metadata.supported_features import FEATURES
from pessoa.metadata.topics_image import RECOVERED
from pessoa.records.batch import batches
from pessoa.records.record import records
from pessoa.wire.api.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from pessoa.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest, DirectoryData
from pessoa.wire.api.assign_replicas_to_dirs import PartitionData as AssignedPartition
from pessoa.wire.api.assign_replicas_to_dirs import TopicData as AssignedTopic
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from pessoa.wire.api.create_topics import CreateTopicsResponse
from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import response_header_version
from pessoa.wire.schema import Message
from pessoa.wire.stored.metadata_records import NoOpRecord
from pessoa.wire.stored.record_framing import decode_metadata_record
from tests.apache.broker import HOST, ApacheKafka
from tests.support.admin_script import BROKER, SET, TOPIC, alter, comparable, create, delete, elect, reassign, topic
from tests.unit.controller.conftest import Client, Cluster

pytestmark = pytest.mark.apache

# Broker 1 is Apache's own, which has no replica here.
BROKERS = (2, 3, 4, 5)
# After a reassignment Apache can take a removed replica for eligible, and its controller then fails. So
# one topic is reassigned and needs one in-sync replica, the other is not and may need two.
MOVING, STAYING = NAMES = ("moving", "staying")
MINIMUM = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
CAUGHT_UP = 1 << 40
PATIENCE_S = 120.0
STEPS = 120
# Apache's controller can fail because of stale state about deleted topics; with these seeds it does not.
SEEDS = range(8)


class Side(Protocol):
    cluster_id: str
    epochs: dict[int, int]

    def ask(self, request: Message) -> Message: ...

    @property
    def image(self) -> MetadataImage: ...


class Ours:
    def __init__(self) -> None:
        self._cluster = Cluster()
        self.cluster_id = "the-cluster"
        self.epochs: dict[int, int] = {}

    def ask(self, request: Message) -> Message:
        async def asking() -> Message:
            client = Client()
            client.version = request.versions.last
            return await self._cluster.controller.decide(request, client)

        response = asyncio.run(asking())
        return type(response).decode(response.encode(request.versions.last), request.versions.last)

    @property
    def image(self) -> MetadataImage:
        return self._cluster.image


class Apaches:
    def __init__(self, kafka: ApacheKafka) -> None:
        (node,) = kafka.nodes
        self.cluster_id = node.meta_properties()["cluster.id"]
        self.epochs: dict[int, int] = {}
        self._connection = socket.create_connection((HOST, node.controller_port), timeout=PATIENCE_S)
        self._stream = self._connection.makefile("rb")
        self._log = Path(node.data) / "__cluster_metadata-0" / "00000000000000000000.log"
        self._position = 0
        self._loader = MetadataLoader()

    def ask(self, request: Message) -> Message:
        # Apache drops a heartbeat that has waited for half an interval, which happens on a busy machine.
        deadline = time.monotonic() + PATIENCE_S
        while _is_dropped(answer := self._ask(request)):
            assert time.monotonic() < deadline, f"Apache drops {request}"
        return answer

    def _ask(self, request: Message) -> Message:
        version = request.versions.last
        self._connection.sendall(b"".join(request_frame(request, version, 7, "script")))
        body = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        kind = ApiKey(request.api_key)
        header = 4 + (1 if response_header_version(kind.request, version) else 0)
        return kind.response.decode(body[header:], version)

    @property
    def image(self) -> MetadataImage:
        """Return the image of Apache's metadata log, which is written before the response is sent."""
        data = self._log.read_bytes()[self._position :]
        for batch in batches(data):
            self._position += batch.size
            if not batch.is_control:
                read = [decode_metadata_record(record.value or b"") for record in records(batch)]
                known = [record for record in read if record is not None and not isinstance(record, NoOpRecord)]
                if known:
                    self._loader.load(known, batch.last_offset, batch.partition_leader_epoch)
        return self._loader.image

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


def _is_dropped(answer: Message) -> bool:
    return isinstance(answer, BrokerHeartbeatResponse) and answer.error_code == ErrorCode.REQUEST_TIMED_OUT


class Stage:
    """Both sides and the steps played on them. Where a request names epochs or ids, each side gets its own."""

    def __init__(self, ours: Side, apaches: Side, seed: int) -> None:
        self.sides = (ours, apaches)
        self.chance = Random(seed)
        self.incarnation = seed * 1_000
        self.directories: dict[int, list[Uuid]] = {}
        self.history: list[str] = []

    @property
    def image(self) -> MetadataImage:
        return self.sides[0].image

    def both(self, what: str, make: Callable[[Side], Message]) -> Message:
        """Send a request to both sides, and compare the responses and the metadata that they have written."""
        requests = [make(side) for side in self.sides]
        if not isinstance(requests[0], BrokerRegistrationRequest):
            what = f"{what}: {requests[0]}"
        self.history.append(what)
        answers = [side.ask(request) for side, request in zip(self.sides, requests, strict=True)]
        for side, request, answer in zip(self.sides, requests, answers, strict=True):
            if isinstance(answer, BrokerRegistrationResponse) and not answer.error_code:
                assert isinstance(request, BrokerRegistrationRequest)
                side.epochs[request.broker_id] = answer.broker_epoch
                answer.broker_epoch = 0
            elif isinstance(answer, CreateTopicsResponse):
                # The configuration of topics is compared elsewhere.
                for created in answer.topics:
                    created.configs = None
        self.compare([comparable(answer) for answer in answers])
        return answers[0]

    def compare(self, answers: list[Any]) -> None:
        ours, apaches = (side.image for side in self.sides)
        story = "\n".join(self.history[-12:])
        assert answers[0] == answers[1], story
        assert partitions_of(ours) == partitions_of(apaches), story
        assert brokers_of(ours) == brokers_of(apaches), story

    # ---- What happens ----

    def reset(self) -> None:
        names = sorted(self.image.topics.by_name)
        for side in self.sides:
            side.ask(delete(*names))
        for broker_id in BROKERS:
            self.start(broker_id)

    def start(self, broker_id: int) -> None:
        """Register the broker with a new incarnation id, without waiting for the end of its last session."""
        if broker_id in self.image.cluster.brokers:
            self.both("unregister", lambda _: UnregisterBrokerRequest(broker_id=broker_id))
        self.incarnation += 1
        # New directory ids at every start: Apache keeps state about a directory when a topic is deleted, and
        # its controller fails because of it when the directory goes offline.
        self.directories[broker_id] = [Uuid.of(500_000 + 2 * self.incarnation + which) for which in range(2)]
        self.both("register", lambda side: self._registration(side, broker_id))
        self.beat(broker_id)

    def _registration(self, side: Side, broker_id: int) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=side.cluster_id,
            incarnation_id=Uuid.of(10_000 + self.incarnation),
            listeners=[Listener(name="PLAINTEXT", host=HOST, port=9000 + broker_id, security_protocol=0)],
            features=[
                Feature(name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level)
                for one in FEATURES
            ],
            rack=None,
            log_dirs=self.directories[broker_id],
        )

    def beat(self, broker_id: int, **changes: Any) -> BrokerHeartbeatResponse:
        def heartbeat(side: Side) -> Message:
            request = BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=side.epochs[broker_id],
                current_metadata_offset=CAUGHT_UP,
                want_fence=False,
                want_shut_down=False,
            )
            for name, value in changes.items():
                setattr(request, name, value)
            return request

        answer = self.both("heartbeat", heartbeat)
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer

    def step(self) -> None:
        events = {
            self._create: 3, self._report_isr: 10, self._beat: 6, self._fence: 3, self._restart: 3, self._move: 4,
            self._cancel: 2, self._elect: 3, self._reconfigure: 2, self._delete: 1, self._assign: 2, self._lose_disk: 1,
            self._stale: 2, self._stop: 1,
        }  # fmt: skip
        (event,) = self.chance.choices(list(events), list(events.values()))
        event()

    def _partition(self) -> tuple[str, int] | None:
        every = [(made.name, index) for made in self.image.topics.by_name.values() for index in made.partitions]
        return self.chance.choice(sorted(every)) if every else None

    def _create(self) -> None:
        name = self.chance.choice(NAMES)
        factor = self.chance.randint(1, 3)
        assignments = {index: self.chance.sample(BROKERS, factor) for index in range(self.chance.randint(1, 2))}
        self.both("create", lambda _: create(topic(name, -1, -1, assignments)))

    def _delete(self) -> None:
        name = self.chance.choice(NAMES)
        self.both("delete", lambda _: delete(name))

    def _report_isr(self) -> None:
        self._say_isr(0, 0, 0)

    def _stale(self) -> None:
        self._say_isr(*self.chance.choice([(-1, 0, 0), (0, -1, 0), (0, 0, -1), (1, 0, 0), (0, 1, 0)]))

    def _say_isr(self, leader_epoch: int, partition_epoch: int, broker_epoch: int) -> None:
        chosen = self._partition()
        if chosen is None:
            return
        name, index = chosen
        one = self.image.topics.by_name[name].partitions[index]
        members = [
            each
            for each in one.replicas
            if each == one.leader or (self.chance.random() < 0.7 and self._has_disk(each, one.directory_of(each)))
        ]
        speaker = one.leader if one.has_leader else one.replicas[0]
        if speaker not in self.sides[0].epochs:
            return
        state = one.leader_recovery_state if self.chance.random() < 0.3 else RECOVERED

        def report(side: Side) -> Message:
            data = PartitionData(
                partition_index=index,
                leader_epoch=one.leader_epoch + leader_epoch,
                partition_epoch=one.partition_epoch + partition_epoch,
                leader_recovery_state=state,
                new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=side.epochs[each]) for each in members],
            )
            topics = [TopicData(topic_id=side.image.topics.by_name[name].id, partitions=[data])]
            epoch = side.epochs[speaker] + broker_epoch
            return AlterPartitionRequest(broker_id=speaker, broker_epoch=epoch, topics=topics)

        self.both("isr", report)

    def _has_disk(self, broker_id: int, directory: Uuid) -> bool:
        cluster = self.image.cluster
        return broker_id not in cluster.brokers or is_directory_online(cluster, broker_id, directory)

    def _beat(self) -> None:
        broker_id = self.chance.choice(BROKERS)
        if not self.image.cluster.brokers[broker_id].in_controlled_shutdown:
            self.beat(broker_id)

    def _fence(self) -> None:
        self.beat(self.chance.choice(BROKERS), want_fence=True)

    def _restart(self) -> None:
        self.start(self.chance.choice(BROKERS))

    def _stop(self) -> None:
        """Play a controlled shutdown until the leaders have moved and all unfenced brokers know of it."""
        broker_id = self.chance.choice(BROKERS)
        if not self.image.cluster.brokers[broker_id].fenced:
            self.both("stop", lambda side: stopping(side, broker_id))
            others = [each for each in BROKERS if each != broker_id and not self.image.cluster.brokers[each].fenced]
            for each in others:
                if not self.image.cluster.brokers[each].in_controlled_shutdown:
                    self.beat(each)
            for side in self.sides:
                wait_until_stopped(side, broker_id)
            self.compare([None, None])

    def _move(self) -> None:
        chosen = self._partition()
        if chosen is None or chosen[0] != MOVING:
            return
        one = self.image.topics.by_name[chosen[0]].partitions[chosen[1]]
        if one.is_reassigning or not one.has_leader:
            return
        replicas = self.chance.sample(BROKERS, self.chance.randint(1, 3))
        self.both("move", lambda _: reassign(*chosen, replicas))

    def _cancel(self) -> None:
        chosen = self._partition()
        if chosen is None:
            return
        one = self.image.topics.by_name[chosen[0]].partitions[chosen[1]]
        if set(one.isr) - set(one.adding_replicas) or not one.is_reassigning:
            self.both("cancel", lambda _: reassign(*chosen, None))

    def _elect(self) -> None:
        chosen = self._partition()
        kind = self.chance.choice([0, 0, 1])
        if chosen is not None:
            self.both("elect", lambda _: elect(kind, chosen))

    def _reconfigure(self) -> None:
        if any(not one.isr for made in self.image.topics.by_name.values() for one in made.partitions.values()):
            # With an empty ISR such a change leaves our eligible leader replicas as they are, unlike Apache's.
            return
        kind, name = self.chance.choice([(BROKER, ""), (TOPIC, MOVING), (TOPIC, STAYING), (TOPIC, STAYING)])
        choices = [(UNCLEAN, "true"), (UNCLEAN, "false"), *([(MINIMUM, "1"), (MINIMUM, "2")] * (name == STAYING))]
        key, value = self.chance.choice(choices)
        self.both("configure", lambda _: alter(kind, name, (key, SET, value)))

    def _assign(self) -> None:
        chosen = self._partition()
        if chosen is None:
            return
        name, index = chosen
        one = self.image.topics.by_name[name].partitions[index]
        if not one.has_leader:
            # We may elect a replica at once when its directory is online; Apache waits for another event.
            return
        broker_id = self.chance.choice(one.replicas)
        directory = self.chance.choice(self.directories[broker_id])

        def assign(side: Side) -> Message:
            topics = [
                AssignedTopic(
                    topic_id=side.image.topics.by_name[name].id, partitions=[AssignedPartition(partition_index=index)]
                )
            ]
            return AssignReplicasToDirsRequest(
                broker_id=broker_id,
                broker_epoch=side.epochs[broker_id],
                directories=[DirectoryData(id=directory, topics=topics)],
            )

        self.both("assign", assign)

    def _lose_disk(self) -> None:
        broker_id = self.chance.choice(BROKERS)
        broker = self.image.cluster.brokers[broker_id]
        if not broker.fenced and not broker.in_controlled_shutdown:
            self.beat(broker_id, offline_log_dirs=[self.directories[broker_id][0]])


def stopping(side: Side, broker_id: int) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=side.epochs[broker_id],
        current_metadata_offset=CAUGHT_UP,
        want_fence=False,
        want_shut_down=True,
    )


def wait_until_stopped(side: Side, broker_id: int) -> None:
    """Repeat the heartbeat until the broker is fenced; Apache's own broker must learn of it by its heartbeats."""
    deadline = time.monotonic() + PATIENCE_S
    while not side.image.cluster.brokers[broker_id].fenced:
        assert time.monotonic() < deadline, f"broker {broker_id} cannot stop"
        side.ask(stopping(side, broker_id))


def partitions_of(image: MetadataImage) -> dict[str, PartitionImage]:
    return {
        f"{made.name}-{index}": one for made in image.topics.by_name.values() for index, one in made.partitions.items()
    }


def brokers_of(image: MetadataImage) -> dict[int, Any]:
    # We set in_controlled_shutdown of a fenced broker also if it led nothing; Apache does not look at it there.
    return {
        broker.id: (
            broker.fenced,
            broker.in_controlled_shutdown and not broker.fenced,
            broker.directories,
            broker.cordoned_directories,
        )
        for broker in image.cluster.brokers.values()
        if broker.id in BROKERS
    }


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    settings = {
        "broker.session.timeout.ms": 3_600_000,
        # A broker in controlled shutdown waits for this heartbeat.
        "broker.heartbeat.interval.ms": 1_000,
        # Apache's periodic tasks of every five minutes are not part of the comparison.
        "auto.leader.rebalance.enable": False,
        "unclean.leader.election.interval.ms": 3_600_000,
    }
    with ApacheKafka(properties=settings) as kafka:
        apaches = Apaches(kafka)
        yield Ours(), apaches
        apaches.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories_of_brokers_leave_our_controller_in_the_same_state_as_apaches(
    sides: tuple[Side, Side], seed: int
) -> None:
    stage = Stage(*sides, seed)
    stage.reset()
    for _ in range(STEPS):
        stage.step()
