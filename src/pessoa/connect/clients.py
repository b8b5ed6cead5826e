"""Kafka clients of a worker and of its connectors, with the settings that are meant for them.

A worker's file has settings for all clients (`security.protocol`, `sasl.*`, `ssl.*`), for one kind of them
(`producer.acks`, `consumer.…`, `admin.…`), and a connector adds its own (`producer.override.…`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeAlias

from pessoa.client.librdkafka import security_settings, to_librdkafka
from pessoa.client.topic_creation import TopicSpec, TopicUnavailable, ensure_topic
from pessoa.web.settings import settings_below

log = logging.getLogger("pessoa.connect")

# The settings of the worker that all its clients share, besides those for security.
_SHARED = ("client.dns.lookup", "request.timeout.ms", "metadata.max.age.ms")
# librdkafka's messages about an unreachable broker go to our log once, not to standard error all the time.
_QUIET = {"log_level": 2}
FLUSH_S = 60.0


# Under librdkafka's names.
ClientSettings: TypeAlias = dict[str, str | int | float | bool]


def client_settings(worker: Mapping[str, str], kind: str, connector: Mapping[str, str] | None = None) -> ClientSettings:
    """Return the settings of a producer, consumer or admin."""
    shared = security_settings(worker) | {name: worker[name] for name in _SHARED if name in worker}
    own = settings_below(worker, f"{kind}.")
    java = {**shared, **own, **settings_below(connector or {}, f"{kind}.override.")}
    return {"bootstrap.servers": worker["bootstrap.servers"], **to_librdkafka(java, log.warning), **_QUIET}


class TopicMaker:
    """Creates the topics that a connector is about to write to."""

    def __init__(self, settings: ClientSettings) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(dict(settings))

    def ensure(
        self, topic: str, *, partitions: int = -1, replicas: int = -1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create the topic if it does not exist; ConnectionError if that fails, and the task is retried."""
        try:
            ensure_topic(self._admin, TopicSpec(topic, partitions, replicas, config or {}))
        except TopicUnavailable as missing:
            raise ConnectionError(str(missing)) from None


class Outbox:
    """A producer whose `flush` raises if a record was not acknowledged."""

    def __init__(self, settings: ClientSettings) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({**settings, "acks": "all", "linger.ms": 5})
        self._failures: list[str] = []

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=list(headers or ()), on_delivery=self._note_delivery)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _note_delivery(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def flush(self) -> None:
        """Wait until every record is acknowledged; ConnectionError if one is not."""
        left = self._producer.flush(FLUSH_S)
        failures, self._failures = self._failures, []
        if left or failures:
            raise ConnectionError(
                f"{left + len(failures)} records could not be written: {(failures or ['no answer'])[0]}"
            )
