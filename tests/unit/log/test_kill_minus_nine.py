"""A real process on a real disk that is repeatedly killed with SIGKILL: no acknowledged record is lost.

The child appends batches of one idempotent producer, whose sequence numbers count the records, and writes the last
offset of each batch to its standard output after the append: an acknowledgement that the parent can read even after
the child is dead. The parent kills it after a random number of acknowledgements, opens the log, and looks for every
acknowledged record: once, in order, with the value that belongs to its sequence number.

The child continues at the log end, so each round begins with the recovery of the log of the round before.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from pessoa.log.directory import LogDirectory
from pessoa.log.log_config import LogConfig
from pessoa.log.os_disk import OsDisk
from pessoa.log.partition_log import PartitionLog, ReadUpTo
from pessoa.records.batch import batches
from pessoa.records.record import records

ROUNDS = 20
KEY = ("orders", 0)

CHILD = """
import os, sys
from pessoa.base.ids import Uuid
from pessoa.log.log_config import LogConfig
from pessoa.log.directory import LogDirectory
from pessoa.log.os_disk import OsDisk
from pessoa.records.builder import build_batch
from pessoa.records.record import Record

config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
directory = LogDirectory(OsDisk(), sys.argv[1])
directory.open(lambda _: config, 1_700_000_000_000)
log = directory.partitions.get(("orders", 0))
if log is None:
    log = directory.create("orders", 0, Uuid.of(1000), config, 1_700_000_000_000)
entry = log.producers.entry(7)
sequence = entry.next_sequence if entry is not None else 0
assert sequence == log.log_end_offset, (entry, log)
while True:
    count = 1 + sequence % 7
    batch = build_batch(
        [Record(n, 1_700_000_000_000 + sequence + n, None, b"%d" % (sequence + n)) for n in range(count)],
        producer_id=7, producer_epoch=0, base_sequence=sequence,
    )
    answer = log.append_as_leader(memoryview(batch), 0, 1_700_000_000_000 + sequence, 12)
    assert answer.base_offset == sequence and not answer.is_duplicate
    sequence += count
    os.write(1, b"%d\\n" % answer.last_offset)
    if sequence % 50 == 0:
        log.flush()
        directory.write_checkpoints()
"""


def last_acknowledged_by_a_killed_child(root: Path, acknowledgements: int) -> int:
    """Let a child append until it has acknowledged so many batches, kill it, and return the last acknowledged
    offset."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(root)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(acknowledgements)]
        os.kill(child.pid, signal.SIGKILL)
        # What it wrote before it died is still in the pipe; a last line may be cut.
        lines += child.stdout.read().splitlines(keepends=True)
    assert child.returncode == -signal.SIGKILL, lines
    return int([line for line in lines if line.endswith(b"\n")][-1])


def values_in(log: PartitionLog) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, 10_000, ReadUpTo.LOG_END)
        assert fetched.data is not None
        for batch in batches(fetched.data.read()):
            assert batch.is_valid()
            assert batch.base_offset == offset == batch.base_sequence
            found += [record.value for record in records(batch)]
            offset = batch.next_offset
    return found


def test_what_was_acknowledged_survives_kill_minus_nine_in_order_and_once(tmp_path: Path) -> None:
    chance = Random(20)
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    end = 0
    for number in range(ROUNDS):
        acknowledged = last_acknowledged_by_a_killed_child(tmp_path / "log", chance.randrange(1, 300))
        assert acknowledged >= end, f"round {number}: the child went on below what was there"
        # The next child must find what this one left, so the parent looks at a copy. Now and then it recovers the log
        # itself and stops in order, and then the next child has to take the marker of that away.
        stops_in_order = number % 4 == 3
        root = tmp_path / "log" if stops_in_order else shutil.copytree(tmp_path / "log", tmp_path / f"copy {number}")
        directory = LogDirectory(OsDisk(), str(root))
        directory.open(lambda _: config, 1_700_000_000_000)
        log = directory.partitions[KEY]
        assert log.log_end_offset > acknowledged, f"round {number}: {acknowledged} was acknowledged, {log!r}"
        assert values_in(log) == [b"%d" % offset for offset in range(log.log_end_offset)]
        entry = log.producers.entry(7)
        assert entry is not None
        assert entry.next_sequence == log.log_end_offset
        end = log.log_end_offset
        directory.close()
    assert len(log.segments) > 2
