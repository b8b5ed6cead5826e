"""Task slots: the places for tasks that Spark has, and how many of them a query holds.

A micro-batch takes slots while its tasks run. A query in real-time mode holds them for as long as it runs, since its
tasks never end: one for each partition that it reads, and behind a shuffle one for each partition of its state. A
query that finds too few of them would wait for ever, so the engine counts before it starts one.

On this machine slots cost nothing: such tasks wait for records most of the time, and their number need not be that of
the cores. So `local[*]` becomes `local[N]` with room for some dozens of queries (`with_room`). On a cluster the number
is that of the executors' cores. What runs there beside this engine's queries is not known to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from pessoa.pipelines.plan import Node, Source, every
from pessoa.pipelines.stages import has_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Thirty windowed counts over topics of four partitions: 30 × (4 + 4).
LOCAL_SLOTS = 256
SLOTS_PER_CORE = 32
# Slots that stay free for micro-batches and other jobs.
MOST_RESERVED = 4
ANSWER_TIMEOUT_S = 5.0
_LOCAL = re.compile(r"local\[(\d+)")
_SPLITS = re.compile(r"splits=(?:Some\()?(\d+)")


class TaskSlots(msgspec.Struct, frozen=True):
    """The counts of task slots: all that Spark has, those that queries in real-time mode hold, and those free for
    another."""

    total: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.total - self.used - min(MOST_RESERVED, self.total // 4))


class NoTaskSlots(Exception):
    """There are too few slots for a query; the sentence says how many, and what to do."""


def with_room(master: str) -> str:
    """Return `local[*]` with a number of slots; any other master unchanged."""
    return f"local[{max(LOCAL_SLOTS, SLOTS_PER_CORE * (os.cpu_count() or 1))}]" if master == "local[*]" else master


def slots_of_master(master: str) -> int | None:
    """Return the slots of a `local[N]`; None for a master that has its executors elsewhere."""
    found = _LOCAL.match(with_room(master))
    if found is not None:
        return int(found[1])
    return 1 if master == "local" else None


def slots_of_session(session: SparkSession) -> int | None:
    """Return the slots of a session's Spark, from a plan that Spark makes; None if the plan does not show them."""
    # A range is split among as many tasks as there are cores, and its plan shows the number.
    plan: str = session.range(1)._explain_string()  # type: ignore[operator]
    found = _SPLITS.search(plan)
    return int(found[1]) if found else None


def slots_wanted(plan: Node | None, partitions: Mapping[str, int], shuffle_partitions: int) -> int:
    """Return how many slots a plan holds in real-time mode. A user's own function counts as one source of one
    partition."""
    if plan is None:
        return 1
    nodes = every(plan)
    read = sum(partitions.get(node.topic, 1) for node in nodes if isinstance(node, Source))
    return read + (shuffle_partitions if any(map(has_state, nodes)) else 0)


def refuse_if_full(query_id: str, wanted: int, slots: TaskSlots) -> None:
    if wanted > slots.free:
        raise NoTaskSlots(
            f"the query {query_id} needs {wanted} task slots for as long as it runs in real-time mode, and of Spark's"
            f" {slots.total} there are {slots.free} to be had: stop another query, run this one in micro-batches, or"
            " give Spark more cores (for this machine: --spark-master local[N])"
        )


def count_partitions(settings: Mapping[str, str], plan: Node | None) -> dict[str, int]:
    """Return the count of partitions of each topic that a plan reads. A topic that the cluster does not list in time
    is left out."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    topics = {node.topic for node in every(plan) if isinstance(node, Source)} if plan is not None else set()
    if not topics:
        return {}
    try:
        known = AdminClient({**settings, "log_level": "3"}).list_topics(timeout=ANSWER_TIMEOUT_S).topics
    except KafkaException:
        return {}
    return {topic: len(known[topic].partitions) for topic in topics if topic in known and known[topic].partitions}
