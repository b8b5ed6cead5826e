"""A node of the simulated cluster: a machine with a disk and a clock, on which a whole broker runs, unmodified.

    start ─▶ running ─▶ kill        the process ends, what it wrote stays (page cache)
                     ─▶ lose_power  bytes that were not synced are lost as well, and no connection is reset
                     ─▶ pause ─▶ resume    SIGSTOP: time goes on without it
                     ─▶ stop        clean shutdown

Disk and clock outlive the processes. The wall clock is wrong by `skew_ms`, and may jump. The monotonic clock never
jumps, and starts anew with the machine.
"""

from __future__ import annotations

import asyncio
import zlib
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from pessoa.base.entropy import SeededEntropy
from pessoa.broker.config import BrokerConfig
from pessoa.broker.lifecycle import Broker
from pessoa.broker.stages.broker_role import BrokerRole
from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import Crashed, Fault, SimulatedDisk
from pessoa.quorum.durable_offset_file import DurableOffsetFile
from pessoa.quorum.formatting import format_metadata
from pessoa.quorum.metadata_log import METADATA_DIRECTORY
from pessoa.quorum.raft_quorum import RaftQuorum
from pessoa.quorum.uncommitted_appends import QuorumFailed
from pessoa.records.batch import ATTRIBUTES_POSITION, batches
from tests.simulation.compaction import PassInPlace
from tests.simulation.network import HostNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from pessoa.base.clock import Timer
    from pessoa.base.ids import Uuid
    from pessoa.raft.voters import VoterSet
    from pessoa.wire.schema import Message
    from tests.simulation.loop import Process, SimulatedLoop
    from tests.simulation.network import Fabric

# The simulation begins on 14 November 2023.
EPOCH_MS = 1_700_000_000_000
# The position of the leader epoch in a batch.
_EPOCH_POSITION, _EPOCH_END = 12, 16
BROKER_PORT = 9092
CONTROLLER_PORT = 9093


class NodeClock:
    """The clock of one machine."""

    def __init__(self, loop: SimulatedLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(self._loop.now_s * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.now_s * 1000)

    def call_after_ms(self, duration_ms: int, call: Callable[[], object]) -> Timer:
        return self._loop.call_later(duration_ms / 1000, call)

    async def wait_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)


class NodeDisk(SimulatedDisk):
    """A disk that calls `on_crash` at the operation at which the process is to die."""

    def __init__(self, seed: int, now_ms: Callable[[], int]) -> None:
        super().__init__(seed, now_ms=now_ms)
        self.on_crash: Callable[[], None] = lambda: None

    def strike(self, fault: Fault, path: str) -> NoReturn:
        if fault.outcome == "crashed":
            self.on_crash()
        super().strike(fault, path)


class Node:
    """A machine on which a broker or controller is started, killed, paused and stopped."""

    def __init__(
        self, loop: SimulatedLoop, fabric: Fabric, node_id: int, settings: Mapping[str, str], seed: int, cluster_id: str
    ) -> None:
        self.id = node_id
        self.host = f"n{node_id}"
        self.settings = dict(settings)
        self.clock = NodeClock(loop)
        self.disk = NodeDisk(seed, self.clock.now_ms)
        self.directories = self.settings["log.dirs"].split(",")
        for directory in self.directories:
            self.disk.make_directory(directory)
        self.broker: Broker | None = None
        self.process: Process | None = None
        # The longest time that a call in a worker thread takes.
        self.slowness_s = 0.002
        # Called with an error that a broker should not have.
        self.on_bug: Callable[[BaseException], None] = lambda _: None
        # Set when the disk was made to fail, so that the broker is right to end.
        self.is_hurt = False
        # Set from the request to shut down until the process has ended.
        self.is_stopping = False
        self.incarnations = 0
        # Whether a bit has ever flipped on its disk.
        self.has_rotten = False
        # Logs that a compaction pass has cleaned, until `watch` has checked them.
        self.cleaned: list[str] = []
        # The first metadata records of a cluster that this node formats.
        self.first_records: Sequence[Message] = ()
        # Called with every process that is started.
        self.on_start: Callable[[Process], None] = lambda _: None
        self._loop = loop
        self._fabric = fabric
        self._seed = seed
        self._cluster_id = cluster_id
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Node {self.id}: {self.process!r}, incarnation {self.incarnations}>"

    @property
    def broker_epoch(self) -> int:
        """Return the broker epoch of the running process, or -1 before its registration."""
        role = self.broker.find(BrokerRole) if self.broker is not None else None
        return role.registration.broker_epoch if role is not None else -1

    @property
    def is_controller(self) -> bool:
        return "controller" in self.settings["process.roles"]

    @property
    def is_broker(self) -> bool:
        return "broker" in self.settings["process.roles"]

    @property
    def quorum(self) -> RaftQuorum | None:
        """Return the quorum of the running process, or None before its log is open."""
        quorum = self.broker.quorum if self.broker is not None else None
        return quorum if quorum is not None and quorum._raft is not None else None

    def format(self, voters: VoterSet | None, directory_ids: Sequence[Uuid]) -> None:
        """Format the node as `kafka-storage format` does: with the initial voters, or without, as an observer."""
        format_metadata(
            self.disk,
            self.directories,
            self.directories[0],
            self.id,
            partial(next, iter(directory_ids)),
            EPOCH_MS,
            self._cluster_id,
            voters,
            self.first_records,
        )

    def rot(self, rng: Random, topic: str | None) -> str | None:
        """Flip a bit of a batch of that topic or of the metadata log that was synced long ago, in its header or behind
        it; return a description, or None if there is no such batch."""
        directory = f"{self.directories[0]}/{METADATA_DIRECTORY}"
        end_offset = DurableOffsetFile(self.disk, directory).offset
        if topic is not None:
            logs = [
                f"{one}/{name}"
                for one in self.directories
                for name in self.disk.list(one)
                if name.startswith(f"{topic}-") and name.removeprefix(f"{topic}-").isdigit()
            ]
            if not logs:
                return None
            directory, end_offset = rng.choice(logs), 1 << 62
        names = [name for name in self.disk.list(directory) if name.endswith(".log")]
        if not names:
            return None
        path = f"{directory}/{names[0]}"
        found, position = [], 0
        for batch in batches(self.disk.read_file(path)):
            if batch.next_offset <= end_offset:
                found.append((position, batch))
            position += batch.size
        if not found:
            return None
        position, batch = rng.choice(found)
        byte = rng.choice((rng.randrange(ATTRIBUTES_POSITION), rng.randrange(batch.size)))
        bit = rng.randrange(8)
        if topic is not None and byte < _EPOCH_END:
            # Another valid offset or leader epoch could not be told from the right one.
            byte, bit = _EPOCH_POSITION, 6
        self.disk.flip_bit(path, position + byte, bit)
        self.has_rotten = True
        return f"bit {bit} of byte {byte} in {batch!r} of {path}"

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dead

    # Start, faults and stop.

    def start(self) -> asyncio.Task[None]:
        assert not self.is_up, f"{self!r} is up"
        self.incarnations += 1
        self._fabric.power_on(self.host)
        process = self.process = self._loop.new_process(self.host)
        self.disk.on_crash = self._die_at_disk
        broker = self.broker = Broker(
            BrokerConfig(self.settings),
            disk=self.disk,
            clock=self.clock,
            entropy=SeededEntropy(zlib.crc32(b"%d %d" % (self._seed, self.incarnations))),
            network=HostNetwork(self._fabric, self.host, process),
            cluster_id=self._cluster_id,
            first_records=self.first_records,
        )
        broker.on_bug = self._on_bug
        broker.start_cleaning = partial(
            PassInPlace, self.disk, lambda: self.clock.monotonic_ms() / 1000, self.cleaned.append
        )
        self.on_start(process)
        self._asked = asyncio.Event()
        self._task = self._loop.spawn(
            process, self._run(broker, self._asked), f"{self.host} incarnation {self.incarnations}"
        )
        return self._task

    async def _run(self, broker: Broker, asked: asyncio.Event) -> None:
        """Do what the main program of a broker does: serve until it is asked to stop or fails, then end the process."""
        process = self.process
        assert process is not None
        try:
            await broker.start()
            stopped = self._loop.create_task(asked.wait())
            await asyncio.wait([stopped, broker.failed], return_when=asyncio.FIRST_COMPLETED)
            if not broker.failed.done():
                await broker.stop()
            if broker.failed.done():
                broker.failed.result()
        except (Exception, Crashed) as error:  # noqa: BLE001 (told by the checkers)
            self._on_bug(error)
        self._end(process, is_power_loss=False)
        self.disk.crash_process()

    def _on_bug(self, error: BaseException) -> None:
        """Report an error that ended the broker, unless its disk was made to fail."""
        if not self.is_hurt or not comes_from_disk(error):
            self.on_bug(error)

    def kill(self) -> None:
        if self.process is not None and self.is_up:
            self._end(self.process, is_power_loss=False)
            self.disk.crash_process()

    def lose_power(self) -> None:
        if self.process is not None and self.is_up:
            self._end(self.process, is_power_loss=True)
        self.disk.lose_power()

    def pause(self) -> None:
        if self.process is not None:
            self._loop.pause(self.process)

    def resume(self) -> None:
        if self.process is not None:
            self._loop.resume(self.process)

    def stop(self) -> asyncio.Task[None]:
        """Shut down the broker, once it has started; the returned task ends with the process."""
        assert self._task is not None
        self.is_stopping = True
        self._asked.set()
        return self._task

    def _die_at_disk(self) -> None:
        """End the process in the middle of a disk operation; `kill` or `lose_power` then decides what the disk
        keeps."""
        if self.process is not None:
            self._end(self.process, is_power_loss=False)

    def _end(self, process: Process, *, is_power_loss: bool) -> None:
        if not process.is_dead:
            self.is_stopping = False
            self._loop.kill(process)
            self._fabric.kill(process, self.host, is_power_loss=is_power_loss)


def comes_from_disk(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, (DiskError, QuorumFailed, Crashed)):
            return True
        error = error.__cause__
    return False


def node_settings(node_id: int, roles: str, voters: Sequence[int], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a node in a static quorum (`controller.quorum.voters`)."""
    quorum = ",".join(f"{voter}@n{voter}:{CONTROLLER_PORT}" for voter in voters)
    return _settings(node_id, roles, settings) | {"controller.quorum.voters": quorum}


def dynamic_node_settings(
    node_id: int, roles: str, controllers: Sequence[int], settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of a node in a dynamic quorum, whose voters are in the metadata log."""
    servers = ",".join(f"n{controller}:{CONTROLLER_PORT}" for controller in controllers)
    return _settings(node_id, roles, settings) | {"controller.quorum.bootstrap.servers": servers}


def _settings(node_id: int, roles: str, settings: Mapping[str, str]) -> dict[str, str]:
    ports = {"broker": ("PLAINTEXT", BROKER_PORT), "controller": ("CONTROLLER", CONTROLLER_PORT)}
    listeners = [f"{ports[role][0]}://n{node_id}:{ports[role][1]}" for role in roles.split(",")]
    return {
        "process.roles": roles,
        "node.id": str(node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        **settings,
    }
