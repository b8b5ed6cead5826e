"""The server's clients of Kafka, all with one identity: the `security.`, `sasl.` and `ssl.` settings of its file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as NoAnswer
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pessoa.client.librdkafka import is_passing, to_librdkafka
from pessoa.client.topic_creation import TopicSpec, TopicUnavailable, delete_topic, ensure_topic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import PartitionMetadata

    from pessoa.ksql.server.server_config import KsqlConfig

log = logging.getLogger("pessoa.ksql")

T = TypeVar("T")
Settings = dict[str, str | int | float | bool]
_QUIET: Settings = {"log_level": 2}
ANSWER_S = 30.0


class TopicFacts(NamedTuple):
    """A topic: its name, and the number of replicas of each partition."""

    name: str
    replicas: tuple[int, ...]

    @property
    def partitions(self) -> int:
        return len(self.replicas)


class KafkaRefused(Exception):
    """Kafka refused a request that a statement needs; the message says why."""

    @property
    def is_denied(self) -> bool:
        """Whether an access control list is missing: recognised by the messages of our brokers and Apache's."""
        message = str(self).lower()
        return any(word in message for word in ("not authorised", "not authorized", "authorization failed"))


class KafkaClients:
    """Makes Kafka clients; one admin client and one producer are shared by all statements."""

    def __init__(self, config: KsqlConfig) -> None:
        security = to_librdkafka(config.kafka_security, log.warning)
        self.settings: Settings = {"bootstrap.servers": config.bootstrap_servers, **security, **_QUIET}
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    def __repr__(self) -> str:
        return f"<KafkaClients of {self.settings['bootstrap.servers']}>"

    @property
    def admin(self) -> AdminClient:
        with self._lock:
            if self._admin is None:
                from confluent_kafka.admin import AdminClient

                self._admin = AdminClient(dict(self.settings))
            return self._admin

    @property
    def producer(self) -> Producer:
        with self._lock:
            if self._producer is None:
                from confluent_kafka import Producer

                # Partitions as the Java clients choose them, so that keys of other producers meet ours.
                self._producer = Producer(
                    {**self.settings, "acks": "all", "enable.idempotence": True, "linger.ms": 0,
                     "partitioner": "murmur2_random"}
                )  # fmt: skip
            return self._producer

    def consumer(self, group: str, **more: str | int | bool) -> Consumer:
        """Return a consumer that joins no group: the caller assigns its partitions."""
        from confluent_kafka import Consumer

        return Consumer(
            {
                **self.settings,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                **more,
            }
        )

    # Topics.

    def topics(self) -> dict[str, TopicFacts]:
        metadata = self._call(lambda: self.admin.list_topics(timeout=ANSWER_S))
        return {name: _facts(name, one.partitions) for name, one in metadata.topics.items() if one.error is None}

    def topic(self, name: str) -> TopicFacts | None:
        # All topics: a Metadata request for one topic creates it if brokers have auto.create.topics.enable.
        return self.topics().get(name)

    def create_topic(self, spec: TopicSpec) -> TopicFacts:
        try:
            ensure_topic(self.admin, spec)
        except TopicUnavailable as missing:
            raise KafkaRefused(str(missing)) from None
        found = self.topic(spec.name)
        if found is None:
            raise KafkaRefused(f"the topic {spec.name} was created, but brokers do not tell of it")
        return found

    def delete_topic(self, name: str) -> None:
        delete_topic(self.admin, name)

    def readers_of(self, topics: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return how many consumers and groups read each topic."""
        groups = self._call(lambda: self.admin.list_consumer_groups(request_timeout=ANSWER_S).result(ANSWER_S))
        ids = [one.group_id for one in groups.valid]
        counts = {name: [0, 0] for name in topics}
        described = self.admin.describe_consumer_groups(ids, request_timeout=ANSWER_S) if ids else {}
        for future in described.values():
            members = self._call(lambda future=future: future.result(ANSWER_S).members)  # type: ignore[misc]
            read = [{place.topic for place in one.assignment.topic_partitions} for one in members if one.assignment]
            for name in {topic for topics_read in read for topic in topics_read} & counts.keys():
                counts[name][0] += sum(name in topics_read for topics_read in read)
                counts[name][1] += 1
        return {name: (consumers, groups_) for name, (consumers, groups_) in counts.items()}

    def ends(self, consumer: Consumer, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the log start offset and the end offset of partitions."""
        from confluent_kafka import TopicPartition

        def ask(place: tuple[str, int]) -> tuple[int, int]:
            found = consumer.get_watermark_offsets(TopicPartition(*place), ANSWER_S)
            if found is None:
                raise NoAnswer
            return found

        return {place: self._call(lambda place=place: ask(place)) for place in partitions}  # type: ignore[misc]

    def _call(self, request: Callable[[], T]) -> T:
        from confluent_kafka import KafkaException

        try:
            return request()
        except KafkaException as failure:
            error = failure.args[0]
            raise KafkaRefused(f"{error.str()}{' (it may pass)' if is_passing(error) else ''}") from None
        except NoAnswer:
            raise KafkaRefused("no broker answered") from None

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(5)


def _facts(name: str, partitions: Mapping[int, PartitionMetadata]) -> TopicFacts:
    return TopicFacts(name, tuple(len(one.replicas) for _, one in sorted(partitions.items())))
