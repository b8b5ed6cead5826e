"""The order in which Kafka Streams takes rows: by offset within a partition, partitions merged by their heads' times.

Of the partitions that have rows, the one whose next row has the smallest timestamp goes first; on a tie, the earlier
input, then the smaller partition. A row that is out of order in its own partition stays where it is.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator

from pessoa.ksql.operators.task_rows import TaskRow


def merge_in_stream_order(rows: Iterable[TaskRow]) -> Iterator[TaskRow]:
    """Yield the rows of one task in the order in which it must process them; rows of one record keep their order."""
    queues: dict[tuple[int, int], list[TaskRow]] = defaultdict(list)
    for row in rows:
        queues[row.input, row.partition].append(row)
    heads: list[tuple[int, int, int, int]] = []
    for (source, partition), queue in queues.items():
        queue.sort(key=_offset)
        heads.append((queue[0].timestamp_ms, source, partition, 0))
    heapq.heapify(heads)
    while heads:
        _, source, partition, index = heads[0]
        queue = queues[source, partition]
        yield queue[index]
        if index + 1 < len(queue):
            heapq.heapreplace(heads, (queue[index + 1].timestamp_ms, source, partition, index + 1))
        else:
            heapq.heappop(heads)


def _offset(row: TaskRow) -> int:
    return row.offset
