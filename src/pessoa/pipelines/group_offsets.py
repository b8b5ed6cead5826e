"""A query's offsets as a consumer group, for the tools that show lag.

Spark keeps offsets in its checkpoint and commits none to Kafka. After a batch the engine commits them to the group
`pessoa-<query>`, which has no members: kafka-consumer-groups, the control centre and every exporter show the pipeline
and how far behind it is. A query that has a checkpoint goes on from there and never reads these offsets. Only a sink
of Connect that has none begins with what its group says, as Kafka's own would.

So no query waits for them either: a thread commits what is newest. A cluster that is down for a moment would otherwise
hold up the engine just when it has queries to start again.

Only the stop of a query waits a moment (`stop_committing`). Tools may then set the group's offsets, and a
commit that was still on its way would undo that. So one that a cluster does not answer in time is given up together
with its client, which then sends nothing more: what waits in it for a broker to come back is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as NoAnswer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ANSWER_TIMEOUT_S = 15.0
PAUSE_AFTER_FAILURE_S = 1.0
STOP_TIMEOUT_S = 5.0
# How often a commit that is waited for looks whether it is given up.
LOOK_INTERVAL_S = 0.1

# Topic, partition, offset.
PartitionOffsets = tuple[tuple[str, int, int], ...]


class GroupOffsets:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings: dict[str, str | int | float | bool] = {**settings, "log_level": "3"}
        self._committed_offsets: dict[str, PartitionOffsets] = {}
        # The newest offsets of each group that are to be committed, None for a group to be deleted. The condition
        # guards both.
        self._queued_offsets: dict[str, PartitionOffsets | None] = {}
        # The group whose offsets the thread is committing.
        self._current_group: str | None = None
        # Whether `stop_committing` has given up the commit in progress.
        self._is_given_up = False
        # The groups whose last commit came to nothing. Each for itself: one that is refused for good is no sign that
        # the cluster is away.
        self._failing_groups: set[str] = set()
        self._condition = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pessoa-group-offsets", daemon=True)
        self._thread.start()

    def commit(self, group_id: str, offsets: Iterable[tuple[str, int, int]]) -> None:
        """Queue the new offsets; a thread commits them soon."""
        wanted = tuple(offsets)
        with self._condition:
            if wanted and self._committed_offsets.get(group_id) != wanted:
                self._queued_offsets[group_id] = wanted
                self._condition.notify_all()

    def stop_committing(self, group_id: str, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stop committing for a group until `commit` is called again; return False if a commit may still happen.

        Queued offsets are still committed if that is soon; a group whose last commit has failed is not waited for. A
        commit that takes longer is given up.
        """

        def is_quiet() -> bool:
            return self._current_group != group_id and (
                group_id not in self._queued_offsets or group_id in self._failing_groups
            )

        with self._condition:
            if not self._condition.wait_for(is_quiet, timeout_s) and self._current_group == group_id:
                self._is_given_up = True
                self._condition.wait_for(lambda: self._current_group != group_id, timeout_s)
            if self._queued_offsets.get(group_id) is not None:
                del self._queued_offsets[group_id]
            # So a commit that fails later is not retried, and a later call of `commit` is not taken for a repetition.
            self._committed_offsets.pop(group_id, None)
            return self._current_group != group_id

    def forget(self, group_id: str, *, deletes: bool) -> None:
        """Commit no more for a group, and delete it if `deletes`; a group that cannot be deleted expires by itself."""
        with self._condition:
            self._queued_offsets.pop(group_id, None)
            self._committed_offsets.pop(group_id, None)
            self._failing_groups.discard(group_id)
            if deletes:
                # Queued like a commit: a commit in flight would recreate the group.
                self._queued_offsets[group_id] = None
                self._condition.notify_all()

    def close(self) -> None:
        """Commit what is queued, if the cluster answers in time, and end the thread."""
        with self._condition:
            self._closing.set()
            self._condition.notify_all()
        self._thread.join(ANSWER_TIMEOUT_S)

    def _work(self) -> None:
        admin: AdminClient | None = None
        while (next_one := self._next()) is not None:
            group_id, wanted = next_one
            admin = admin or self._admin()
            if wanted is None:
                _delete(admin, group_id)
                is_done = True
            else:
                is_done = _alter(admin, group_id, wanted, lambda: self._is_given_up)
            if not is_done:
                # A client may be stuck with a coordinator that is no more; a new one asks anew. And what is given up
                # must be gone with its client before `stop_committing` says so.
                admin = None
            with self._condition:
                self._current_group = None
                if is_done:
                    self._failing_groups.discard(group_id)
                elif self._committed_offsets.get(group_id) == wanted:
                    del self._committed_offsets[group_id]
                    self._queued_offsets.setdefault(group_id, wanted)
                    self._failing_groups.add(group_id)
                self._condition.notify_all()
            if not is_done and self._closing.wait(PAUSE_AFTER_FAILURE_S):
                return

    def _next(self) -> tuple[str, PartitionOffsets | None] | None:
        with self._condition:
            self._condition.wait_for(lambda: self._queued_offsets or self._closing.is_set())
            if not self._queued_offsets:
                return None
            # The group that has waited longest: a group whose coordinator is unreachable must not block the others.
            group_id = self._current_group = next(iter(self._queued_offsets))
            self._is_given_up = False
            wanted = self._queued_offsets.pop(group_id)
            if wanted is not None:
                self._committed_offsets[group_id] = wanted
            return group_id, wanted

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self._settings)


def _alter(admin: AdminClient, group_id: str, wanted: PartitionOffsets, is_given_up: Callable[[], bool]) -> bool:
    """Return whether the offsets were committed; False if they may not have been."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    places = [TopicPartition(topic, partition, offset) for topic, partition, offset in wanted]
    request = ConsumerGroupTopicPartitions(group_id, places)
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
    try:
        answer = admin.alter_consumer_group_offsets([request], request_timeout=ANSWER_TIMEOUT_S)[group_id]
        while not is_given_up() and time.monotonic() < deadline_s:
            try:
                altered = answer.result(LOOK_INTERVAL_S)
            except NoAnswer:
                continue
            return all(place.error is None for place in altered.topic_partitions)
    except KafkaException:
        return False
    return False


def _delete(admin: AdminClient, group_id: str) -> None:
    from confluent_kafka import KafkaException

    try:
        admin.delete_consumer_groups([group_id])[group_id].result(ANSWER_TIMEOUT_S)
    except (KafkaException, NoAnswer):
        return
