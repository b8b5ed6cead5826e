"""What happens to the cluster while its clients work: faults from the plan, one after another or at once, each healed
after a while.

Some restraint is part of the promise. A machine that loses power may lose what it had not synced, which costs nothing
while another in-sync replica has it and is known to have it: so only one does, and no other machine dies until the
cluster is whole again, unless all is synced before it is acknowledged. (A process that dies counts like a machine: the
controller cannot know that its page cache has survived, KIP-966.) And unless the plan is harsh, a majority stays up.
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

# API keys of what may be held back and delivered later: Produce, EndTxn, TxnOffsetCommit, AddPartitionsToTxn.
_HELD_APIS = frozenset((0, 24, 26, 28))
# And of share groups: ShareFetch, ShareAcknowledge, InitializeShareGroupState, WriteShareGroupState.
_HELD_SHARE_APIS = frozenset((78, 79, 83, 85))
# What a pass of compaction does to the disk: writes a segment anew, puts it in the place of others, says so.
_STEPS_OF_CLEANING: tuple[tuple[KindOrAll, str], ...] = (
    ("change", "*.cleaned"),
    ("rename", "*.cleaned"),
    ("rename", "*.log"),
    ("change", "*.swap"),
    ("remove", "*.deleted"),
    ("sync_directory", "*-[0-9]"),
    ("change", "*/cleaner-offset-checkpoint*"),
)
# And the move of a log to another directory: a copy, two renames.
_STEPS_OF_MOVING: tuple[tuple[KindOrAll, str], ...] = (
    ("change", "*-future/*"),
    ("rename", "*-future"),
    ("rename", "*-[0-9]"),
    ("sync_directory", "/data"),
    ("sync_directory", "/more"),
    ("change", "*-checkpoint*"),
)
# Then the operator, who told the node to stop, loses patience and kills it.
_STOP_WITHIN_S = 10.0


class Nemesis:
    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._plan = cluster.plan
        self._hurt: set[int] = set()
        # A machine has lost what others still have; no other may die until all have everything again.
        self._is_amnesia_about = False
        self._is_a_voter_isolated = False
        self._is_rot_about = False
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
            "estranged": self._estrange,
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
            "cleaning": partial(self._die_in_the_middle, _STEPS_OF_CLEANING),
            "moving": partial(self._die_in_the_middle, _STEPS_OF_MOVING),
        }

    async def run(self, seconds: float) -> None:
        plan, rng = self._plan, self._rng
        loop = self._cluster.loop
        end_s = loop.now_s + seconds
        self._set_weather()
        # Runs are short: users have more to bear than the rest.
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
        """Everything is well again: wires, disks, and every node up."""
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
                # A broker that has seen its disk fail does not trust it again: that takes a new process.
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
        """A node that nothing has been done to, if one more may be hurt: of the brokers and of the controllers each
        less than half, where a majority is to stay."""
        if self._is_amnesia_about:
            return None
        free = [node for node in self._cluster.nodes if node.id not in self._hurt and node.is_up]
        if not self._plan.is_harsh:
            free = [node for node in free if all(self._may_lose_one(kind) for kind in self._cluster.kinds_of(node))]
        return self._rng.choice(free) if free else None

    def _may_lose_one(self, kind: list[Node]) -> bool:
        hurt = sum(node.id in self._hurt for node in kind)
        return hurt < (len(kind) if len(kind) < 3 else (len(kind) - 1) // 2)

    # On one node.

    async def _kill(self) -> None:
        await self._away(lambda node: node.kill())

    async def _stop(self) -> None:
        node = self._victim()
        if node is None:
            return
        self._hurt.add(node.id)
        await asyncio.wait([node.stop()], timeout=_STOP_WITHIN_S)
        node.kill()
        await asyncio.sleep(self._rng.random() * 2)
        self._back(node)

    async def _lose_power(self) -> None:
        plan = self._plan
        if plan.is_synced:
            if plan.is_harsh and self._rng.random() < 0.3:
                await self._lose_all_power()
            else:
                await self._away(lambda node: node.lose_power())
        elif plan.may_lose_power and not self._hurt and not self._is_amnesia_about and self._cluster.is_whole():
            victim = self._rng.choice(self._cluster.nodes)
            self._is_amnesia_about = True
            await self._strike(victim, lambda node: node.lose_power())
            await self._cluster.wait_until_whole()
            self._is_amnesia_about = False

    async def _lose_all_power(self) -> None:
        struck = [node for node in self._cluster.nodes if node.is_up and not node.is_hurt]
        for node in struck:
            node.lose_power()
            self._hurt.add(node.id)
        await asyncio.sleep(self._rng.random())
        for node in struck:
            self._back(node)

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
                self._back(node)
        self._back(leader)

    async def _away(self, strike: Callable[[Node], None]) -> None:
        node = self._victim()
        if node is not None:
            await self._strike(node, strike)

    async def _strike(self, node: Node, strike: Callable[[Node], None]) -> None:
        self._hurt.add(node.id)
        self._cluster.note(f"nemesis: {node.host} is struck")
        strike(node)
        # Sometimes it is back before the controller has missed it.
        await asyncio.sleep(self._rng.choice((0.01, 0.5, 2.0, 5.0)) * self._rng.random())
        self._back(node)

    def _back(self, node: Node) -> None:
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

    # On a disk.

    async def _slow_disk(self) -> None:
        node = self._rng.choice(self._cluster.nodes)
        node.slowness_s = self._rng.choice((0.05, 0.5, 3.0))
        await asyncio.sleep(self._rng.random() * 4)
        node.slowness_s = 0.002

    async def _disk_error(self) -> None:
        kind = self._rng.choice(("write", "sync", "change"))
        nth = self._rng.randint(1, 8)
        if self._rng.random() < 0.5:
            await self._spoil(lambda node: node.disk.fail(kind, nth=nth, error=errno.EIO))  # type: ignore[arg-type]
        else:
            await self._spoil(lambda node: node.disk.crash_at(kind, nth=nth))  # type: ignore[arg-type]

    async def _disk_full(self) -> None:
        room = self._rng.randrange(600)
        await self._spoil(lambda node: node.disk.fill(room))

    async def _rot(self) -> None:
        """One node at a time, and only while the others have everything that it is about to lose."""
        cluster, plan, rng = self._cluster, self._plan, self._rng
        topics: list[str | None] = [None] if plan.voters > 2 else []
        if plan.replication_factor > 1 and not plan.is_compacted:
            topics += cluster.plain_topics
        if self._is_rot_about or not topics or not cluster.is_whole():
            return
        topic = rng.choice(topics)
        self._is_rot_about = True
        node = rng.choice(cluster.controllers if topic is None else cluster.brokers)
        if node.id not in self._hurt:
            self._hurt.add(node.id)
            node.kill()
            damage = node.rot(rng, topic)
            cluster.note(f"nemesis: {node.host} has rotten: {damage or 'nothing is old enough'}")
            await asyncio.sleep(rng.random())
            self._back(node)
            await cluster.wait_until_whole()
        self._is_rot_about = False

    async def _die_in_the_middle(self, steps: Sequence[tuple[KindOrAll, str]]) -> None:
        """A process dies at one of these steps, and sometimes its machine loses power with it."""
        cluster, plan, rng = self._cluster, self._plan, self._rng
        node = self._victim()
        if node is None or not node.is_broker:
            return
        is_well = not self._hurt and cluster.is_whole()
        loses_power = rng.random() < 0.5 and (plan.is_synced or (plan.may_lose_power and is_well))
        self._is_amnesia_about = loses_power and not plan.is_synced
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
        self._back(node)
        if self._is_amnesia_about:
            await cluster.wait_until_whole()
            self._is_amnesia_about = False

    async def _spoil(self, strike: Callable[[Node], None]) -> None:
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
        self._back(node)

    # On users.

    async def _take_rights_away(self) -> None:
        """Sometimes a broker hears of it later than the others, and serves on."""
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

    # On the wires.

    def _sides(self) -> tuple[list[str], list[str]]:
        """Two parts of the cluster; clients are on the larger one, or on both."""
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
        await self._mend()

    async def _cut_one_way(self) -> None:
        apart, rest = self._sides()
        if self._rng.random() < 0.5:
            apart, rest = rest, apart
        for one in apart:
            for other in rest:
                self._cluster.fabric.cut(one, other)
        await self._mend()

    async def _estrange(self) -> None:
        """A broker does not hear from the controller, and so not of the leaders that follow it; it reaches all others,
        and clients go on talking to it."""
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
        """Cut off a voter that does not lead. When it comes back, the quorum has not even noticed (KIP-996)."""
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
        await self._mend()
        await asyncio.sleep(2.0)
        self._is_a_voter_isolated = False
        # Anything else that goes on may be a reason to elect.
        is_all = self._plan.faults == ("lonely",) and self._plan.voters > 2 and not self._plan.is_dynamic
        if is_all and cluster.watch.quorum_epoch != epoch:
            raise Violation(
                f"{lonely} was away, and the quorum is in epoch {cluster.watch.quorum_epoch} now; it was in {epoch}, "
                "and its leader was well"
            )

    async def _mend(self) -> None:
        await asyncio.sleep(self._rng.choice((0.5, 3.0, 7.0)) * self._rng.random())
        self._cluster.fabric.heal()

    async def _storm(self) -> None:
        """For a while, connections break, pieces are late, and requests arrive long after they were given up."""
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
