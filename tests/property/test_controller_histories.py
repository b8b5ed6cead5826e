"""Random events of brokers, topics and disks, in any order: the invariants of the metadata hold after each.

A history is a string of bytes, four for each event: its kind, and three numbers for choices. So Hypothesis can generate
histories quickly, and shrink one that fails. The brokers are as faulty as brokers can be: they crash, register again
too early, shut down cleanly or not, lose disks, send outdated requests, and propose any ISR.

After every event:

    replicas ⊇ isr, elr; no replica twice, none in both      the leader is in sync, unfenced, and its disk is online
    in-sync replicas are unfenced, none is shutting down      no leader ⇒ no replica that may lead is up
    epochs only grow; one leader for each leader epoch        no change without a new partition epoch
    a replica is in sync or eligible, until one of them       an unclean election was allowed; it is recovering
    restarts after a crash
    a replay of the log gives the same image (in `Cluster.image`)

and nothing is lost: leaders are assumed to commit a record whenever enough replicas are in sync, so that the others
lag. A replica that is in sync, eligible, or leads without recovering has every committed record.

And at the end, when all brokers are up and every leader reports all replicas in sync: all reassignments are complete,
all replicas are in sync, and preferred leaders lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.base.ids import Uuid
from pessoa.controller.assignments import is_active, is_directory_online
from pessoa.metadata.image import MetadataImage, PartitionImage, TopicImage
from pessoa.metadata.loader import MetadataLoader
from pessoa.metadata.topics_image import RECOVERED, RECOVERING
from pessoa.wire.api.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from pessoa.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest, DirectoryData
from pessoa.wire.api.assign_replicas_to_dirs import PartitionData as AssignedPartition
from pessoa.wire.api.assign_replicas_to_dirs import TopicData as AssignedTopic
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import BrokerRegistrationResponse
from pessoa.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.support.admin_script import BROKER, SET, TOPIC, alter, create, delete, elect, reassign, topic
from tests.unit.controller.conftest import Client, Cluster

BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b")
MINIMUM = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
_NO_LEADER = -1


@dataclass
class Node:
    """The state of a broker on the broker itself."""

    directories: list[Uuid]
    incarnation: int = 0
    epoch: int = -1
    # Of its last life, if that one stopped in order.
    previous_epoch: int = -1
    offline: set[Uuid] = field(default_factory=set)


class History:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.nodes = {one: Node([Uuid.of(5000 + 10 * one), Uuid.of(5001 + 10 * one)]) for one in BROKERS}
        # (topic, partition, leader epoch) → who led in it.
        self.leaders: dict[tuple[Uuid, int, int], int] = {}
        # (topic, partition) → who has everything that was ever committed.
        self.holders: dict[tuple[Uuid, int], set[int]] = {}
        # What the event that is being played may do, as it says itself.
        self.may_lose = False
        self.may_be_unclean = False
        # What has been checked so far.
        self.checked = len(self.cluster.quorum.images)
        self.before = self.image
        self.reported: tuple[int, ...] = ()

    @property
    def image(self) -> MetadataImage:
        return self.cluster.image

    async def ask(self, request: Message) -> Message:
        response = await self.cluster.controller.decide(request, Client())
        self.check()
        return response

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        return partitions_of(self.image)

    def chosen(self, number: int) -> tuple[TopicImage, int, PartitionImage] | None:
        every = list(self.partitions())
        return every[number % len(every)] if every else None

    # ---- Events. Each takes three numbers from 0 to 255. ----

    async def register(self, who: int, how: int, _: int) -> None:
        broker_id = BROKERS[who % len(BROKERS)]
        node = self.nodes[broker_id]
        node.incarnation += 1
        if how & 2:
            # An operator has mended its disks: a running broker does not use again a disk that has failed.
            node.offline.clear()
        is_clean = how % 2 == 0 and not node.offline
        await self._register(broker_id, node.previous_epoch if is_clean else -1)

    async def _register(self, broker_id: int, previous_epoch: int) -> None:
        node = self.nodes[broker_id]
        request = self.cluster.registration(
            broker_id,
            node.incarnation,
            log_dirs=[one for one in node.directories if one not in node.offline] or node.directories,
            previous_broker_epoch=previous_epoch,
            rack=f"rack-{broker_id % 2}",
        )
        known = self.image.cluster.brokers.get(broker_id)
        self.may_lose = known is None or previous_epoch != known.epoch
        response = await self.ask(request)
        assert isinstance(response, BrokerRegistrationResponse)
        if response.error_code == ErrorCode.NONE:
            if response.broker_epoch != node.epoch and self.may_lose:
                for holders in self.holders.values():
                    holders.discard(broker_id)
            node.epoch, node.previous_epoch = response.broker_epoch, -1

    async def again(self, who: int, _how: int, _: int) -> None:
        """Register the same incarnation of a broker once more."""
        await self._register(BROKERS[who % len(BROKERS)], -1)

    async def heartbeat(self, who: int, how: int, _: int) -> None:
        await self._heartbeat(who, is_behind=how % 8 == 0)

    async def want_fence(self, who: int, _how: int, _: int) -> None:
        await self._heartbeat(who, want_fence=True)

    async def want_shut_down(self, who: int, _how: int, _: int) -> None:
        await self._heartbeat(who, want_shut_down=True)

    async def _heartbeat(
        self, who: int, *, want_fence: bool = False, want_shut_down: bool = False, is_behind: bool = False
    ) -> None:
        broker_id = BROKERS[who % len(BROKERS)]
        node = self.nodes[broker_id]
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=node.epoch,
            current_metadata_offset=0 if is_behind else self.cluster.quorum.log_end_offset - 1,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=sorted(node.offline),
        )
        response = await self.ask(request)
        assert isinstance(response, BrokerHeartbeatResponse)
        if response.should_shut_down and not node.offline:
            node.previous_epoch = node.epoch

    async def lose_disk(self, who: int, which: int, _: int) -> None:
        node = self.nodes[BROKERS[who % len(BROKERS)]]
        node.offline.add(node.directories[which % 2])
        await self._heartbeat(who)

    async def pass_time(self, much: int, _how: int, _: int) -> None:
        self.cluster.clock.advance_ms(much * 100)
        self._tick()

    async def suspect(self, who: int, _how: int, _: int) -> None:
        self.cluster.controller.suspect(BROKERS[who % len(BROKERS)])
        self.cluster.clock.advance_ms(1_001)
        self._tick()

    def _tick(self) -> None:
        now_ms = self.cluster.clock.monotonic_ms()
        deadline_ms = self.cluster.controller.tick(now_ms)
        assert deadline_ms is not None
        assert deadline_ms > now_ms, "what was due has been done"

    async def fail_over(self, _who: int, _how: int, _: int) -> None:
        self.cluster.controller.deactivate()
        self.cluster.quorum.epoch += 1
        await self.cluster.controller.activate(self.cluster.quorum.loader, [])

    async def create(self, name: int, shape: int, how: int) -> None:
        wanted = topic(NAMES[name % len(NAMES)], 1 + shape % 3, 1 + shape // 3 % 3)
        await self.ask(create(wanted))
        await self.reconfigure(name, how, shape)

    async def delete(self, name: int, _how: int, _: int) -> None:
        await self.ask(delete(NAMES[name % len(NAMES)]))

    async def add_partition(self, name: int, _how: int, _: int) -> None:
        made = self.image.topics.by_name.get(NAMES[name % len(NAMES)])
        if made is not None:
            wanted = CreatePartitionsTopic(name=made.name, count=len(made.partitions) + 1, assignments=None)
            await self.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False))

    async def reconfigure(self, name: int, key: int, value: int) -> None:
        choice = (MINIMUM, str(1 + value % 3)) if key % 2 else (UNCLEAN, "true" if value % 4 == 0 else "false")
        is_for_all = key % 7 == 0
        kind, resource = (BROKER, "") if is_for_all else (TOPIC, NAMES[name % len(NAMES)])
        await self.ask(alter(kind, resource, (choice[0], SET, choice[1])))

    async def report_isr(self, which: int, members: int, how: int) -> None:
        """Send AlterPartition of the leader with a new ISR, or of another replica with an outdated one."""
        found = self.chosen(which)
        if found is None:
            return
        made, index, one = found
        isr = [replica for position, replica in enumerate(one.replicas) if members >> position & 1]
        if one.leader not in isr:
            isr.append(one.leader)
        # One of eight is stale in some way.
        stale = {1: "leader epoch", 2: "partition epoch", 3: "leader", 4: "broker epoch", 5: "life"}.get(how % 8)
        speaker = one.leader if stale != "leader" else one.replicas[how // 8 % len(one.replicas)]
        node = self.nodes.get(speaker)
        data = PartitionData(
            partition_index=index,
            leader_epoch=one.leader_epoch - (stale == "leader epoch"),
            partition_epoch=one.partition_epoch - (stale == "partition epoch"),
            leader_recovery_state=one.leader_recovery_state if how & 64 else RECOVERED,
            new_isr_with_epochs=[
                BrokerState(
                    broker_id=member,
                    broker_epoch=(self.nodes[member].epoch if member in self.nodes else 0) - (stale == "life"),
                )
                for member in isr
            ],
        )
        request = AlterPartitionRequest(
            broker_id=speaker,
            broker_epoch=(node.epoch if node is not None else 0) - (stale == "broker epoch"),
            topics=[TopicData(topic_id=made.id, partitions=[data])],
        )
        before = self.image
        self.reported = tuple(isr)
        await self.ask(request)
        is_refused = stale is not None and not (stale == "leader" and speaker == one.leader)
        assert not is_refused or self.image is before, f"a stale {stale} changes nothing"

    async def move(self, which: int, members: int, how: int) -> None:
        found = self.chosen(which)
        if found is not None:
            replicas = [each for position, each in enumerate(BROKERS) if members >> position & 1] or [BROKERS[0]]
            start = how % len(replicas)
            await self.ask(reassign(found[0].name, found[1], replicas[start:] + replicas[:start]))

    async def cancel_move(self, which: int, _how: int, _: int) -> None:
        found = self.chosen(which)
        if found is not None:
            await self.ask(reassign(found[0].name, found[1], None))

    async def elect(self, which: int, kind: int, _: int) -> None:
        found = self.chosen(which)
        if found is not None:
            self.may_be_unclean = kind % 4 == 1
            await self.ask(elect(1 if self.may_be_unclean else 0, (found[0].name, found[1])))

    async def assign_directory(self, which: int, who: int, directory: int) -> None:
        found = self.chosen(which)
        if found is None:
            return
        made, index, one = found
        broker_id = one.replicas[who % len(one.replicas)]
        node = self.nodes[broker_id]
        partitions = [AssignedPartition(partition_index=index)]
        directories = [
            DirectoryData(
                id=node.directories[directory % 2], topics=[AssignedTopic(topic_id=made.id, partitions=partitions)]
            )
        ]
        await self.ask(
            AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=node.epoch, directories=directories)
        )

    async def unregister(self, who: int, how: int, _: int) -> None:
        if how % 4 == 0:
            await self.ask(UnregisterBrokerRequest(broker_id=BROKERS[who % len(BROKERS)]))

    # ---- What must hold ----

    def check(self) -> None:
        """Check the invariants after each batch that the event has written, as an event can write several."""
        assert self.image is not None, "the log makes the image that the controller decides on"
        for image in self.cluster.quorum.images[self.checked :]:
            self._check(self.before, image)
            self.before = image
        self.checked = len(self.cluster.quorum.images)

    def _check(self, before: MetadataImage, after: MetadataImage) -> None:
        for made, index, one in partitions_of(after):
            self._check_shape(after, one)
            self._check_leader(after, made, index, one)
            old_topic = before.topics.by_id.get(made.id)
            old = old_topic.partitions.get(index) if old_topic is not None else None
            if old is not None:
                self._check_step(made.name, old, one)
            self._check_data(after, made, index, one)

    def _check_shape(self, image: MetadataImage, one: PartitionImage) -> None:
        replicas = set(one.replicas)
        assert len(replicas) == len(one.replicas) == len(one.directories)
        assert set(one.isr) <= replicas
        assert set(one.elr) <= replicas
        assert len({*one.isr, *one.elr}) == len(one.isr) + len(one.elr)
        assert {*one.adding_replicas, *one.removing_replicas} <= replicas
        assert all(is_active(image.cluster, replica) for replica in one.isr), "fenced brokers are not in sync"
        assert one.isr or one.elr or replicas & set(one.last_known_elr), "no replica could ever lead again"

    def _check_leader(self, image: MetadataImage, made: TopicImage, index: int, one: PartitionImage) -> None:
        if one.has_leader:
            assert one.leader in one.isr
            assert is_up(image, one, one.leader)
        elif image is self.cluster.quorum.images[-1]:
            assert not any(is_up(image, one, replica) for replica in one.isr or one.elr), "a replica could lead"
        known = self.leaders.setdefault((made.id, index, one.leader_epoch), one.leader)
        assert known == one.leader, f"{known} and {one.leader} lead in epoch {one.leader_epoch}"

    def _check_step(self, name: str, old: PartitionImage, new: PartitionImage) -> None:
        assert (new == old) == (new.partition_epoch == old.partition_epoch)
        assert new.partition_epoch >= old.partition_epoch
        assert new.leader_epoch >= old.leader_epoch
        assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
        if (old.isr or old.elr) and not (new.isr or new.elr):
            assert self.may_lose, "who has everything is forgotten without need"
        known_to_have_all = {*old.isr, *old.elr, *self.reported}
        if new.leader not in (old.leader, _NO_LEADER) and new.leader not in known_to_have_all:
            assert new.leader_recovery_state == RECOVERING
            assert new.isr == (new.leader,)
            assert self._unclean_is_allowed(name) or old.last_known_elr == (new.leader,)

    def _check_data(self, image: MetadataImage, made: TopicImage, index: int, one: PartitionImage) -> None:
        holders = self.holders.setdefault((made.id, index), set(one.replicas))
        if one.has_leader and one.leader not in holders | set(self.reported):
            assert one.leader_recovery_state == RECOVERING, "a clean leader lacks what was committed"
            holders.clear()
            holders.add(one.leader)
        # A replica that enters the ISR has caught up with the leader.
        assert set(one.isr) <= holders | set(self.reported)
        holders.update(one.isr)
        assert set(one.elr) <= holders, "who is eligible lacks what was committed"
        minimum = min(int(setting(image, made.name, MINIMUM) or 1), len(one.replicas))
        if one.has_leader and len(one.isr) >= minimum:
            holders.intersection_update(one.isr)

    def _unclean_is_allowed(self, name: str) -> bool:
        return self.may_be_unclean or setting(self.image, name, UNCLEAN) == "true"

    # ---- The end ----

    async def heal(self) -> None:
        self.cluster.clock.advance_ms(9_001)
        self._tick()
        for who, broker_id in enumerate(BROKERS):
            node = self.nodes[broker_id]
            node.offline.clear()
            node.incarnation += 1
            await self._register(broker_id, -1)
            await self._heartbeat(who)
        self.check()
        for _ in range(2):
            for made, index, one in list(self.partitions()):
                assert one.has_leader, f"{made.name}-{index} has no leader: {one}"
                await self._report_all(made, index, one)
        self.cluster.clock.advance_ms(301_000)
        for who in range(len(BROKERS)):
            await self._heartbeat(who)
        self._tick()
        for _made, _index, one in self.partitions():
            assert not one.is_reassigning
            assert set(one.isr) == set(one.replicas)
            assert one.leader == one.preferred_leader
            assert not one.elr
            assert not one.last_known_elr
            assert one.leader_recovery_state == RECOVERED

    async def _report_all(self, made: TopicImage, index: int, one: PartitionImage) -> None:
        data = PartitionData(
            partition_index=index,
            leader_epoch=one.leader_epoch,
            partition_epoch=one.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=self.nodes[each].epoch) for each in one.replicas
            ],
        )
        topics = [TopicData(topic_id=made.id, partitions=[data])]
        self.reported = one.replicas
        epoch = self.nodes[one.leader].epoch
        await self.ask(AlterPartitionRequest(broker_id=one.leader, broker_epoch=epoch, topics=topics))


def partitions_of(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for made in image.topics.by_name.values():
        for index, partition in made.partitions.items():
            yield made, index, partition


def setting(image: MetadataImage, name: str, key: str) -> str | None:
    return image.configs.of(TOPIC, name).get(key) or image.configs.of(BROKER, "").get(key)


def is_up(image: MetadataImage, one: PartitionImage, replica: int) -> bool:
    cluster = image.cluster
    return is_active(cluster, replica) and is_directory_online(cluster, replica, one.directory_of(replica))


# How often each event comes is how often it stands here.
EVENTS: tuple[Callable[..., object], ...] = (
    History.register, History.register, History.again, History.heartbeat, History.heartbeat, History.heartbeat,
    History.heartbeat, History.want_fence, History.want_shut_down, History.want_shut_down, History.lose_disk,
    History.pass_time, History.pass_time, History.suspect, History.fail_over, History.create,
    History.create, History.delete, History.add_partition, History.reconfigure, History.reconfigure,
    History.report_isr, History.report_isr, History.report_isr, History.report_isr, History.report_isr, History.move,
    History.move, History.cancel_move, History.elect, History.assign_directory, History.unregister,
)  # fmt: skip


async def play(history: History, script: bytes) -> None:
    for who in range(len(BROKERS)):
        await history.register(who, 0, 0)
        await history.heartbeat(who, 1, 0)
    await history.create(0, 8, 1)
    history.check()
    for start in range(0, len(script) - 3, 4):
        kind, *numbers = script[start : start + 4]
        history.may_lose = history.may_be_unclean = False
        history.reported = ()
        event = EVENTS[kind % len(EVENTS)]
        await event(history, *numbers)  # type: ignore[misc]
        history.check()
    await history.heal()
    read_anew = MetadataLoader()
    offset = 0
    for batch in history.cluster.quorum.batches:
        offset += len(batch)
        read_anew.load(batch, offset, history.cluster.quorum.epoch)
    assert read_anew.image.topics == history.image.topics
    assert read_anew.image.cluster == history.image.cluster


@settings(max_examples=250)
@given(st.binary(min_size=200, max_size=400))
def test_the_invariants_of_the_metadata_hold_after_every_event(script: bytes) -> None:
    history = History()
    asyncio.run(play(history, script))
