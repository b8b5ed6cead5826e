"""MirrorCheckpointConnector and MirrorHeartbeatConnector, the smaller two of MirrorMaker 2.

The first translates the offsets of the other cluster's consumer groups by the offset syncs that the mirror source
writes, and puts them into `<source>.checkpoints.internal`. With `sync.group.offsets.enabled` it sets them here as well,
for groups that have no members here: a consumer that moves to this cluster goes on where it was.

The second writes a heartbeat every second: heartbeats that arrive elsewhere show that a mirror is alive, and which way
records came.
"""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pessoa.base.config_values import at_least
from pessoa.base.json_value import JsonObject
from pessoa.connect.connector import Offset, Offsets, SourceConnector
from pessoa.connect.connectors.mirror_clusters import (
    BYTES_DEFAULTS,
    TIMEOUT_S,
    Clusters,
    cluster_keys,
    tolerating_outages,
)
from pessoa.connect.connectors.mirror_names import (
    HEARTBEATS,
    Checkpoint,
    Heartbeat,
    NameFilter,
    OffsetSync,
    SyncedPartition,
    checkpoints_topic,
    offset_syncs_topic,
)
from pessoa.connect.data import BYTES, Record
from pessoa.connect.definition import BOOLEAN, HIGH, INT, LIST, LOW, STRING, Config, Table, key

if TYPE_CHECKING:
    from confluent_kafka import Consumer

log = logging.getLogger("pessoa.connect")


class MirrorCheckpointConnector(SourceConnector):
    NAMES = ("org.apache.kafka.connect.mirror.MirrorCheckpointConnector",)
    DEFAULTS = BYTES_DEFAULTS
    CONFIG = Table(
        cluster_keys(),
        key("groups", LIST, (".*",), HIGH, "Regular expressions for consumer groups.", group="Groups"),
        key("groups.exclude", LIST, ("console-consumer-.*", "connect-.*", "__.*"), HIGH,
            "Regular expressions for groups that are left out.", group="Groups"),
        key("topics", LIST, (".*",), HIGH, "Regular expressions for the topics of the mirror.", group="Groups"),
        key("topics.exclude", LIST, (r".*[\-\.]internal", r".*\.replica", "__.*"), HIGH,
            "Regular expressions for topics that are left out.", group="Groups"),
        key("emit.checkpoints.enabled", BOOLEAN, True, LOW, "Whether checkpoints are written.", group="Checkpoints"),
        key("emit.checkpoints.interval.seconds", INT, 60, at_least(1), LOW, "How often.", group="Checkpoints"),
        key("sync.group.offsets.enabled", BOOLEAN, False, LOW, "Whether groups without members get these offsets.",
            group="Checkpoints"),
        key("sync.group.offsets.interval.seconds", INT, 60, at_least(1), LOW, "How often.", group="Checkpoints"),
        key("checkpoints.topic.replication.factor", INT, 3, at_least(1), LOW, "The replicas of that topic.",
            group="Checkpoints"),
    )  # fmt: skip

    def start(self, config: Config, offsets: Offsets) -> None:
        self._config = config
        self._offsets = offsets
        self._clusters = Clusters(config)
        self._groups = NameFilter(config.entries("groups"), config.entries("groups.exclude"))
        self._topics = NameFilter(config.entries("topics"), config.entries("topics.exclude"))
        self._topic = checkpoints_topic(self._clusters.source, self._clusters.separator)
        self._syncs: dict[tuple[str, int], SyncedPartition] = {}
        self._consumer: Consumer | None = None
        self._is_ready = False
        self._last_values: dict[bytes, bytes] = {}
        self._latest: dict[tuple[str, str, int], Checkpoint] = {}
        self._due_s = self._set_due_s = 0.0

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None

    @classmethod
    def is_beyond(cls, offset: Offset, end: Offset) -> bool | None:  # noqa: ARG003
        # A checkpoint says how things are now; one that is repeated is as good as the first.
        return True

    def poll(self) -> Iterable[Record]:
        now_s = clock.monotonic()
        if now_s < self._due_s or not self._config.boolean("enabled"):
            return []
        self._due_s = now_s + self._config.integer("emit.checkpoints.interval.seconds")
        records: list[Record] = []
        with tolerating_outages(f"offsets of groups of {self._clusters.source}"):
            records += self._translate(now_s)
        return records

    def _translate(self, now_s: float) -> list[Record]:
        if not self._is_ready:
            replicas = self._config.integer("checkpoints.topic.replication.factor")
            self._clusters.ensure_topic("target", self._topic, 1, replicas, {"cleanup.policy": "compact"})
            self._is_ready = True
        self._read_syncs()
        found = list(self._checkpoints())
        for each in found:
            self._latest[each.group, each.topic, each.partition] = each
        if self._config.boolean("sync.group.offsets.enabled") and now_s >= self._set_due_s:
            self._set_due_s = now_s + self._config.integer("sync.group.offsets.interval.seconds")
            self._set_offsets()
        if not self._config.boolean("emit.checkpoints.enabled"):
            return []
        changed = [each for each in found if self._last_values.get(each.key()) != each.value()]
        self._last_values |= {each.key(): each.value() for each in changed}
        return [self._record(each) for each in changed]

    def _record(self, each: Checkpoint) -> Record:
        place: JsonObject = {"group": each.group, "topic": each.topic, "partition": each.partition}
        return Record(
            self._topic, 0, BYTES, each.key(), BYTES, each.value(), source_partition=place,
            source_offset={"offset": each.upstream},
        )  # fmt: skip

    # Offset syncs.

    def _read_syncs(self) -> None:
        """Read the offset-syncs topic to its end."""
        from confluent_kafka import Consumer, TopicPartition

        clusters = self._clusters
        topic = offset_syncs_topic(clusters.syncs_topic_other, clusters.separator)
        if topic not in clusters.partitions(clusters.syncs_side):
            return
        if self._consumer is None:
            settings = clusters.settings(clusters.syncs_side, "consumer")
            self._consumer = Consumer(
                {**settings, "group.id": f"pessoa-checkpoints-{clusters.source}", "enable.auto.commit": False,
                 "auto.offset.reset": "earliest", "allow.auto.create.topics": False}
            )  # fmt: skip
            self._consumer.assign([TopicPartition(topic, 0, 0)])
        _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        deadline_s = clock.monotonic() + TIMEOUT_S
        while clock.monotonic() < deadline_s:
            for message in self._consumer.consume(1000, 0.1):
                key_bytes, value = message.key(), message.value()
                if message.error() is None and isinstance(key_bytes, bytes) and isinstance(value, bytes):
                    self._add_sync(key_bytes, value)
            (at,) = self._consumer.position([TopicPartition(topic, 0)])
            if end <= max(at.offset, 0):
                return

    def _add_sync(self, key_bytes: bytes, value: bytes) -> None:
        try:
            sync = OffsetSync.read(key_bytes, value)
        except (ValueError, ArithmeticError) as wrong:
            log.warning("a record of the offset syncs cannot be read: %s", wrong)
            return
        self._syncs.setdefault((sync.topic, sync.partition), SyncedPartition()).add(sync.upstream, sync.downstream)

    # Groups.

    def _checkpoints(self) -> Iterable[Checkpoint]:
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

        admin = self._clusters.admin("source")
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        for group in sorted(each.group_id for each in listed.valid if self._groups.takes(each.group_id)):
            (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
            try:
                places = future.result(TIMEOUT_S).topic_partitions
            except KafkaException as failure:
                log.info("the offsets of %s cannot be read: %s", group, failure)
                continue
            for place in places:
                synced = self._syncs.get((place.topic, place.partition))
                if place.offset < 0 or synced is None or not self._topics.takes(place.topic):
                    continue
                downstream = synced.translate(place.offset)
                if downstream is not None:
                    topic = self._clusters.policy.remote_topic(self._clusters.source, place.topic)
                    yield Checkpoint(group, topic, place.partition, place.offset, downstream, place.metadata or "")

    def _set_offsets(self) -> None:
        """Commit the translated offsets of groups without members on the target, never backwards."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        admin = self._clusters.admin("target")
        for group in sorted({group for group, _, _ in self._latest}):
            wanted = {place[1:]: each.downstream for place, each in self._latest.items() if place[0] == group}
            if not self._is_idle(group):
                continue
            (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
            known = self._known_offsets(future)
            further = {place: offset for place, offset in wanted.items() if offset > known.get(place, -1)}
            if further:
                places = [TopicPartition(*place, offset) for place, offset in further.items()]
                (done,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
                done.result(TIMEOUT_S)

    def _known_offsets(self, future: object) -> Mapping[tuple[str, int], int]:
        from confluent_kafka import KafkaException

        try:
            places = future.result(TIMEOUT_S).topic_partitions  # type: ignore[attr-defined]
        except KafkaException as failure:
            if failure.args[0].name() == "GROUP_ID_NOT_FOUND":
                return {}
            raise
        return {(each.topic, each.partition): each.offset for each in places if each.offset >= 0}

    def _is_idle(self, group: str) -> bool:
        from confluent_kafka import ConsumerGroupState, KafkaException

        (future,) = self._clusters.admin("target").describe_consumer_groups([group]).values()
        try:
            state = future.result(TIMEOUT_S).state
        except KafkaException as failure:
            return bool(failure.args[0].name() == "GROUP_ID_NOT_FOUND")
        return state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


class MirrorHeartbeatConnector(SourceConnector):
    NAMES = ("org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",)
    DEFAULTS = BYTES_DEFAULTS
    CONFIG = Table(
        cluster_keys(),
        key("emit.heartbeats.enabled", BOOLEAN, True, LOW, "Whether heartbeats are written.", group="Heartbeats"),
        key("emit.heartbeats.interval.seconds", INT, 1, at_least(1), LOW, "How often.", group="Heartbeats"),
        key("heartbeats.topic.replication.factor", INT, 3, at_least(1), LOW, "The replicas of that topic.",
            group="Heartbeats"),
        key("heartbeats.topic", STRING, HEARTBEATS, LOW, "The topic.", group="Heartbeats"),
    )  # fmt: skip

    def start(self, config: Config, offsets: Offsets) -> None:
        self._config = config
        self._clusters = Clusters(config)
        self._is_ready = False
        self._due_s = 0.0

    @classmethod
    def is_beyond(cls, offset: Offset, end: Offset) -> bool | None:  # noqa: ARG003
        return True

    def poll(self) -> Iterable[Record]:
        now_s = clock.monotonic()
        config = self._config
        if now_s < self._due_s or not (config.boolean("enabled") and config.boolean("emit.heartbeats.enabled")):
            return []
        if not self._is_ready:
            with tolerating_outages(f"the topic {self._topic}"):
                replicas = config.integer("heartbeats.topic.replication.factor")
                self._clusters.ensure_topic("target", self._topic, 1, replicas, {"cleanup.policy": "compact"})
                self._is_ready = True
        self._due_s = now_s + config.integer("emit.heartbeats.interval.seconds")
        beat = Heartbeat(self._clusters.source, self._clusters.target, clock.time_ns() // 1_000_000)
        place: JsonObject = {"sourceClusterAlias": beat.source, "targetClusterAlias": beat.target}
        return [
            Record(self._topic, 0, BYTES, beat.key(), BYTES, beat.value(), timestamp=beat.time_ms,
                   source_partition=place, source_offset={"offset": 0})
        ]  # fmt: skip

    @property
    def _topic(self) -> str:
        return self._config.string("heartbeats.topic")
