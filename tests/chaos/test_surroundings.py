"""Brokers on machines of their own whose networks, disks, power and clocks fail: a selection for every run.

`make chaos MINUTES=30` draws from the whole table. Without namespaces or disk images these tests are skipped with the
reason. A fault that has no effect would let every test pass, so the faults are tested too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.clocks import JumpingClock
from tests.chaos.disks import Disks
from tests.chaos.faults import play
from tests.chaos.namespaces import Network
from tests.chaos.processes import TIMEOUT_S
from tests.chaos.stage import Wanted, under_load
from tests.chaos.surroundings import SURROUNDINGS
from tests.support.typed_process import TypedProcess

_FLUSHES = {"log.flush.interval.messages": "1"}
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 9), 0.5)"


def skip_without(wanted: Wanted) -> None:
    reason = wanted.why_not()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize(
    "faults",
    [
        ("cut off a leader from all", "a leader hears no broker"),
        ("flicker a leader's power", "a clock an hour on"),
        ("cut all power",),
    ],
    ids=", ".join,
)
def test_no_record_is_lost_duplicated_or_torn_and_replicas_are_equal_after_faults(
    tmp_path: Path, record_property: Callable[[str, object], None], faults: tuple[str, ...]
) -> None:
    chosen = [SURROUNDINGS[name] for name in faults]
    wanted = Wanted(*(any(wants) for wants in zip(*(one.wanted for one in chosen), strict=True)))
    skip_without(wanted)
    settings = _FLUSHES if any(one.wants_flushes for one in chosen) else {}
    with under_load(tmp_path, seed=len(faults[0]), wanted=wanted, settings=settings) as stage:
        played = [play(stage, name, one.fault) for name, one in zip(faults, chosen, strict=True)]
        found = stage.finish()
        pauses = ", ".join(f"{one.name} {one.longest_pause_s:.1f} s" for one in played)
        record_property("summary", f"{found}; producing stood still at worst: {pauses}")


def test_the_network_drops_packets_in_one_direction_or_both_and_heals() -> None:
    skip_without(Wanted(network=True))

    def reaches(one: int, other: int) -> bool:
        """Return whether the other's kernel refuses the connection, which takes a packet in each direction."""
        command = [*network.command(one), sys.executable, "-c", _CONNECT, network.host(other)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert "ConnectionRefusedError" in done.stderr or "TimeoutError" in done.stderr, done.stderr
        return "ConnectionRefusedError" in done.stderr

    with Network() as network, network.entered():
        assert reaches(1, 2)
        network.cut(1, 2)
        assert not reaches(1, 2)
        assert not reaches(2, 1)
        assert reaches(1, 3)
        network.heal()
        assert reaches(1, 2)
        network.drop(1, 2)
        assert not reaches(2, 1)
        assert reaches(2, 3)


def test_a_disk_that_loses_power_keeps_only_synced_data(tmp_path: Path) -> None:
    skip_without(Wanted(disks=True))
    with Disks(tmp_path, (1,)) as disks:
        with (disks.path(1) / "synced").open("wb", buffering=0) as file:
            file.write(b"synced")
            os.fsync(file.fileno())
            file.write(b", and not")
        disks.remember(1)
        (disks.path(1) / "later").write_bytes(b"later")
        disks.go_back(1)
        assert (disks.path(1) / "synced").read_bytes() == b"synced"
        assert not (disks.path(1) / "later").exists()


def test_a_failed_disk_refuses_writes_and_a_full_disk_has_no_space_left(tmp_path: Path) -> None:
    skip_without(Wanted(disks=True))
    with Disks(tmp_path, (1, 2)) as disks:
        disks.fill(1)
        with pytest.raises(OSError, match="No space left"):
            (disks.path(1) / "file").write_bytes(bytes(10_000))
        (disks.path(1) / "file").unlink()
        disks.make_room(1)
        (disks.path(1) / "file").write_bytes(bytes(10_000))
        with (disks.path(2) / "file").open("wb", buffering=0) as file:
            disks.fail(2)
            with pytest.raises(OSError, match="Input/output error"):
                file.write(b"too late")
        disks.repair(2)
        (disks.path(2) / "file").write_bytes(b"again")


def test_the_wall_clock_jumps_while_monotonic_time_continues(tmp_path: Path) -> None:
    skip_without(Wanted(clocks=True))
    clock = JumpingClock(tmp_path / "clock")
    told = "import sys, time\nfor line in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    command = [*clock.command, sys.executable, "-c", told]
    with TypedProcess(command, tmp_path / "told", errors=tmp_path / "errors") as process:
        process.type("")
        process.wait_for(r"\n")
        clock.jump(3600)
        process.type("")
        process.wait_for(r"\n.*\n")
    (wall, steady), (wall_later, steady_later) = (map(float, line.split()) for line in process.lines)
    assert wall_later - wall > 3599
    assert 0 <= steady_later - steady < 3599
