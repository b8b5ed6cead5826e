"""What the parts of a group shard share: the groups by id, the metadata image, the settings, the timers.

A consumer, share or streams group must be rebalanced when a topic changes that it subscribes to; `groups_by_topic`
finds it without a search of all groups. `topic_hashes` remembers the hash of each topic that some group subscribes to,
until the topic changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, TypeAlias

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup
from pessoa.coordinator.groups.consumer.consumer_group import ConsumerGroup
from pessoa.coordinator.groups.consumer.metadata_hash import group_hash, topic_hash
from pessoa.coordinator.groups.group_config import GROUP_RESOURCE, GroupCoordinatorConfig
from pessoa.coordinator.groups.share.share_group import ShareGroup
from pessoa.coordinator.groups.streams.streams_group import StreamsGroup
from pessoa.coordinator.shard import Image
from pessoa.coordinator.timers import Timers
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller

if TYPE_CHECKING:
    from pessoa.coordinator.shard import Topic

Group = ClassicGroup | ConsumerGroup | StreamsGroup
MayDescribe: TypeAlias = Callable[[Caller, str], bool]


class Registry:
    """The groups of a shard. `new_uuid` returns a random UUID, since this code is deterministic. `may_describe` returns
    whether a member is authorised to describe a topic."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        image: Image,
        new_uuid: Callable[[], Uuid],
        may_describe: MayDescribe = lambda _member, _topic: True,
    ) -> None:
        self.config = config
        self.image = image
        self.new_uuid = new_uuid
        self.may_describe = may_describe
        self.timers = Timers()
        self.groups: dict[str, Group] = {}
        # They are found by ShareGroup APIs alone: to all others there is no group of such an id.
        self.share_groups: dict[str, ShareGroup] = {}
        self.groups_by_topic: dict[str, dict[str, None]] = {}
        self.topic_hashes: dict[str, int] = {}
        # The version of the image that last brought a new topic: expressions resolved before may match it.
        self.last_new_topics_version = -1

    def __repr__(self) -> str:
        return f"<Registry: {len(self.groups)} groups, image at {self.image.offset}>"

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return group

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is not a consumer group")
        return group

    def streams_group(self, group_id: str) -> StreamsGroup:
        self.check_not_share(group_id)
        group = self.group(group_id)
        if not isinstance(group, StreamsGroup):
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is not a streams group")
        return group

    def share_group(self, group_id: str) -> ShareGroup:
        group = self.share_groups.get(group_id)
        if group is None:
            self.group(group_id)  # raises if there is none of any type
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is not a share group")
        return group

    def find_or_create_simple(self, group_id: str) -> Group:
        """Return the group of a commit; an unknown one becomes a group that has nothing but offsets."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def check_not_share(self, group_id: str) -> None:
        """Raise a Refusal if the group is a share group: the request is for another type."""
        if group_id in self.share_groups:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is a share group")

    def overrides(self, group_id: str) -> Mapping[str, str]:
        """Return the dynamic configuration of the group itself."""
        return self.image.configs.of(GROUP_RESOURCE, group_id)

    def topic(self, name: str) -> Topic | None:
        return self.image.topics.by_name.get(name)

    def topic_ids(self, names: Iterable[str]) -> frozenset[Uuid]:
        """Return the ids of those topics that exist."""
        topics = self.image.topics.by_name
        return frozenset(topics[name].id for name in names if name in topics)

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return a hash of the metadata of these topics, which changes with their ids, partitions and racks."""
        topics = self.image.topics.by_name
        hashes = {}
        for name in names:
            if name in topics:
                if name not in self.topic_hashes:
                    self.topic_hashes[name] = topic_hash(topics[name], self.image.cluster)
                hashes[name] = self.topic_hashes[name]
        return group_hash(hashes)

    def forget_topics(self, names: Iterable[str]) -> None:
        """Let the groups that are subscribed to these topics refresh their metadata: the topics have changed."""
        for name in names:
            self.topic_hashes.pop(name, None)
            for group_id in self.groups_by_topic.get(name, ()):
                group = self.share_groups.get(group_id) or self.groups.get(group_id)
                if isinstance(group, ConsumerGroup | ShareGroup | StreamsGroup):
                    group.refresh_at_ms = 0

    def update_subscriptions(self, group_id: str, old: AbstractSet[str], new: AbstractSet[str]) -> None:
        for topic in sorted(old - new):
            groups = self.groups_by_topic.get(topic)
            if groups is not None:
                groups.pop(group_id, None)
                if not groups:
                    del self.groups_by_topic[topic]
                    self.topic_hashes.pop(topic, None)
        for topic in sorted(new - old):
            self.groups_by_topic.setdefault(topic, {})[group_id] = None


def client_host(context: Caller) -> str:
    """Return the address as Java prints one that was not resolved, which is how Kafka stores and shows it."""
    return f"/{context.client_host}"


def client_id(context: Caller) -> str:
    return context.client_id or ""
