"""MirrorSourceConnector: copies the topics of another Kafka cluster (MirrorMaker 2).

Every partition is copied to the partition of the same number, with keys, headers and timestamps, into a topic that the
replication policy names. Topics are made with as many partitions and with their own settings; later changes of both
follow, and so do access control lists (`mirror_acls.py`). Offsets differ here, so after every batch a record of the
offset-syncs topic says which offset there is which here: when a batch has been written and the next has not begun, what
comes next there is what comes next here. The checkpoint connector (`mirror_checkpoints.py`) translates the offsets of
consumer groups with it.

The part of a partition is `{"cluster": "porto", "topic": "orders", "partition": 0}`, its offset `{"offset": 41}`, that
of the last record that was copied, as Apache's connector writes it.
"""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from pessoa.base.config_values import at_least
from pessoa.base.json_value import JsonObject
from pessoa.connect.clients import Outbox
from pessoa.connect.connector import Offset, OffsetRefused, Offsets, Partition, SourceConnector, offset_number
from pessoa.connect.connectors.mirror_acls import AclSync
from pessoa.connect.connectors.mirror_clusters import (
    BYTES_DEFAULTS,
    PAUSE_S,
    TIMEOUT_S,
    Clusters,
    cluster_keys,
    tolerating_outages,
)
from pessoa.connect.connectors.mirror_names import NameFilter, OffsetSync, offset_syncs_topic
from pessoa.connect.data import BYTES, Header, Record
from pessoa.connect.definition import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, STRING, Config, Table, key

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = logging.getLogger("pessoa.connect")

POLL_S = 0.05
REFUSED_PAUSE_S = 60
# Settings of a topic that each cluster decides for itself.
NOT_COPIED = (
    r"follower\.replication\.throttled\.replicas", r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms", r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable", r"min\.insync\.replicas",
)  # fmt: skip
# Which task of how many this is; set by `tasks`.
TASK, TASKS = "pessoa.task", "pessoa.tasks"


class MirrorSourceConnector(SourceConnector):
    NAMES = ("org.apache.kafka.connect.mirror.MirrorSourceConnector",)
    DEFAULTS = BYTES_DEFAULTS
    KEEPS_TIMESTAMPS = True
    CONFIG = Table(
        cluster_keys(),
        key("topics", LIST, (".*",), HIGH, "Regular expressions for the topics to copy.", group="Topics"),
        key("topics.exclude", LIST, (r".*[\-\.]internal", r".*\.replica", "__.*"), HIGH,
            "Regular expressions for topics that are not copied.", group="Topics"),
        key("replication.factor", INT, 2, at_least(1), HIGH, "The replicas of new topics, or as many as there are "
            "brokers.", group="Topics"),
        key("refresh.topics.enabled", BOOLEAN, True, LOW, "Whether new topics and partitions are looked for.",
            group="Topics"),
        key("refresh.topics.interval.seconds", INT, 600, at_least(1), LOW, "How often.", group="Topics"),
        key("sync.topic.configs.enabled", BOOLEAN, True, LOW, "Whether settings of topics follow.", group="Topics"),
        key("sync.topic.configs.interval.seconds", INT, 600, at_least(1), LOW, "How often.", group="Topics"),
        key("config.properties.exclude", LIST, NOT_COPIED, HIGH, "Regular expressions for settings that do not.",
            group="Topics"),
        key("sync.topic.acls.enabled", BOOLEAN, True, LOW, "Whether access control lists of topics follow.",
            group="Topics"),
        key("sync.topic.acls.interval.seconds", INT, 600, at_least(1), LOW, "How often.", group="Topics"),
        key("emit.offset-syncs.enabled", BOOLEAN, True, LOW, "Whether offset syncs are written.", group="Offsets"),
        key("consumer.poll.records", INT, 2000, at_least(1), LOW, "The most records of one poll.", group="Topics"),
        key(TASK, INT, 0, at_least(0), LOW, "The number of the task.", group="Task"),
        key(TASKS, INT, 1, at_least(1), LOW, "How many tasks share the partitions.", group="Task"),
        key("topics.blacklist", STRING, None, MEDIUM, "The older name of topics.exclude.", group="Topics"),
    )  # fmt: skip

    @classmethod
    def adapted(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        if "topics.blacklist" in settings and "topics.exclude" not in settings:
            return {**settings, "topics.exclude": settings["topics.blacklist"]}
        return settings

    @classmethod
    def tasks(cls, settings: Mapping[str, str], max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Give each task the partitions whose hash is its number, so that new topics need no reconfiguration."""
        return [{**settings, TASK: str(number), TASKS: str(max_tasks)} for number in range(max_tasks)]

    @classmethod
    def check_offset(cls, partition: Partition, offset: Offset) -> None:
        if set(partition) != {"cluster", "topic", "partition"}:
            raise OffsetRefused('a partition is {"cluster": alias, "topic": name, "partition": number}')
        try:
            number = offset_number(offset, "offset", -1)
        except (TypeError, ValueError) as wrong:
            raise OffsetRefused(str(wrong)) from None
        if number < 0:
            raise OffsetRefused('an offset is {"offset": number}, that of the last record that was copied')

    @classmethod
    def is_beyond(cls, offset: Offset, end: Offset) -> bool | None:
        return offset_number(offset, "offset") > offset_number(end, "offset")

    def start(self, config: Config, offsets: Offsets) -> None:
        self._config = config
        self._offsets = offsets
        self._clusters = Clusters(config)
        self._filter = NameFilter(config.entries("topics"), config.entries("topics.exclude"))
        self._consumer: Consumer | None = None
        self._outbox: Outbox | None = None
        # The partitions that are copied, and the offset after the last polled record of each.
        self._next: dict[tuple[str, int], int] = {}
        self._synced_offsets: dict[tuple[str, int], int] = {}
        self._refresh_due_s = self._configs_due_s = self._acls_due_s = 0.0
        self._acls = AclSync(self._clusters, self._takes)

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None

    # Topics.

    def _refresh(self) -> None:
        """Find the partitions to copy, create their topics on the target, and start to read new ones."""
        wanted = {name: count for name, count in self._clusters.partitions("source").items() if self._takes(name)}
        added = [place for name, count in wanted.items() for place in self._own_places(name, count)]
        added = [place for place in added if place not in self._next]
        if self._config.integer(TASK) == 0 or added:
            self._make_topics(wanted)
        gone = [place for place in self._next if place[0] not in wanted]
        for place in gone:
            log.warning("%s: %s-%d is gone, and no longer copied", self._clusters.source, *place)
            del self._next[place]
        if added or gone:
            for place in added:
                self._next[place] = self._start_offset(place)
            self._assign()

    def _takes(self, topic: str) -> bool:
        policy = self._clusters.policy
        if policy.goes_through(self._clusters.target, topic):
            return False
        return policy.is_heartbeats(topic) or self._filter.takes(topic)

    def _own_places(self, topic: str, count: int) -> Iterable[tuple[str, int]]:
        task, tasks = self._config.integer(TASK), self._config.integer(TASKS)
        return [(topic, n) for n in range(count) if crc32(f"{topic}-{n}".encode()) % tasks == task]

    def _make_topics(self, wanted: Mapping[str, int]) -> None:
        clusters, config = self._clusters, self._config
        existing = clusters.partitions("target")
        missing = [name for name, count in wanted.items() if existing.get(self._remote_topic(name), 0) < count]
        settings = clusters.topic_configs("source", missing)
        for name in missing:
            copied = self._entries_to_copy(settings[name]) if config.boolean("sync.topic.configs.enabled") else {}
            replicas = config.integer("replication.factor")
            clusters.ensure_topic("target", self._remote_topic(name), wanted[name], replicas, copied)

    def _remote_topic(self, topic: str) -> str:
        return self._clusters.policy.remote_topic(self._clusters.source, topic)

    def _entries_to_copy(self, settings: Mapping[str, str]) -> dict[str, str]:
        excluded = NameFilter((".*",), self._config.entries("config.properties.exclude"))
        return {name: text for name, text in settings.items() if excluded.takes(name)}

    def _sync_configs(self) -> None:
        topics = sorted({topic for topic, _ in self._next} | {
            name for name in self._clusters.partitions("source") if self._takes(name)
        })  # fmt: skip
        source_configs = self._clusters.topic_configs("source", topics)
        target_configs = self._clusters.topic_configs("target", [self._remote_topic(name) for name in topics])
        for topic in topics:
            wanted = self._entries_to_copy(source_configs[topic])
            known = self._entries_to_copy(target_configs[self._remote_topic(topic)])
            changed = {name: text for name, text in wanted.items() if known.get(name) != text}
            self._clusters.set_topic_config(
                self._remote_topic(topic), changed, [name for name in known if name not in wanted]
            )

    # Records.

    def _start_offset(self, place: tuple[str, int]) -> int:
        offset = self._offsets.of(self._partition(*place))
        return offset_number(offset, "offset") + 1 if offset else 0

    def _partition(self, topic: str, partition: int) -> JsonObject:
        return {"cluster": self._clusters.source, "topic": topic, "partition": partition}

    def _assign(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        if self._consumer is None:
            settings = {
                **self._clusters.settings("source", "consumer"),
                # Offsets are kept by Connect; librdkafka wants a group nevertheless.
                "group.id": f"pessoa-mirror-{self._clusters.source}-{self._clusters.target}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
            }
            self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._next.items()])

    def poll(self) -> Iterable[Record]:
        if not self._config.boolean("enabled"):
            return []
        with tolerating_outages(f"the topics of {self._clusters.source}"):
            self._look_after_topics(clock.monotonic())
        if self._consumer is None:
            return []
        messages = self._consumer.consume(self._config.integer("consumer.poll.records"), POLL_S)
        return [self._record(each) for each in messages if self._is_record(each)]

    def _look_after_topics(self, now_s: float) -> None:
        if now_s >= self._refresh_due_s:
            self._refresh_due_s = now_s + PAUSE_S
            self._refresh()
            seconds = self._config.integer("refresh.topics.interval.seconds")
            self._refresh_due_s = now_s + (seconds if self._config.boolean("refresh.topics.enabled") else 1e9)
        if self._config.integer(TASK) == 0 and now_s >= self._configs_due_s:
            self._configs_due_s = now_s + PAUSE_S
            if self._config.boolean("sync.topic.configs.enabled"):
                self._sync_configs()
            self._configs_due_s = now_s + self._config.integer("sync.topic.configs.interval.seconds")
        if self._config.integer(TASK) == 0 and now_s >= self._acls_due_s:
            interval_s = self._config.integer("sync.topic.acls.interval.seconds")
            # If `sync` raises, it is retried after REFUSED_PAUSE_S at most.
            self._acls_due_s = now_s + min(interval_s, REFUSED_PAUSE_S)
            if self._config.boolean("sync.topic.acls.enabled"):
                self._acls.sync()
            self._acls_due_s = now_s + interval_s

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"):
            self._refresh_due_s = 0.0
        elif error.fatal() or not error.retriable():
            log.warning("%s: %s", self._clusters.source, error.str())
        return False

    def _record(self, message: Message) -> Record:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self._next[topic, partition] = offset + 1
        kind, time_ms = message.timestamp()
        return Record(
            self._remote_topic(topic),
            partition,
            BYTES.as_optional,
            message.key(),
            BYTES.as_optional,
            message.value(),
            _headers(message),
            time_ms if kind else None,
            source_partition=self._partition(topic, partition),
            source_offset={"offset": offset},
        )

    def has_read_all(self, partition: Partition) -> bool | None:
        place = (str(partition["topic"]), int(str(partition["partition"])))
        if place not in self._next or self._consumer is None:
            return True
        from confluent_kafka import TopicPartition

        _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT_S)
        return self._next[place] >= end

    # Offset syncs.

    def commit(self, offsets: Offsets) -> None:
        """Write an offset sync for every partition whose offset has advanced.

        No batch is in flight now: the next record that is read from the source will be appended at the target's log
        end.
        """
        if not self._config.boolean("emit.offset-syncs.enabled") or not self._config.boolean("enabled"):
            return
        reached = {place: offset_number(offsets.of(self._partition(*place)), "offset", -1) + 1 for place in self._next}
        moved = {place: offset for place, offset in reached.items() if offset > self._synced_offsets.get(place, 0)}
        if moved:
            # A sync that is missing makes a translated offset less exact, not wrong.
            with tolerating_outages(f"offset syncs of {self._clusters.source}"):
                self._write_syncs(moved)

    def _write_syncs(self, moved: Mapping[tuple[str, int], int]) -> None:
        ends = self._ends(list(moved))
        topic = offset_syncs_topic(self._clusters.syncs_topic_other, self._clusters.separator)
        if self._outbox is None:
            self._open_outbox(topic)
        assert self._outbox is not None
        for place, upstream in moved.items():
            sync = OffsetSync(*place, upstream, ends[place])
            self._outbox.send(topic, sync.key(), sync.value())
        self._outbox.flush()
        self._synced_offsets |= moved

    def _open_outbox(self, topic: str) -> None:
        clusters = self._clusters
        replicas = self._config.integer("offset-syncs.topic.replication.factor")
        clusters.ensure_topic(clusters.syncs_side, topic, 1, replicas, {"cleanup.policy": "compact"})
        self._outbox = Outbox(clusters.settings(clusters.syncs_side, "producer"))

    def _ends(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the log end offsets of the target partitions."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self._remote_topic(topic), number): latest for topic, number in places}
        futures = self._clusters.admin("target").list_offsets(asked)
        ends = {(one.topic, one.partition): future.result(TIMEOUT_S).offset for one, future in futures.items()}
        return {place: ends[self._remote_topic(place[0]), place[1]] for place in places}


def _headers(message: Message) -> tuple[Header, ...]:
    found = message.headers()
    pairs = found.items() if isinstance(found, dict) else found or ()
    return tuple(
        Header(pair[0], BYTES.as_optional, pair[1].encode() if isinstance(pair[1], str) else pair[1]) for pair in pairs
    )
