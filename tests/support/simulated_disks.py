"""Simulated disks with files, and what a power loss leaves of them, for many seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.log.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(200)


def disk_with(seed: int = 0, **contents: bytes) -> SimulatedDisk:
    """Return a disk with some synced files in /data."""
    disk = SimulatedDisk(seed)
    disk.make_directory("/data")
    for name, content in contents.items():
        disk.write_file(f"/data/{name}", content)
    return disk


def after_power_loss(prepare: Callable[[SimulatedDisk], None], **contents: bytes) -> list[dict[str, bytes]]:
    """Return for each seed the contents of /data by name, after the same preparation and a power loss."""
    outcomes = []
    for seed in SEEDS:
        disk = disk_with(seed, **contents)
        prepare(disk)
        disk.lose_power()
        outcomes.append({path.removeprefix("/data/"): data for path, data in disk.contents().items()})
    return outcomes
