"""Disks with files on them, and what losses of power make of them, seed by seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.log.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(200)


def disk_with(seed: int = 0, **contents: bytes) -> SimulatedDisk:
    """A disk with some files in /data, all durable."""
    disk = SimulatedDisk(seed)
    disk.make_directory("/data")
    for name, content in contents.items():
        disk.write_file(f"/data/{name}", content)
    return disk


def after_power_loss(prepare: Callable[[SimulatedDisk], None], **contents: bytes) -> list[dict[str, bytes]]:
    """Return for each seed what a power loss leaves of the same preparation: names in /data → contents."""
    outcomes = []
    for seed in SEEDS:
        disk = disk_with(seed, **contents)
        prepare(disk)
        disk.lose_power()
        outcomes.append({path.removeprefix("/data/"): data for path, data in disk.contents().items()})
    return outcomes
