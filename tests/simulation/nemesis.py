"""The nemesis injects the faults of the plan while clients work, one after another or at once, and heals each after a
while.

It respects what Kafka promises. A machine that loses power may lose records that it had not synced; none is lost for
the cluster while another in-sync replica has them. So only one machine loses power, and no other dies until all
replicas are in sync again, unless the plan syncs every batch before it is acknowledged. (A process that dies counts
like a machine: the controller cannot know that its page cache has survived, KIP-966.) Unless the plan is harsh, a
majority stays up.
"""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.history import Violation
from tests.simulation.network import Weather
from tests.simulation.plan import SECURITY_FAULTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from random import Random

    from pessoa.log.simulated_disk import KindOrAll
    from tests.simulation.cluster import Cluster
    from tests.simulation.node import Node

# API keys of requests that may be held and delivered later: Produce, EndTxn, TxnOffsetCommit, AddPartitionsToTxn.
_HELD_APIS = frozenset((0, 24, 26, 28))
# And of share groups: ShareFetch, ShareAcknowledge, InitializeShareGroupState, WriteShareGroupState.
_HELD_SHARE_APIS = frozenset((78, 79, 83, 85))
# The disk operations of a compaction pass: writing cleaned segments, swapping them in, writing the checkpoint.
_STEPS_OF_CLEANING: tuple[tuple[KindOrAll, str], ...] = (
    ("change", "*.cleaned"),
    ("rename", "*.cleaned"),
    ("rename", "*.log"),
    ("change", "*.swap"),
    ("remove", "*.deleted"),
    ("sync_directory", "*-[0-9]"),
    ("change", "*/cleaner-offset-checkpoint*"),
)
# Those of the move of a log to another directory: a copy, two renames.
_STEPS_OF_MOVING: tuple[tuple[KindOrAll, str], ...] = (
    ("change", "*-future/*"),
    ("rename", "*-future"),
    ("rename", "*-[0-9]"),
    ("sync_directory", "/data"),
    ("sync_directory", "/more"),
    ("change", "*-checkpoint*"),
)
# A node that has not stopped by then is killed.
_STOP_WITHIN_S = 10.0


class Nemesis:
    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._plan = cluster.plan
        self._hurt: set[int] = set()
        # A machine may have lost unsynced records; no other may die until all replicas are in sync again.
        self._is_power_loss_unrepaired = False
        self._is_a_voter_isolated = False
        self._is_rot_unrepaired = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "power": self._lose_power,
            "election": self._disturb_election,
            "pause": self._pause,
            "stop": self._stop,
            "cut": self._cut,
            "one-way": self._cut_one_way,
            "lonely": self._isolate,
            "estranged": self._cut_from_controller,
            "late": self._storm,
            "reset": self._storm,
            "hold": self._storm,
            "clock": self._jump,
            "slow disk": self._slow_disk,
            "disk error": self._disk_error,
            "disk full": self._disk_full,
            "rot": self._rot,
            "rights": self._take_rights_away,
            "password": self._change_password,
            "token": self._expire_token,
            "cleaning": partial(self._crash_at_disk_operation, _STEPS_OF_CLEANING),
            "moving": partial(self._crash_at_disk_operation, _STEPS_OF_MOVING),
        }

    async def run(self, seconds: float) -> None:
        plan, rng = self._plan, self._rng
        loop = self._cluster.loop
        end_s = loop.now_s + seconds
        self._set_weather()
        # Runs are short, so faults of users are injected more often than others.
        of_users = [fault for fault in plan.faults if fault in SECURITY_FAULTS]
        while plan.faults and loop.now_s < end_s:
            await asyncio.sleep(0.1 + rng.random() * 1.5)
            fault = rng.choice(plan.faults)
            self._cluster.note(f"nemesis: {fault}")
            task = loop.create_task(self._faults[fault](), name=f"nemesis {fault}")
            self._tasks.add(task)
            if rng.random() < 0.6:
                await task
            if of_users and rng.random() < 0.5:
                self._cluster.order(rng.choice(of_users))
        remaining_s = end_s - loop.now_s
        if remaining_s > 0:
            await asyncio.sleep(remaining_s)

    async def heal(self) -> None:
        """Heal network and disks, and start every node that is down."""
        for task in sorted(self._tasks, key=lambda one: one.get_name()):
            task.cancel()
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cluster = self._cluster
        cluster.fabric.weather = Weather()
        cluster.fabric.heal()
        for node in cluster.nodes:
            node.disk.heal()
            node.slowness_s = 0.002
            node.resume()
            if node.is_hurt or node.is_stopping:
                # A broker takes a log directory that has failed offline for good, so it needs a new process.
                node.kill()
                node.is_hurt = False
            if not node.is_up:
                node.disk.crash_process()
                node.start()

    def _set_weather(self) -> None:
        faults = self._plan.faults
        self._cluster.fabric.weather = Weather(
            late=0.05 if "late" in faults else 0.0,
            late_s=0.4,
            split=0.02,
        )

    def _victim(self) -> Node | None:
        """Return a node without a fault, or None if no further node may have one: unless the plan is harsh, less than
        half of the brokers and less than half of the controllers."""
        if self._is_power_loss_unrepaired:
            return None
        free = [node for node in self._cluster.nodes if node.id not in self._hurt and node.is_up]
        if not self._plan.is_harsh:
            free = [node for node in free if all(self._may_lose_one(kind) for kind in self._cluster.kinds_of(node))]
        return self._rng.choice(free) if free else None

    def _may_lose_one(self, kind: list[Node]) -> bool:
        hurt = sum(node.id in self._hurt for node in kind)
        return hurt < (len(kind) if len(kind) < 3 else (len(kind) - 1) // 2)

    # Faults of one node.

    async def _kill(self) -> None:
        await self._strike_victim(lambda node: node.kill())

    async def _stop(self) -> None:
        node = self._victim()
        if node is None:
            return
        self._hurt.add(node.id)
        await asyncio.wait([node.stop()], timeout=_STOP_WITHIN_S)
        node.kill()
        await asyncio.sleep(self._rng.random() * 2)
        self._restart(node)

    async def _lose_power(self) -> None:
        plan = self._plan
        if plan.is_synced:
            if plan.is_harsh and self._rng.random() < 0.3:
                await self._lose_all_power()
            else:
                await self._strike_victim(lambda node: node.lose_power())
        elif plan.may_lose_power and not self._hurt and not self._is_power_loss_unrepaired and self._cluster.is_whole():
            victim = self._rng.choice(self._cluster.nodes)
            self._is_power_loss_unrepaired = True
            await self._strike(victim, lambda node: node.lose_power())
            await self._cluster.wait_until_whole()
            self._is_power_loss_unrepaired = False

    async def _lose_all_power(self) -> None:
        struck = [node for node in self._cluster.nodes if node.is_up and not node.is_hurt]
        for node in struck:
            node.lose_power()
            self._hurt.add(node.id)
        await asyncio.sleep(self._rng.random())
        for node in struck:
            self._restart(node)

    async def _disturb_election(self) -> None:
        """Kill the leader of the quorum, and let the first voter that votes lose power right after its vote."""
        leader = self._cluster.quorum_leader()
        if leader is None or self._victim() is None or leader.id in self._hurt:
            return
        voted: asyncio.Future[Node] = self._cluster.loop.create_future()
        watch = self._cluster.watch
        watch.on_epoch = lambda node: None if voted.done() or node is leader else voted.set_result(node)
        self._hurt.add(leader.id)
        leader.kill()
        await asyncio.wait([voted], timeout=5.0)
        watch.on_epoch = lambda _: None
        if voted.done() and self._plan.is_synced:
            node = voted.result()
            await asyncio.sleep(self._rng.random() * 0.01)
            if node.is_up and not node.is_hurt:
                self._cluster.note(f"nemesis: {node.host} has voted, and loses power")
                node.lose_power()
                self._restart(node)
        self._restart(leader)

    async def _strike_victim(self, strike: Callable[[Node], None]) -> None:
        node = self._victim()
        if node is not None:
            await self._strike(node, strike)

    async def _strike(self, node: Node, strike: Callable[[Node], None]) -> None:
        self._hurt.add(node.id)
        self._cluster.note(f"nemesis: {node.host} is struck")
        strike(node)
        # Sometimes it is back before its session with the controller has expired.
        await asyncio.sleep(self._rng.choice((0.01, 0.5, 2.0, 5.0)) * self._rng.random())
        self._restart(node)

    def _restart(self, node: Node) -> None:
        self._hurt.discard(node.id)
        if not node.is_up:
            self._cluster.note(f"nemesis: {node.host} is back")
            node.start()

    async def _pause(self) -> None:
        node = self._victim()
        if node is None:
            return
        self._hurt.add(node.id)
        node.pause()
        await asyncio.sleep(self._rng.choice((0.2, 2.0, 6.0)) * self._rng.random())
        node.resume()
        self._hurt.discard(node.id)

    async def _jump(self) -> None:
        node = self._rng.choice(self._cluster.nodes)
        node.clock.skew_ms += self._rng.choice((-3_600_000, -5_000, -10, 10, 5_000, 3_600_000))

    # Faults of a disk.

    async def _slow_disk(self) -> None:
        node = self._rng.choice(self._cluster.nodes)
        node.slowness_s = self._rng.choice((0.05, 0.5, 3.0))
        await asyncio.sleep(self._rng.random() * 4)
        node.slowness_s = 0.002

    async def _disk_error(self) -> None:
        kind = self._rng.choice(("write", "sync", "change"))
        nth = self._rng.randint(1, 8)
        if self._rng.random() < 0.5:
            await self._fail_disk(lambda node: node.disk.fail(kind, nth=nth, error=errno.EIO))  # type: ignore[arg-type]
        else:
            await self._fail_disk(lambda node: node.disk.crash_at(kind, nth=nth))  # type: ignore[arg-type]

    async def _disk_full(self) -> None:
        room = self._rng.randrange(600)
        await self._fail_disk(lambda node: node.disk.fill(room))

    async def _rot(self) -> None:
        """Flip a bit on the disk of one node, and only while all other replicas have the records that it may lose."""
        cluster, plan, rng = self._cluster, self._plan, self._rng
        topics: list[str | None] = [None] if plan.voters > 2 else []
        if plan.replication_factor > 1 and not plan.is_compacted:
            topics += cluster.plain_topics
        if self._is_rot_unrepaired or not topics or not cluster.is_whole():
            return
        topic = rng.choice(topics)
        self._is_rot_unrepaired = True
        node = rng.choice(cluster.controllers if topic is None else cluster.brokers)
        if node.id not in self._hurt:
            self._hurt.add(node.id)
            node.kill()
            damage = node.rot(rng, topic)
            cluster.note(f"nemesis: {node.host} has rotten: {damage or 'nothing is old enough'}")
            await asyncio.sleep(rng.random())
            self._restart(node)
            await cluster.wait_until_whole()
        self._is_rot_unrepaired = False

    async def _crash_at_disk_operation(self, steps: Sequence[tuple[KindOrAll, str]]) -> None:
        """Kill a process at one of these disk operations; sometimes its machine loses power as well."""
        cluster, plan, rng = self._cluster, self._plan, self._rng
        node = self._victim()
        if node is None or not node.is_broker:
            return
        is_well = not self._hurt and cluster.is_whole()
        loses_power = rng.random() < 0.5 and (plan.is_synced or (plan.may_lose_power and is_well))
        self._is_power_loss_unrepaired = loses_power and not plan.is_synced
        self._hurt.add(node.id)
        node.is_hurt = True
        kind, pattern = rng.choice(steps)
        node.disk.crash_at(kind, pattern, nth=rng.randint(1, 10))
        patience = 30
        while node.is_up and patience:
            patience -= 1
            await asyncio.sleep(0.1)
        cluster.note(f"nemesis: {node.host} {'dies' if node.is_up else 'has died'} at {kind} {pattern}")
        node.disk.heal()
        if loses_power:
            node.lose_power()
        else:
            node.kill()
            node.disk.crash_process()
        node.is_hurt = False
        await asyncio.sleep(rng.random())
        self._restart(node)
        if self._is_power_loss_unrepaired:
            await cluster.wait_until_whole()
            self._is_power_loss_unrepaired = False

    async def _fail_disk(self, strike: Callable[[Node], None]) -> None:
        node = self._victim()
        if node is None:
            return
        self._hurt.add(node.id)
        node.is_hurt = True
        strike(node)
        await asyncio.sleep(0.5 + self._rng.random() * 3)
        node.kill()
        node.disk.heal()
        node.disk.crash_process()
        node.is_hurt = False
        await asyncio.sleep(self._rng.random())
        self._restart(node)

    # Faults of users.

    async def _take_rights_away(self) -> None:
        """Order the warden to remove an ACL; sometimes one broker is cut off from the controller and learns of it
        later."""
        cluster, rng = self._cluster, self._rng
        cluster.order("rights")
        leader = cluster.quorum_leader()
        others = [node.host for node in cluster.brokers if node is not leader]
        if leader is not None and others and rng.random() < 0.5:
            late = rng.choice(others)
            cluster.fabric.cut(leader.host, late)
            await asyncio.sleep(rng.random() * 1.5)
            cluster.fabric.mend(leader.host, late)

    async def _change_password(self) -> None:
        self._cluster.order("password")

    async def _expire_token(self) -> None:
        self._cluster.order("token")

    # Faults of the network.

    def _sides(self) -> tuple[list[str], list[str]]:
        """Return the hosts of two parts of the cluster; clients are in the larger one, or can reach both."""
        hosts = [node.host for node in self._cluster.nodes]
        self._rng.shuffle(hosts)
        middle = self._rng.randint(1, max(1, len(hosts) // 2))
        apart, rest = hosts[:middle], hosts[middle:]
        if self._rng.random() < 0.5:
            rest = rest + self._cluster.client_hosts
        return apart, rest

    async def _cut(self) -> None:
        apart, rest = self._sides()
        for one in apart:
            for other in rest:
                self._cluster.fabric.cut(one, other)
                self._cluster.fabric.cut(other, one)
        await self._heal_later()

    async def _cut_one_way(self) -> None:
        apart, rest = self._sides()
        if self._rng.random() < 0.5:
            apart, rest = rest, apart
        for one in apart:
            for other in rest:
                self._cluster.fabric.cut(one, other)
        await self._heal_later()

    async def _cut_from_controller(self) -> None:
        """Cut a broker off from the controller, so that it does not learn that it was deposed; it reaches all others,
        and clients go on sending requests to it."""
        fabric, leader = self._cluster.fabric, self._cluster.quorum_leader()
        topic = self._cluster.plain_topics[0]
        others = [node.host for node in self._cluster.brokers if node is not leader]
        leading = [node.host for node, replica in self._cluster.led() if replica.topic == topic and node.host in others]
        if leader is None or not others:
            return
        host = self._rng.choice(leading or others)
        fabric.cut(leader.host, host)
        fabric.cut(host, leader.host)
        await asyncio.sleep(3.0 + self._rng.random() * 3.0)
        fabric.mend(leader.host, host)
        fabric.mend(host, leader.host)

    async def _isolate(self) -> None:
        """Cut off a voter that is not the leader. When it comes back, the epoch of the quorum must not change
        (KIP-996)."""
        cluster = self._cluster
        leader = cluster.quorum_leader()
        followers = [node for node in cluster.nodes if node.is_controller and node is not leader]
        if leader is None or not followers or self._is_a_voter_isolated:
            return
        self._is_a_voter_isolated = True
        epoch = cluster.watch.quorum_epoch
        lonely = self._rng.choice(followers).host
        for node in cluster.nodes:
            if node.host != lonely:
                cluster.fabric.cut(lonely, node.host)
                cluster.fabric.cut(node.host, lonely)
        await self._heal_later()
        await asyncio.sleep(2.0)
        self._is_a_voter_isolated = False
        # With other faults there may be other reasons for an election.
        is_all = self._plan.faults == ("lonely",) and self._plan.voters > 2 and not self._plan.is_dynamic
        if is_all and cluster.watch.quorum_epoch != epoch:
            raise Violation(
                f"{lonely} was away, and the quorum is in epoch {cluster.watch.quorum_epoch} now; it was in {epoch}, "
                "and its leader was well"
            )

    async def _heal_later(self) -> None:
        await asyncio.sleep(self._rng.choice((0.5, 3.0, 7.0)) * self._rng.random())
        self._cluster.fabric.heal()

    async def _storm(self) -> None:
        """For a while, reset connections, delay bytes, and deliver requests long after their senders gave up."""
        faults, rng = self._plan.faults, self._rng
        weather = self._cluster.fabric.weather
        calm = (weather.reset, weather.late, weather.hold)
        if "reset" in faults:
            weather.reset = rng.choice((0.005, 0.03))
        if "late" in faults:
            weather.late, weather.late_s = 0.3, rng.choice((0.1, 1.0, 3.0))
        if "hold" in faults:
            weather.hold, weather.hold_s, weather.held_apis = 0.2, rng.choice((0.5, 5.0)), _HELD_APIS
            if self._plan.share_members:
                weather.held_apis |= _HELD_SHARE_APIS
        await asyncio.sleep(rng.random() * 3)
        weather.reset, weather.late, weather.hold = calm
