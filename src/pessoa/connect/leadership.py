"""Which of several workers runs the connectors: the one that the group gives the config topic's only partition.

Workers with the same `group.id` are members of one consumer group. Its coordinator notices when a member dies and
gives the partition to another, which then reads nothing from it: having it is all that counts. The others answer
questions from the topics, and pass on what changes something.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pessoa.connect.clients import client_settings
from pessoa.connect.worker_config import WorkerConfig

log = logging.getLogger("pessoa.connect")

_POLL_S = 0.2


class Leadership:
    """`changed` is called, in a thread of its own, with whether this worker leads."""

    def __init__(self, config: WorkerConfig, changed: Callable[[bool], None]) -> None:
        self._config = config
        self._changed = changed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect-leadership", daemon=True)
        self.is_leader = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "session.timeout.ms": self._config.settings.get("session.timeout.ms", "10000"),
                "heartbeat.interval.ms": self._config.settings.get("heartbeat.interval.ms", "3000"),
                **client_settings(self._config.settings, "consumer"),
                "group.id": self._config["group.id"],
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
            }
        )
        topic = self._config["config.storage.topic"]
        consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost)
        try:
            while not self._stop.is_set():
                consumer.poll(_POLL_S)
        finally:
            consumer.close()

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            consumer.assign(partitions)
            consumer.pause(partitions)
        self._set(bool(partitions))

    def _lost(self, _: Any, partitions: list[Any]) -> None:
        if partitions:
            self._set(False)

    def _set(self, leads: bool) -> None:
        if leads != self.is_leader:
            self.is_leader = leads
            log.info("this worker %s", "runs the connectors" if leads else "does not run the connectors")
            self._changed(leads)
