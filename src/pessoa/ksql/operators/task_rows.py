"""A row on its way from `Stage.prepare` to `Task.take`: bytes, numbers and text only, so that it can be shuffled.

A task is Kafka Streams' task: partition p of all co-partitioned inputs. A row that was given a new key goes to the task
of that key (murmur2, as producers place keys), every other row to the task of the partition that it was read from.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pessoa.ksql.operators.key_partitioner import partition_of


class TaskRow(NamedTuple):
    # Which of the stage's inputs it came from, and its place there.
    input: int
    partition: int
    offset: int
    timestamp_ms: int
    # What decides about the task; None: the partition does.
    partition_key: bytes | None
    # What the stage's own operators read.
    payload: bytes

    def task(self, task_count: int) -> int:
        """Return the number of the task that processes the row."""
        return self.partition if self.partition_key is None else partition_of(self.partition_key, task_count)

    def to_bytes(self) -> bytes:
        return _ENCODER.encode(tuple(self))

    @staticmethod
    def from_bytes(data: bytes) -> TaskRow:
        return TaskRow(*_DECODER.decode(data))


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[int, int, int, int, bytes | None, bytes])
