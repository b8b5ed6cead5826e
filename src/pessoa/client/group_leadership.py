"""Which of several instances of a service leads: the one that a consumer group gives a topic's only partition.

Instances are members of one consumer group. Its coordinator notices when a member dies and gives the partition to
another. The leader reads nothing from it: to have it is to lead.

An instance that loses the partition keeps it until `changed(False)` has returned: no other instance begins with what
only the leader may do before the one that did it has stopped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_POLL_S = 0.2
_REJOIN_S = 1.0


class GroupLeadership:
    """Elects a leader among the members of a consumer group. `changed` is called, in a thread of its own, with
    whether this instance leads."""

    def __init__(
        self,
        settings: Mapping[str, str | int | float | bool],
        group_id: str,
        topic: str,
        changed: Callable[[bool], None],
        log: logging.Logger,
    ) -> None:
        """Make a member that has not joined; `settings` are the consumer's, under librdkafka's names."""
        self._settings = settings
        self._group_id = group_id
        self._topic = topic
        self._on_change = changed
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{group_id}-leadership", daemon=True)
        self.is_leader = False

    def __repr__(self) -> str:
        return f"<GroupLeadership of {self._group_id}: {'this instance leads' if self.is_leader else 'follows'}>"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Give up the lead, and leave the group; also after a start that failed."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._be_member()
            except Exception:  # noqa: BLE001 - logged, and the group is joined again
                # An instance that has left its group must not go on as if it led.
                self._log.exception("this instance has left the group %s, and joins it again", self._group_id)
                self._stop.wait(_REJOIN_S)

    def _be_member(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "session.timeout.ms": "10000",
                "heartbeat.interval.ms": "3000",
                **self._settings,
                "group.id": self._group_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                # An eager assignor, which revokes before it assigns: so the leader tells an instance that joins.
                "partition.assignment.strategy": "range",
            }
        )
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            while not self._stop.is_set():
                consumer.poll(_POLL_S)
        finally:
            try:
                self._set(False)
            finally:
                consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            consumer.assign(partitions)
            consumer.pause(partitions)
        self._set(bool(partitions))

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._set(False)

    def _set(self, leads: bool) -> None:
        if leads != self.is_leader:
            self._log.info("this instance of %s %s", self._group_id, "leads" if leads else "does not lead")
            self.is_leader = leads
            self._on_change(leads)
