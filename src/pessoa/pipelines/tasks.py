"""Which batch of which query a Python function works for, asked from inside a Spark task.

Spark runs a micro-batch as jobs, and hangs two facts on every task of them: the number of the batch, and the id that
the query's checkpoint was created with. So a function that runs on the executors can write a batch by itself and
recognise one that it has written before; nothing needs to go through the driver (docs/decisions/0009).
"""

from __future__ import annotations

from typing import NamedTuple

# The names of Spark's local properties (MicroBatchExecution.BATCH_ID_KEY, StreamExecution.QUERY_ID_KEY).
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


class Task(NamedTuple):
    # The id in the checkpoint: the same after every restart, another one if the checkpoint was deleted.
    checkpoint_id: str
    # Counts from 0 within a checkpoint. A batch that is repeated has its number again, and the same input.
    batch_id: int
    # The partition of the Spark stage, and how often it was tried before.
    partition: int
    attempt: int


def this_task() -> Task:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "this_task is asked inside a Spark task"
    batch_id, checkpoint_id = context.getLocalProperty(_BATCH_ID), context.getLocalProperty(_QUERY_ID)
    assert batch_id is not None, "the task belongs to no micro-batch"
    assert checkpoint_id is not None, "the task belongs to no streaming query"
    return Task(checkpoint_id, int(batch_id), context.partitionId(), context.attemptNumber())
