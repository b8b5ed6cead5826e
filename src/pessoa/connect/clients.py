"""Kafka clients of a worker and of its connectors, with the settings that are meant for them.

A worker's file has settings for all clients (`security.protocol`, `sasl.*`, `ssl.*`), for one kind of them
(`producer.acks`, `consumer.…`, `admin.…`), and a connector adds its own (`producer.override.…`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from pessoa.client.librdkafka import translated

log = logging.getLogger("pessoa.connect")

_SHARED = ("security.", "sasl.", "ssl.", "client.dns.lookup", "request.timeout.ms", "metadata.max.age.ms")
# librdkafka's own words for a broker that is away go to our log once, not to standard error all the time.
_QUIET = {"log_level": 2}
FLUSH_S = 60.0
# How long a topic that was created may stay unknown to the broker that is asked.
KNOWN_S = 60.0


def client_settings(
    worker: Mapping[str, str], kind: str, connector: Mapping[str, str] | None = None
) -> dict[str, str | int | float | bool]:
    """For a producer, consumer or admin, in librdkafka's words."""
    shared = {name: text for name, text in worker.items() if name.startswith(_SHARED)}
    own = {name.removeprefix(f"{kind}."): text for name, text in worker.items() if name.startswith(f"{kind}.")}
    prefix = f"{kind}.override."
    override = {name.removeprefix(prefix): text for name, text in (connector or {}).items() if name.startswith(prefix)}
    java = {**shared, **own, **override}
    return {"bootstrap.servers": worker["bootstrap.servers"], **translated(java, log.warning), **_QUIET}


class TopicMaker:
    """Topics that somebody is about to write to, made first where that was asked for."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(dict(settings))

    def exists(self, topic: str) -> bool:
        return topic in self._admin.list_topics(timeout=FLUSH_S).topics

    def ensure(
        self, topic: str, *, partitions: int = -1, replicas: int = -1, config: Mapping[str, str] | None = None
    ) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        known = self._admin.list_topics(timeout=FLUSH_S)
        if topic in known.topics:
            return
        if replicas > len(known.brokers):
            log.warning("%s has %d replicas, for want of brokers", topic, len(known.brokers))
            replicas = len(known.brokers)
        wanted = NewTopic(topic, partitions, replicas, config=dict(config or {}))
        for future in self._admin.create_topics([wanted]).values():
            try:
                future.result()
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        self._wait_until_known(topic)

    def _wait_until_known(self, topic: str) -> None:
        """ConnectionError if no broker tells of it in time: whoever writes next would find no partition."""
        deadline = time.monotonic() + KNOWN_S
        while topic not in self._admin.list_topics(timeout=FLUSH_S).topics:
            if time.monotonic() > deadline:
                raise ConnectionError(
                    f"the topic {topic} was created, and after {KNOWN_S:.0f} s the brokers do not tell of it"
                )
            time.sleep(0.05)


class Outbox:
    """A producer that knows whether everything has arrived."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
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
                self._producer.produce(topic, value, key, headers=list(headers or ()), on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(str(error))

    def flush(self) -> None:
        """ConnectionError if something has not arrived."""
        left = self._producer.flush(FLUSH_S)
        failures, self._failures = self._failures, []
        if left or failures:
            raise ConnectionError(
                f"{left + len(failures)} records could not be written: {(failures or ['no answer'])[0]}"
            )
