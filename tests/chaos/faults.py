"""Faults of brokers: each is a function that causes the fault, waits while the load continues, and heals it.

A fault ends when all replicas are in sync again. `play` plays a fault by its name in a table, and returns the longest
pause of producing in any partition.

    kill_*      SIGKILL, and a new process on the same directory
    pause_*     SIGSTOP, until its session has ended; then it continues, at first as if it still led
    damage_*    SIGKILL, then its files are changed, then a new process

Only one replica of three is damaged: the others have everything.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from pessoa.records.batch import (
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    RecordBatch,
)
from tests.chaos.load import IN, PARTITIONS
from tests.chaos.stage import Stage

# Acknowledgements to wait for before a broker is started again; `_bounce` starts it at once, within its session.
MORE = 20
_METADATA_LOG = "__cluster_metadata-0"
# The first byte of the leader epoch in the header of a batch.
_EPOCH_POSITION = 12


Fault = Callable[[Stage], None]


class Played(NamedTuple):
    name: str
    longest_pause_s: float


def play(stage: Stage, name: str, fault: Fault | None = None) -> Played:
    began_s = time.monotonic()
    (fault or FAULTS[name])(stage)
    ended_s = time.monotonic()
    stage.brokers.wait_until_in_sync()
    stage.load.wait_for(MORE)
    return Played(name, stage.load.longest_pause_s(began_s, ended_s))


def a_leader(stage: Stage) -> int:
    return stage.brokers.leader_of(IN, stage.rng.randrange(PARTITIONS))


def the_controller(stage: Stage) -> int:
    return stage.brokers.controller()


def a_coordinator(stage: Stage) -> int:
    return stage.brokers.leader_of("__transaction_state", stage.rng.randrange(3))


def a_follower(stage: Stage) -> int:
    """Return a broker that does not lead one random partition; it may lead others."""
    leader = a_leader(stage)
    return stage.rng.choice([one for one in stage.brokers if one != leader])


def _kill(choose: Callable[[Stage], int]) -> Fault:
    def kill(stage: Stage) -> None:
        victim = choose(stage)
        stage.brokers.kill(victim)
        stage.load.wait_for(MORE)
        stage.brokers.start(victim)

    return kill


def _bounce(choose: Callable[[Stage], int]) -> Fault:
    """Return a fault that kills a broker and starts it again before its session ends."""

    def bounce(stage: Stage) -> None:
        victim = choose(stage)
        stage.brokers.kill(victim)
        stage.brokers.start(victim)

    return bounce


def _pause(choose: Callable[[Stage], int]) -> Fault:
    def pause(stage: Stage) -> None:
        victim = choose(stage)
        stage.brokers.pause(victim)
        stage.load.wait_for(MORE)
        stage.brokers.resume(victim)

    return pause


def slow_down(stage: Stage) -> None:
    """Pause a follower for four fifths of the time, in intervals too short to end its session."""
    victim = a_follower(stage)
    for _ in range(100):
        stage.brokers.pause(victim)
        time.sleep(0.04)
        stage.brokers.resume(victim)
        time.sleep(0.01)


def kill_all(stage: Stage) -> None:
    stage.brokers.kill(*stage.brokers.nodes)
    stage.brokers.start_all()


def chase_the_leader(stage: Stage) -> None:
    """Kill the leader of a partition, and then the next leader as soon as the first is back in sync."""
    partition = stage.rng.randrange(PARTITIONS)
    for _ in range(3):
        victim = stage.brokers.leader_of(IN, partition)
        stage.brokers.kill(victim)
        stage.brokers.leader_of(IN, partition)
        stage.brokers.start(victim)
        stage.brokers.wait_until_in_sync()


def stop_in_turn(stage: Stage) -> None:
    """Restart the nodes one after the other, as an upgrade does; controllers that are not brokers come last."""
    for number in stage.brokers.nodes:
        assert stage.brokers.stop(number) == 0
        stage.brokers.start(number)
        stage.brokers.wait_until_in_sync()


# Damage.


def _damage(change: Callable[[Path, Random], None], *, of_any_node: bool = False) -> Fault:
    """Return a fault that kills a broker, or any node, and damages its files."""

    def damage(stage: Stage) -> None:
        victim = stage.rng.choice(stage.brokers.nodes if of_any_node else list(stage.brokers))
        stage.brokers.kill(victim)
        change(stage.brokers.data(victim), stage.rng)
        stage.load.wait_for(MORE)
        stage.brokers.start(victim)

    return damage


def _segment(data: Path, rng: Random) -> Path:
    """Return the last segment of a random partition that has one."""
    latest = [max(found) for number in range(PARTITIONS) if (found := list((data / f"{IN}-{number}").glob("*.log")))]
    return rng.choice(latest)


def flip_a_bit(data: Path, rng: Random) -> None:
    """Change a bit of a committed batch, where its CRC covers it."""
    path = _segment(data, rng)
    content = bytearray(path.read_bytes())
    starts = _starts(content)
    if starts:
        middle = starts[len(starts) // 2]
        size = RecordBatch(bytes(content), middle).size
        content[middle + rng.randrange(CRC_POSITION, size)] ^= 1 << rng.randrange(8)
        path.write_bytes(content)


def make_up_an_epoch(data: Path, rng: Random) -> None:
    """Change the leader epoch of any batch, which no CRC covers."""
    path = _segment(data, rng)
    content = bytearray(path.read_bytes())
    starts = _starts(content)
    if starts:
        content[rng.choice(starts) + _EPOCH_POSITION] ^= 1 << 6
        path.write_bytes(content)


def _starts(content: bytearray) -> list[int]:
    """Return where batches begin. After the last there may be preallocated room, or half a batch."""
    starts, position = [], 0
    while position + HEADER_SIZE <= len(content) and content[position + MAGIC_POSITION] == MAGIC:
        size = LOG_OVERHEAD + int.from_bytes(content[position + LENGTH_POSITION :][:4], "big")
        if position + size > len(content):
            break
        starts.append(position)
        position += size
    return starts


def tear_the_tail(data: Path, rng: Random) -> None:
    path = _segment(data, rng)
    with path.open("r+b") as file:
        file.truncate(max(0, path.stat().st_size - 37))


def add_garbage(data: Path, rng: Random) -> None:
    with _segment(data, rng).open("ab") as file:
        file.write(rng.randbytes(501))


def spoil_indexes(data: Path, rng: Random) -> None:
    for kind in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
        for path in sorted(data.glob(f"{IN}-*/{kind}")) + sorted(data.glob(f"out-*/{kind}")):
            path.write_bytes(rng.randbytes(rng.choice((0, 7, 96))))


def spoil_checkpoints(data: Path, rng: Random) -> None:
    """Overwrite the checkpoints of the directory and the leader epochs of every partition."""
    names = ["*checkpoint*", f"{IN}-*/leader-epoch-checkpoint", "out-*/leader-epoch-checkpoint"]
    for name in names:
        for path in sorted(data.glob(name)):
            path.write_bytes(rng.choice((b"", b"\x00\xff not a number\n", b"0\n")))


def spoil_quorum_state(data: Path, rng: Random) -> None:
    (data / _METADATA_LOG / "quorum-state").write_bytes(b"{")


def lose_the_disk(data: Path, rng: Random) -> None:
    shutil.rmtree(data)


FAULTS: dict[str, Fault] = {
    "kill a leader": _kill(a_leader),
    "kill the controller": _kill(the_controller),
    "kill a follower": _kill(a_follower),
    "kill the coordinator": _kill(a_coordinator),
    "kill all": kill_all,
    "bounce a leader": _bounce(a_leader),
    "bounce the controller": _bounce(the_controller),
    "chase the leader": chase_the_leader,
    "stop in turn": stop_in_turn,
    "pause a leader": _pause(a_leader),
    "pause the controller": _pause(the_controller),
    "pause the coordinator": _pause(a_coordinator),
    "slow down a follower": slow_down,
    "flip a bit": _damage(flip_a_bit),
    "make up an epoch": _damage(make_up_an_epoch),
    "tear the tail": _damage(tear_the_tail),
    "add garbage": _damage(add_garbage),
    "spoil indexes": _damage(spoil_indexes),
    "spoil checkpoints": _damage(spoil_checkpoints, of_any_node=True),
    "lose the disk": _damage(lose_the_disk, of_any_node=True),
}
