"""How the files beside a log decay while it is stopped: lost, truncated, filled with something else, one bit flipped.

Only files that repeat what the log says, and only damage that can be noticed. Of an index in the middle of a log that
was closed in order nothing but the end is looked at, and a transaction index that is shorter by whole entries, or gone,
looks like one of fewer aborts: as in Kafka, that cannot be noticed.
"""

from __future__ import annotations

from pessoa.log.checkpoints import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE
from pessoa.log.simulated_disk import SimulatedDisk

CHECKPOINTS = (RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE, LOG_START_OFFSET_FILE)
DAMAGEABLE = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", *CHECKPOINTS)


def damage(disk: SimulatedDisk, path: str, kind: int, percent: int) -> None:
    """Let a file decay in a way that can be noticed: a transaction index that is shorter by whole entries cannot."""
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
