"""Damage of the files of a stopped log: lost, truncated, filled with other bytes, one bit flipped.

Only files that repeat what the `.log` files have are damaged, and only in ways that can be detected. After a clean
shutdown only the end of an index is read, and a transaction index that lacks whole entries, or is missing, looks like
one with fewer aborted transactions: as in Kafka, that cannot be detected.
"""

from __future__ import annotations

from pessoa.log.checkpoints import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE
from pessoa.log.simulated_disk import SimulatedDisk

CHECKPOINTS = (RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE, LOG_START_OFFSET_FILE)
DAMAGEABLE = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", *CHECKPOINTS)


def damage(disk: SimulatedDisk, path: str, kind: int, percent: int) -> None:
    """Damage a file in a way that can be detected, so not by removing whole entries of a transaction index."""
    inode = disk.platter.inode(path)
    size = len(inode.data)
    cut = size * percent // 100
    is_transaction_index = path.endswith(".txnindex")
    if kind <= 1 and not is_transaction_index:
        disk.remove(path)
        disk.sync_directory(path.rpartition("/")[0])
    elif kind <= 3 and not (is_transaction_index and cut % 34 == 0):
        disk.cut(path, cut)
    elif kind == 4 and size:
        overwrite(disk, path, b"\xff" * size)
    elif kind == 5 and path.endswith((".index", ".timeindex")):
        # Whole blocks of zeros, as a program leaves that asks for the room first.
        overwrite(disk, path, bytes(240))
    elif kind == 6 and path.endswith(".snapshot") and size:
        disk.flip_bit(path, min(cut, size - 1), percent % 8)


def overwrite(disk: SimulatedDisk, path: str, data: bytes) -> None:
    disk.cut(path, 0)
    inode = disk.platter.inode(path)
    inode.data += data
    inode.commit(inode.snapshot())
