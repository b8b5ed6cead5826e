"""The two clusters of a mirror: their keys, their clients, and the requests to them.

Settings below `source.cluster.` and `target.cluster.` are those of clients, in the Java clients' names
(`source.cluster.security.protocol`); `source.consumer.` and `target.producer.` add to those of one kind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pessoa.base.config_values import Value, at_least, one_of
from pessoa.client.librdkafka import to_librdkafka
from pessoa.client.topic_creation import IfExists, TopicSpec, TopicUnavailable, ensure_topic
from pessoa.connect.clients import ClientSettings
from pessoa.connect.connectors.mirror_names import ReplicationPolicy
from pessoa.connect.definition import (
    BOOLEAN,
    HIGH,
    INT,
    LOW,
    MEDIUM,
    REQUIRED,
    STRING,
    Config,
    Key,
    Settings,
    key,
)
from pessoa.web.settings import settings_below

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

log = logging.getLogger("pessoa.connect")

TIMEOUT_S = 30.0
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
# Records go through as the bytes that they are.
BYTES_DEFAULTS = {"key.converter": BYTES, "value.converter": BYTES, "header.converter": BYTES}
DEFAULT_POLICY = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
# librdkafka's messages about an unreachable broker are kept out of standard error.
_QUIET = {"log_level": 2}


def _alias_complaint(value: Value, settings: Settings) -> str | None:
    if not str(value).strip():
        return "an alias may not be empty"
    if value == settings.get("source.cluster.alias") == settings.get("target.cluster.alias"):
        return "source and target must have different aliases"
    return None


def cluster_keys() -> list[Key]:
    group = "Clusters"
    return [
        key("source.cluster.alias", STRING, REQUIRED, _alias_complaint, HIGH, "The name of the cluster to read.",
            group=group),
        key("target.cluster.alias", STRING, "target", _alias_complaint, HIGH, "The name of the cluster to write.",
            group=group),
        key("source.cluster.bootstrap.servers", STRING, REQUIRED, HIGH, "Brokers of the cluster to read.", group=group),
        key("target.cluster.bootstrap.servers", STRING, REQUIRED, HIGH, "Brokers of the cluster to write, the one that "
            "this worker belongs to.", group=group),
        key("replication.policy.class", STRING, DEFAULT_POLICY, one_of(DEFAULT_POLICY, IDENTITY_POLICY,
            "DefaultReplicationPolicy", "IdentityReplicationPolicy"), LOW, "How topics are named here.", group=group),
        key("replication.policy.separator", STRING, ".", LOW, "What stands between alias and topic.", group=group),
        key("offset-syncs.topic.location", STRING, "source", one_of("source", "target"), LOW,
            "The cluster that has the offset syncs.", group=group),
        key("offset-syncs.topic.replication.factor", INT, 3, at_least(1), LOW, "The replicas of that topic.",
            group=group),
        key("enabled", BOOLEAN, True, MEDIUM, "Whether it does anything.", group=group),
    ]  # fmt: skip


# How long to wait after a cluster did not answer.
PAUSE_S = 5.0


@contextmanager
def tolerating_outages(what: str) -> Iterator[None]:
    """Log the failure of a cluster in the block instead of raising it; the caller's next round retries."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, ConnectionError, TimeoutError) as failure:
        log.warning("%s: tried again in a moment: %s", what, failure)


class Clusters:
    def __init__(self, config: Config) -> None:
        self._config = config
        self.source = config.string("source.cluster.alias")
        self.target = config.string("target.cluster.alias")
        separator = config.string("replication.policy.separator")
        is_identity = config.string("replication.policy.class").endswith("IdentityReplicationPolicy")
        self.policy = ReplicationPolicy(separator, is_identity, self.source)
        self._admins: dict[str, AdminClient] = {}

    def __repr__(self) -> str:
        return f"<Clusters {self.source} → {self.target}>"

    @property
    def separator(self) -> str:
        return self.policy.separator

    @property
    def syncs_side(self) -> str:
        return self._config.string("offset-syncs.topic.location")

    @property
    def syncs_topic_other(self) -> str:
        """The alias in the name of the offset-syncs topic: that of the cluster which does not hold the topic."""
        return self.target if self.syncs_side == "source" else self.source

    def settings(self, side: str, kind: str) -> ClientSettings:
        """Return the settings of a consumer, producer or admin client of one of the two clusters."""
        raw = self._config.originals
        java = {**settings_below(raw, f"{side}.cluster."), **settings_below(raw, f"{side}.{kind}.")}
        java.pop("alias", None)
        return {**to_librdkafka(java, log.warning), **_QUIET}

    def admin(self, side: str) -> AdminClient:
        if side not in self._admins:
            from confluent_kafka.admin import AdminClient

            self._admins[side] = AdminClient(dict(self.settings(side, "admin")))
        return self._admins[side]

    def partitions(self, side: str) -> dict[str, int]:
        """Return the count of partitions of every topic."""
        topics = self.admin(side).list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}

    def ensure_topic(self, side: str, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic, or add partitions to it. ConnectionError if that fails."""
        spec = TopicSpec(topic, partitions, replicas, config, IfExists.GROW)
        try:
            ensure_topic(self.admin(side), spec)
        except TopicUnavailable as missing:
            raise ConnectionError(str(missing)) from None

    def topic_configs(self, side: str, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the configs that are set on the topics themselves, without defaults."""
        from confluent_kafka.admin._config import ConfigResource, ConfigSource
        from confluent_kafka.admin._resource import ResourceType

        if not topics:
            return {}
        asked = self.admin(side).describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in topics])
        return {
            resource.name: {
                entry.name: entry.value
                for entry in future.result(TIMEOUT_S).values()
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and entry.value is not None
            }
            for resource, future in asked.items()
        }

    def set_topic_config(self, topic: str, wanted: Mapping[str, str], unwanted: Sequence[str]) -> None:
        """Change the settings of a topic of the target."""
        from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
        from confluent_kafka.admin._resource import ResourceType

        changes = [
            ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in wanted.items()
        ] + [ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE) for name in unwanted]
        if changes:
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
            (future,) = self.admin("target").incremental_alter_configs([resource]).values()
            future.result(TIMEOUT_S)
