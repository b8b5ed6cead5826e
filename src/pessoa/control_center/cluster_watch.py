"""The present state of the cluster, requested when a page or an alert needs it and cached for a moment.

Every request has a maximum age of its cached response: a page in ten browsers costs the brokers as much as in one. Log
end offsets are requested for the topics that are shown, so a list of 10,000 topics requests those of the fifty on its
page; only sorting by messages or rate requests all. Rates are computed from end offsets that were requested before.

`sample` records the values of the charts: messages in and out of the cluster, lag of each group. `Center` (center.py)
calls it every two seconds while a page is open, and every half a minute otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pessoa.client.client_errors import KafkaFailure
from pessoa.client.cluster_client import Cluster, NodesAnswer
from pessoa.client.group_admin import Committed, GroupListing, committed_offsets, list_groups
from pessoa.client.offset_admin import EARLIEST, LATEST, list_offsets, offset_or_none
from pessoa.client.share_group_admin import StartOffset, share_offsets
from pessoa.client.topic_admin import TopicInfo, list_topics
from pessoa.control_center.health_report import Health, PartitionState, report
from pessoa.control_center.kafka_link import KafkaLink
from pessoa.control_center.offset_reset import Ends
from pessoa.control_center.sample_history import RateMeter, SampleHistory
from pessoa.control_center.texts import Text
from pessoa.control_center.views import BrokerView, GroupRow, PartitionView, TopicPage, TopicRow, TopicView
from pessoa.web.problems import HttpProblem

T = TypeVar("T")
TopicPartition = tuple[str, int]

METADATA_S = 1.5
ENDS_S = 1.5
SIZES_S = 10.0
GROUPS_S = 2.0
# At most so many partitions in one request: one ListOffsets stays below a megabyte.
ENDS_AT_ONCE = 20_000
STATES_KEPT = 50
GROUPS_REMEMBERED = 2000
# Committed offsets are one question for each group.
GROUPS_SAMPLED = 200
# How long a broker may take to apply what the controller has created; it is a matter of milliseconds.
_CREATION_S = 5.0
_CREATION_POLL_S = 0.02


class CachedAnswer(Generic[T]):
    """A cache of the last answer to a request, for `age_s`; one request is in flight at a time."""

    def __init__(self, ask: Callable[[], Awaitable[T]], age_s: float) -> None:
        self._ask = ask
        self._age_s = age_s
        self._answer: T | None = None
        self._at_s = float("-inf")
        self._turn = asyncio.Lock()

    async def get(self, age_s: float | None = None) -> T:
        async with self._turn:
            if self._answer is None or time.monotonic() - self._at_s > (self._age_s if age_s is None else age_s):
                self._answer = await self._ask()
                self._at_s = time.monotonic()
            return self._answer

    def forget(self) -> None:
        self._at_s = float("-inf")


@dataclass(frozen=True)
class ClusterImage:
    """The brokers and topics of the cluster, each from one response."""

    nodes: NodesAnswer
    topics: Mapping[str, TopicInfo]

    def partition_states(self) -> Iterable[PartitionState]:
        for topic in self.topics.values():
            for one in topic.partitions:
                yield PartitionState(topic.name, one.partition, one.leader, one.replicas, one.isr)


@dataclass(frozen=True)
class Directory:
    path: str
    size: int
    total: int | None
    usable: int | None
    partitions: int
    error: str | None = None


@dataclass(frozen=True)
class Sizes:
    # The largest replica of each partition.
    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    directories: dict[int, list[Directory]] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    def of_topic(self, topic: TopicInfo) -> int | None:
        found = [self.partitions.get((topic.name, one.partition)) for one in topic.partitions]
        return None if all(one is None for one in found) else sum(one or 0 for one in found)


@dataclass(frozen=True)
class GroupOffsets:
    listing: GroupListing
    committed: Mapping[TopicPartition, Committed]
    # Of share groups: where each partition starts.
    starts: Mapping[TopicPartition, StartOffset] = field(default_factory=dict)

    def offsets_of(self, topic: str) -> dict[TopicPartition, int]:
        """Return the group's committed offset in each partition of a topic."""
        found = {at: one.offset for at, one in self.committed.items()}
        found |= {at: one.offset for at, one in self.starts.items() if one.offset is not None}
        return {at: offset for at, offset in found.items() if at[0] == topic}

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in (*self.committed, *self.starts)})


class ClusterWatch:
    def __init__(self, link: KafkaLink) -> None:
        self._link = link
        self._image = CachedAnswer(self._ask_image, METADATA_S)
        self._sizes = CachedAnswer(self._ask_sizes, SIZES_S)
        self._groups = CachedAnswer(self._ask_groups, GROUPS_S)
        self._ends: dict[str, tuple[float, dict[int, Ends]]] = {}
        self._rates = RateMeter()
        self.history = SampleHistory()
        self._addresses_seen: dict[int, tuple[str, int]] = {}
        # The last states of each group with their times: the rebalances that the samples have seen.
        self._group_states: OrderedDict[str, deque[tuple[int, str]]] = OrderedDict()
        self._away_since_ms: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<ClusterWatch of {self._link!r}>"

    def forget(self) -> None:
        """Drop the cached answers after a change: the next request goes to the cluster."""
        for one in (self._image, self._sizes, self._groups):
            one.forget()
        self._ends.clear()

    def forget_ends(self, topic: str) -> None:
        self._ends.pop(topic, None)

    # Brokers and topics.

    async def image(self, age_s: float | None = None) -> ClusterImage:
        return await self._image.get(age_s)

    async def _ask_image(self) -> ClusterImage:
        def ask(cluster: Cluster) -> ClusterImage:
            nodes = cluster.describe()
            return ClusterImage(nodes._replace(controller_id=_controller(cluster, nodes)), list_topics(cluster))

        image = await self._link.ask(ask)
        now_ms = int(time.time() * 1000)
        here = {node.node_id: (node.host, node.port) for node in image.nodes.nodes}
        named = {broker for one in image.partition_states() for broker in one.replicas}
        for node in (set(self._addresses_seen) | named) - set(here):
            self._away_since_ms.setdefault(node, now_ms)
        for node in here:
            self._away_since_ms.pop(node, None)
        self._addresses_seen |= here
        return image

    async def health(self, t: Text) -> Health:
        image = await self.image()
        here = [node.node_id for node in image.nodes.nodes]
        return report(here, self._away_since_ms, len(image.topics), image.partition_states(), t)

    async def brokers(self, traffic: Mapping[int, tuple[float, float]] | None = None) -> list[BrokerView]:
        image = await self.image()
        sizes = await self.sizes()
        leaders: dict[int, int] = {}
        replicas: dict[int, int] = {}
        behind: dict[int, int] = {}
        for one in image.partition_states():
            leaders[one.leader] = leaders.get(one.leader, 0) + 1
            for broker in one.replicas:
                replicas[broker] = replicas.get(broker, 0) + 1
                if broker not in one.isr:
                    behind[broker] = behind.get(broker, 0) + 1
        here = {node.node_id: node for node in image.nodes.nodes}
        found = []
        for broker in sorted(set(here) | set(self._away_since_ms)):
            node = here.get(broker)
            host, port = (node.host, node.port) if node else self._addresses_seen.get(broker, ("?", 0))
            directories = sizes.directories.get(broker)
            rates = (traffic or {}).get(broker)
            found.append(
                BrokerView(
                    broker, host, port, node.rack if node else None, broker == image.nodes.controller_id,
                    node is not None, leaders.get(broker, 0), replicas.get(broker, 0), behind.get(broker, 0),
                    None if directories is None else sum(one.size for one in directories),
                    _sum(one.total for one in directories or ()), _sum(one.usable for one in directories or ()),
                    rates[0] if rates else None, rates[1] if rates else None, self._away_since_ms.get(broker),
                )
            )  # fmt: skip
        return found

    async def topic_info(self, name: str) -> TopicInfo:
        image = await self.image()
        info = image.topics.get(name)
        if info is None:
            info = (await self.image(0.0)).topics.get(name)
        if info is None:
            raise HttpProblem(404, f"There is no topic {name}.", 40402)
        return info

    async def wait_for_topic(self, name: str) -> None:
        """Wait until the brokers list a topic that the controller has created: a broker may not have applied its
        record yet. After `_CREATION_S` it returns all the same, and the next request reports the missing topic."""
        for _ in range(round(_CREATION_S / _CREATION_POLL_S)):
            if name in (await self.image(0.0)).topics:
                return
            await asyncio.sleep(_CREATION_POLL_S)

    async def topic(self, name: str) -> TopicView:
        info = await self.topic_info(name)
        ends = (await self.ends([name])).get(name, {})
        sizes = await self.sizes()
        partitions = [
            PartitionView(
                one.partition, one.leader, one.replicas, one.isr,
                ends[one.partition].earliest if one.partition in ends else None,
                ends[one.partition].latest if one.partition in ends else None,
                sizes.partitions.get((name, one.partition)),
            )
            for one in info.partitions
        ]  # fmt: skip
        return TopicView(
            name, str(info.topic_id), info.is_internal, _replication(info), partitions, _messages(ends),
            sizes.of_topic(info), self._rates.rate(f"topic:{name}"),
        )  # fmt: skip

    async def topic_page(
        self,
        *,
        search: str = "",
        sort: str = "name",
        descending: bool = False,
        page: int = 1,
        per_page: int = 50,
        internal: bool = False,
        favourites: frozenset[str] = frozenset(),
        only_favourites: bool = False,
    ) -> TopicPage:
        """Return one page of the topic list. Favourites come first if it is sorted by name."""
        image = await self.image()
        wanted = search.casefold()
        infos = [
            info
            for info in image.topics.values()
            if (internal or not is_internal(info))
            and wanted in info.name.casefold()
            and (not only_favourites or info.name in favourites)
        ]
        sizes = await self.sizes()
        lags = await self.topic_lags() if len(image.topics) <= GROUPS_SAMPLED or sort == "lag" else None
        if sort in ("messages", "rate"):
            await self.ends([info.name for info in infos], age_s=SIZES_S)
        infos.sort(key=lambda info: info.name)
        match sort:
            case "size":
                infos.sort(key=lambda info: sizes.of_topic(info) or 0, reverse=descending)
            case "messages":
                infos.sort(key=lambda info: _messages(self._known_ends(info.name)) or 0, reverse=descending)
            case "rate":
                infos.sort(key=lambda info: self._rates.rate(f"topic:{info.name}") or 0, reverse=descending)
            case "lag":
                infos.sort(key=lambda info: (lags or {}).get(info.name, 0), reverse=descending)
            case "partitions":
                infos.sort(key=lambda info: len(info.partitions), reverse=descending)
            case _:
                infos.sort(key=lambda info: info.name, reverse=descending)
                infos.sort(key=lambda info: info.name not in favourites)
        page = max(1, min(page, -(-len(infos) // per_page) or 1))
        shown = infos[(page - 1) * per_page : page * per_page]
        ends = await self.ends([info.name for info in shown])
        if lags is None:
            lags = await self.topic_lags()
        rows = [
            TopicRow(
                info.name, is_internal(info), len(info.partitions), _replication(info),
                sum(len(one.isr) < len(one.replicas) for one in info.partitions),
                sum(one.leader < 0 for one in info.partitions), _messages(ends.get(info.name, {})),
                sizes.of_topic(info), self._rates.rate(f"topic:{info.name}"), lags.get(info.name),
                info.name in favourites,
            )
            for info in shown
        ]  # fmt: skip
        return TopicPage(len(infos), page, per_page, rows)

    # Ends of logs.

    def _known_ends(self, topic: str) -> dict[int, Ends]:
        return self._ends.get(topic, (0.0, {}))[1]

    async def ends(self, topics: Sequence[str], *, age_s: float = ENDS_S) -> dict[str, dict[int, Ends]]:
        """Return the log start and end offsets of these topics' partitions, without partitions that have no leader."""
        now = time.monotonic()
        old = [name for name in topics if now - self._ends.get(name, (float("-inf"), {}))[0] > age_s]
        if old:
            image = await self.image()
            wanted = [
                (name, one.partition)
                for name in old
                if name in image.topics
                for one in image.topics[name].partitions
                if one.leader >= 0
            ][:ENDS_AT_ONCE]
            self._note_ends(old, await self._link.ask(lambda cluster: _ask_ends(cluster, wanted)))
        return {name: self._known_ends(name) for name in topics}

    def topic_rate(self, topic: str) -> float | None:
        """Return messages per second by the last two end offsets; None if they were fetched once."""
        return self._rates.rate(f"topic:{topic}")

    def _note_ends(self, topics: Iterable[str], found: Mapping[TopicPartition, Ends]) -> None:
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        by_topic: dict[str, dict[int, Ends]] = {name: {} for name in topics}
        for (name, partition), ends in found.items():
            by_topic[name][partition] = ends
        for name, ends_of in by_topic.items():
            self._ends[name] = (now, ends_of)
            self._rates.read(f"topic:{name}", now_ms, sum(one.latest for one in ends_of.values()))

    async def offsets_at(self, topic: str, time_ms: int) -> dict[int, int]:
        """Return the first offset at or after a time in each partition, -1 in one without such a record."""
        info = await self.topic_info(topic)
        wanted = {(topic, one.partition): time_ms for one in info.partitions if one.leader >= 0}
        found = await self._link.ask(lambda cluster: list_offsets(cluster, wanted))
        return {at[1]: -1 if (offset := offset_or_none(answer)) is None else offset for at, answer in found.items()}

    # Disks.

    async def sizes(self) -> Sizes:
        return await self._sizes.get()

    async def _ask_sizes(self) -> Sizes:
        nodes = [node.node_id for node in (await self.image()).nodes.nodes]
        return await self._link.ask(lambda cluster: _ask_sizes(cluster, nodes))

    # Groups.

    async def groups(self, age_s: float | None = None) -> dict[str, GroupOffsets]:
        return await self._groups.get(age_s)

    async def _ask_groups(self) -> dict[str, GroupOffsets]:
        found = await self._link.ask(_ask_groups)
        now_ms = int(time.time() * 1000)
        for name, group in found.items():
            states = self._group_states.setdefault(name, deque(maxlen=STATES_KEPT))
            if not states or states[-1][1] != group.listing.state:
                states.append((now_ms, group.listing.state))
        while len(self._group_states) > GROUPS_REMEMBERED:
            self._group_states.popitem(last=False)
        return found

    def group_states(self, name: str) -> list[tuple[int, str]]:
        """Return the times of the group's state changes, oldest first."""
        return list(self._group_states.get(name, ()))

    async def group_lags(self) -> dict[str, dict[TopicPartition, int]]:
        """Return each group's lag by partition."""
        groups = await self.groups()
        image = await self.image()
        topics = sorted({at[0] for group in groups.values() for at in group.committed if at[0] in image.topics})
        ends = await self.ends(topics)
        return {
            name: {
                at: max(0, ends[at[0]][at[1]].latest - one.offset)
                for at, one in group.committed.items()
                if at[1] in ends.get(at[0], {})
            }
            | {at: one.lag for at, one in group.starts.items() if one.lag is not None}
            for name, group in groups.items()
        }

    async def group_rate(self, name: str) -> float | None:
        """Return how many offsets the group commits per second; None if its offsets were fetched once."""
        group = (await self.groups()).get(name)
        if group is None:
            return None
        moved = sum(one.offset for one in group.committed.values())
        return self._rates.read(f"group:{name}", int(time.time() * 1000), moved)

    async def topic_lags(self) -> dict[str, int]:
        lags: dict[str, int] = {}
        for partitions in (await self.group_lags()).values():
            for (topic, _), lag in partitions.items():
                lags[topic] = lags.get(topic, 0) + lag
        return lags

    async def group_rows(self) -> list[GroupRow]:
        groups, lags = await self.groups(), await self.group_lags()
        return [
            GroupRow(
                name, group.listing.state or "?", (group.listing.kind or "classic").lower(),
                topics=group.topics(),
                lag=sum(lags[name].values()) if name in lags and group.topics() else None,
            )
            for name, group in sorted(groups.items())
        ]  # fmt: skip

    # Charts.

    async def sample(self) -> None:
        """Record the values of this moment for the charts."""
        now_ms = int(time.time() * 1000)
        image = await self.image()
        lags = await self.group_lags()
        for name, partitions in lags.items():
            self.history.add(f"lag:{name}", now_ms, sum(partitions.values()))
        self.history.add("lag", now_ms, sum(sum(partitions.values()) for partitions in lags.values()))
        groups = await self.groups()
        consumed = sum(one.offset for group in groups.values() for one in group.committed.values())
        # Beyond this the sum would cost more than the chart is worth.
        total = sum(len(info.partitions) for info in image.topics.values())
        if total <= ENDS_AT_ONCE // 4:
            names = [info.name for info in image.topics.values() if not is_internal(info)]
            ends = await self.ends(names)
            produced = sum(one.latest for of_topic in ends.values() for one in of_topic.values())
            rate = self._rates.read("in", now_ms, produced)
            if rate is not None:
                self.history.add("in", now_ms, rate)
            for name in names[:500]:
                topic_rate = self._rates.rate(f"topic:{name}")
                if topic_rate is not None:
                    self.history.add(f"topic:{name}", now_ms, topic_rate)
        rate = self._rates.read("out", now_ms, consumed)
        if rate is not None:
            self.history.add("out", now_ms, rate)


def _controller(cluster: Cluster, nodes: NodesAnswer) -> int:
    """Return the active controller. KRaft brokers name any broker in Metadata, so DescribeQuorum is asked."""
    from pessoa.wire.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, PartitionData, TopicData

    topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    try:
        found = cluster.ask(
            DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, name="describeMetadataQuorum"
        )
        return found.topics[0].partitions[0].leader_id if not found.error_code else nodes.controller_id
    except (KafkaFailure, IndexError):
        return nodes.controller_id


def is_internal(info: TopicInfo) -> bool:
    """Whether a topic is internal: one of Kafka's, or one in which a service keeps its state."""
    return info.is_internal or info.name.startswith(("_", "connect-configs", "connect-offsets", "connect-status"))


def _replication(info: TopicInfo) -> int:
    return max((len(one.replicas) for one in info.partitions), default=0)


def _messages(ends: Mapping[int, Ends]) -> int | None:
    return sum(one.latest - one.earliest for one in ends.values()) if ends else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = [one for one in numbers if one is not None and one >= 0]
    return sum(found) if found else None


def _ask_ends(cluster: Cluster, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, Ends]:
    if not wanted:
        return {}
    latest = list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    earliest = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    found = {}
    for at in wanted:
        first, last = offset_or_none(earliest.get(at)), offset_or_none(latest.get(at))
        if first is not None and last is not None:
            found[at] = Ends(first, last)
    return found


def _ask_sizes(cluster: Cluster, nodes: Sequence[int]) -> Sizes:
    from pessoa.wire.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    sizes = Sizes()
    for node in nodes:
        try:
            answer = cluster.ask(
                DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node=node, name="describeLogDirs",
                timeout_ms=2000,
            )  # fmt: skip
        except KafkaFailure as failure:
            sizes.failures[node] = str(failure)
            continue
        found = []
        for one in answer.results:
            held = 0
            for topic in one.topics:
                for part in topic.partitions:
                    held += part.partition_size
                    at = (topic.name, part.partition_index)
                    sizes.partitions[at] = max(sizes.partitions.get(at, 0), part.partition_size)
            count = sum(len(topic.partitions) for topic in one.topics)
            total, usable = (None if number < 0 else number for number in (one.total_bytes, one.usable_bytes))
            error = f"error {one.error_code}" if one.error_code else None
            found.append(Directory(one.log_dir, held, total, usable, count, error))
        sizes.directories[node] = found
    return sizes


def _ask_groups(cluster: Cluster) -> dict[str, GroupOffsets]:
    found = {}
    for number, listing in enumerate(sorted(list_groups(cluster))):
        committed: Mapping[TopicPartition, Committed] = {}
        starts: Mapping[TopicPartition, StartOffset] = {}
        if number < GROUPS_SAMPLED:
            # A group that was deleted, or whose coordinator is moving, is shown without its lag.
            with contextlib.suppress(KafkaFailure):
                if listing.kind.lower() == "share":
                    starts = share_offsets(cluster, listing.group_id)
                else:
                    committed = committed_offsets(cluster, listing.group_id)
        found[listing.group_id] = GroupOffsets(listing, committed, starts)
    return found
