"""Which of several workers runs the connectors: the one that the group gives the config topic's only partition.

Workers with the same `group.id` are members of one consumer group. Its coordinator notices when a member dies and
gives the partition to another. The leader reads nothing from it: to have it is to lead. The other workers answer reads
from the topics, and forward requests that change something.

A worker that loses the partition keeps it until `changed(False)` has returned: no other worker starts a task before the
worker that ran it has stopped it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pessoa.connect.clients import client_settings
from pessoa.connect.worker_config import WorkerConfig

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

log = logging.getLogger("pessoa.connect")

_POLL_S = 0.2
_REJOIN_S = 1.0


class Leadership:
    """`changed` is called, in a thread of its own, with whether this worker leads."""

    def __init__(self, config: WorkerConfig, changed: Callable[[bool], None]) -> None:
        self._config = config
        self._changed = changed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect-leadership", daemon=True)
        self.is_leader = False

    def __repr__(self) -> str:
        return f"<Leadership of {self._config.group_id}: {'this worker leads' if self.is_leader else 'follows'}>"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the connectors, and leave the group; also after a start that failed."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._be_member()
            except Exception:
                # A worker that has left its group must not go on as if it led.
                log.exception("this worker has left its group, and joins it again")
                self._stop.wait(_REJOIN_S)

    def _be_member(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "session.timeout.ms": self._config.settings.get("session.timeout.ms", "10000"),
                "heartbeat.interval.ms": self._config.settings.get("heartbeat.interval.ms", "3000"),
                **client_settings(self._config.settings, "consumer"),
                "group.id": self._config.group_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                # An eager assignor, which revokes before it assigns: so the leader names itself to a worker that joins.
                "partition.assignment.strategy": "range",
            }
        )
        topic = self._config.config_topic
        try:
            consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
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
            log.info("this worker %s", "runs the connectors" if leads else "does not run the connectors")
            self.is_leader = leads
            self._changed(leads)
