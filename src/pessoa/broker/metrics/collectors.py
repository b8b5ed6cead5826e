"""Metrics that are looked at when they are asked for: each function adds the samples of one part of a node.

A broker may have tens of thousands of partitions, and of client ids: after some hundreds other work has its turn, so a
page of metrics holds up no request for longer than a few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from pessoa.broker.message_fields import error_name
from pessoa.broker.metrics.exposition import label_text
from pessoa.broker.metrics.pushed_metrics import family_text
from pessoa.broker.metrics.time_quantiles import quantiles_ms
from pessoa.coordinator.groups.group_descriptions import group_type
from pessoa.quota.client_quotas import Reading

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pessoa.broker.held_listener import HeldListener
    from pessoa.broker.metrics.client_telemetry import ClientTelemetry
    from pessoa.broker.metrics.exposition import Exposition
    from pessoa.broker.metrics.metadata_counts import MetadataCounts
    from pessoa.broker.metrics.recent_average import RecentAverage
    from pessoa.broker.metrics.request_metrics import ApiCounts, RequestMetrics, TopicCounts
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.groups.group_shard import GroupShard
    from pessoa.log.directory import LogDirectory
    from pessoa.metadata.image import MetadataImage
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.replication.partition import Partition

_AT_A_TIME = 200
STARTING, RUNNING, LEAVING = 2, 3, 6

_OF_TOPICS = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "bytesrejected": "bytes_rejected",
    "totalproducerequests": "produces",
    "failedproducerequests": "failed_produces",
    "totalfetchrequests": "fetches",
    "failedfetchrequests": "failed_fetches",
    "totalsharefetchrequests": "share_fetches",
    "failedsharefetchrequests": "failed_share_fetches",
    "totalshareacknowledgementrequests": "share_acknowledgements",
    "failedshareacknowledgementrequests": "failed_share_acknowledgements",
}

# The type of a quota as Kafka's metrics name it, and what is measured.
_OF_QUOTAS = {
    "producer_byte_rate": ("Produce", "byte_rate"),
    "consumer_byte_rate": ("Fetch", "byte_rate"),
    "request_percentage": ("Request", "request_time"),
}
_MOST_QUOTAS = 100


def collect_requests(metrics: RequestMetrics, now_ns: int, out: Exposition) -> None:
    for api in metrics.apis.values():
        for version, count in sorted(api.by_version.items()):
            out.add("kafka_network_requestmetrics_requests_total", count, request=api.title, version=version)
        for code, count in sorted(api.errors.items()):
            name = "kafka_network_requestmetrics_errors_total"
            out.add(name, count, request=api.title, error=error_name(code))
        _add_times(api, now_ns, out)
    out.add("kafka_server_brokertopicmetrics_replicationbytesout_total", metrics.replicated_bytes)
    out.add("kafka_server_group_coordinator_metrics_offset_commit_count", metrics.committed_offsets)


def _add_times(api: ApiCounts, now_ns: int, out: Exposition) -> None:
    """Add the total, local, remote and throttle times of an API. A request answered at once has no remote time."""
    at_once, count = api.at_once, api.at_once.count + api.waited.count
    for name, quantiles, number in (
        ("totaltimems", quantiles_ms(now_ns, at_once, api.waited), count),
        ("localtimems", quantiles_ms(now_ns, at_once, api.served), count),
        ("remotetimems", quantiles_ms(now_ns, api.waiting, without=at_once), count),
        ("throttletimems", quantiles_ms(now_ns, api.throttled), api.throttled.count),
    ):
        if not number:
            continue
        family = f"kafka_network_requestmetrics_{name}"
        for quantile, value_ms in quantiles:
            out.add(family, value_ms, request=api.title, quantile=str(quantile))
        out.add_labelled(family, number, label_text(request=api.title), "_count")


def collect_topics(topics: dict[str, TopicCounts], image: MetadataImage, out: Exposition) -> None:
    """Write the metrics of topics, and remove the counts of topics that were deleted."""
    for name in [one for one in topics if one not in image.topics.by_name]:
        del topics[name]
    for name, counts in sorted(topics.items()):
        labels = label_text(topic=name)
        for metric, attribute in _OF_TOPICS.items():
            value: int = getattr(counts, attribute)
            out.add_labelled(f"kafka_server_brokertopicmetrics_{metric}_total", value, labels)


async def collect_quotas(services: BrokerServices, out: Exposition) -> None:
    """Write the quota metrics of the entities that use the most: client ids are chosen by clients, and there may be
    very many."""
    if services.throttling is None:
        return
    readings, most = services.throttling.readings(), list[Reading]()
    while some := list(islice(readings, _AT_A_TIME)):
        most = nlargest(_MOST_QUOTAS, [*most, *some], key=lambda reading: reading.rate / reading.limit)
        await asyncio.sleep(0)
    for one in most:
        kind, metric = _OF_QUOTAS[one.key]
        labels = label_text(type=kind, user=one.user or "", client_id=one.client_id or "")
        out.add_labelled(f"kafka_server_quota_{metric}", round(one.rate, 3), labels)
        average_ms = one.throttle_time_ms / one.throttled_count if one.throttled_count else 0.0
        out.add_labelled("kafka_server_quota_throttle_time", round(average_ms, 3), labels)


def collect_telemetry(telemetry: ClientTelemetry, out: Exposition) -> None:
    prefix = "kafka_server_client_metrics_"
    out.add(f"{prefix}instance_count", telemetry.count_instances())
    out.add(f"{prefix}unknown_subscription_request_count", telemetry.unknown_subscription_count)
    out.add(f"{prefix}throttle_count", telemetry.throttle_count)
    out.add(f"{prefix}plugin_export_count", telemetry.export_count)
    out.add(f"{prefix}plugin_error_count", telemetry.error_count)
    out.add("pessoa_client_metrics_evicted_total", telemetry.pushed.evicted_count)


async def pushed_lines(telemetry: ClientTelemetry, now_ms: int) -> str:
    """Return the metrics that clients have pushed, as lines of the page."""
    telemetry.pushed.forget_old(now_ms)
    by_family: dict[str, list[str]] = {}
    for client_lines in telemetry.pushed.lines_of_clients():
        for family, line in client_lines:
            by_family.setdefault(family, []).append(line)
        await asyncio.sleep(0)
    return "".join(family_text(family, lines) for family, lines in sorted(by_family.items()))


def collect_quorum(quorum: RaftQuorum, commits: RecentAverage, now_ms: int, out: Exposition) -> None:
    average_ms, most_ms = commits.read(now_ms)
    out.add("kafka_server_raftmetrics_commit_latency_avg", round(average_ms, 3))
    out.add("kafka_server_raftmetrics_commit_latency_max", most_ms)
    out.add("kafka_server_raftmetrics_current_leader", quorum.leader_id)
    out.add("kafka_server_raftmetrics_current_epoch", quorum.epoch)
    out.add("kafka_server_raftmetrics_high_watermark", quorum.high_watermark)
    out.add("kafka_server_raftmetrics_log_end_offset", quorum.log_end_offset)


async def collect_controller(image: MetadataImage, counts: MetadataCounts, *, is_active: bool, out: Exposition) -> None:
    prefix = "kafka_controller_kafkacontroller_"
    partition_count = offline_count = imbalanced_count = 0
    for number, topic in enumerate(image.topics.by_id.values(), 1):
        partitions = topic.partitions.values()
        partition_count += len(partitions)
        offline_count += sum(1 for one in partitions if one.leader < 0)
        imbalanced_count += sum(1 for one in partitions if one.replicas and one.leader != one.replicas[0])
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
    brokers = image.cluster.brokers.values()
    out.add(f"{prefix}activecontrollercount", int(is_active))
    out.add(f"{prefix}globaltopiccount", len(image.topics.by_id))
    out.add(f"{prefix}globalpartitioncount", partition_count)
    out.add(f"{prefix}offlinepartitionscount", offline_count)
    out.add(f"{prefix}preferredreplicaimbalancecount", imbalanced_count)
    out.add(f"{prefix}activebrokercount", sum(1 for one in brokers if not one.fenced))
    out.add(f"{prefix}fencedbrokercount", sum(1 for one in brokers if one.fenced))
    out.add("kafka_controller_controllerstats_uncleanleaderelections_total", counts.unclean_elections)


def collect_connections(listeners: Sequence[HeldListener], idle_share: float, out: Exposition) -> None:
    in_progress = 0
    for held in listeners:
        connections = held.listener.connections
        in_progress += sum(1 for one in connections if one.is_in_progress)
        out.add("kafka_server_socket_server_metrics_connection_count", len(connections), listener=held.endpoint.name)
    out.add("kafka_network_requestchannel_requestqueuesize", in_progress)
    out.add("kafka_network_socketserver_networkprocessoravgidle_percent", idle_share)
    out.add("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle_share)


def broker_state(broker: BrokerServices) -> int:
    known = broker.image.cluster.brokers.get(broker.node_id)
    if broker.is_leaving:
        return LEAVING
    is_running = known is not None and not known.fenced and known.epoch == broker.broker_epoch()
    return RUNNING if is_running else STARTING


async def collect_partitions(broker: BrokerServices, out: Exposition) -> None:
    counts: Counter[str] = Counter()
    waiting: set[int] = set()
    for number, partition in enumerate(list(broker.replicas.all()), 1):
        counts["partitioncount"] += 1
        waiting.update(map(id, partition.fetch_waiters))
        if partition.is_offline:
            counts["offlinereplicacount"] += 1
        else:
            labels = label_text(topic=partition.topic, partition=partition.index)
            _add_log(partition, labels, out)
            if partition.is_leader:
                _add_led(partition, labels, counts, out)
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
    for name in (
        "partitioncount",
        "leadercount",
        "underreplicatedpartitions",
        "underminisrpartitioncount",
        "atminisrpartitioncount",
        "offlinereplicacount",
    ):
        out.add(f"kafka_server_replicamanager_{name}", counts[name])
    out.add("kafka_server_brokertopicmetrics_replicationbytesin_total", broker.replicas.fetched_bytes)
    out.add("kafka_server_replicafetchermanager_maxlag", broker.replicas.max_lag(), clientId="Replica")
    name = "kafka_server_delayedoperationpurgatory_purgatorysize"
    out.add(name, len(waiting), delayedOperation="Fetch")


def _add_log(partition: Partition, labels: str, out: Exposition) -> None:
    log = partition.log
    out.add_labelled("kafka_log_log_size", log.size, labels)
    out.add_labelled("kafka_log_log_logstartoffset", log.log_start_offset, labels)
    out.add_labelled("kafka_log_log_logendoffset", log.log_end_offset, labels)


def _add_led(partition: Partition, labels: str, counts: Counter[str], out: Exposition) -> None:
    in_sync, least = len(partition.isr), partition.min_insync_replicas
    is_short, is_under, is_at = in_sync < len(partition.replicas), in_sync < least, in_sync == least
    counts["leadercount"] += 1
    counts["underreplicatedpartitions"] += is_short
    counts["underminisrpartitioncount"] += is_under
    counts["atminisrpartitioncount"] += is_at
    out.add_labelled("kafka_cluster_partition_underreplicated", int(is_short), labels)
    out.add_labelled("kafka_cluster_partition_underminisr", int(is_under), labels)
    out.add_labelled("kafka_cluster_partition_atminisr", int(is_at), labels)
    out.add_labelled("kafka_topic_partition_current_offset", partition.log.high_watermark, labels)
    out.add_labelled("kafka_topic_partition_oldest_offset", partition.log.log_start_offset, labels)


def collect_directories(directories: Sequence[LogDirectory], out: Exposition) -> None:
    offline = sum(1 for one in directories if one.offline is not None)
    out.add("kafka_log_logmanager_offlinelogdirectorycount", offline)


def group_shards(broker: BrokerServices) -> list[GroupShard]:
    """Return the shards of the `__consumer_offsets` partitions that this broker leads, without creating the
    coordinator."""
    groups = broker.coordinators.existing_groups
    return [] if groups is None else [led.shard for led in groups.runtime.led_partitions()]


def collect_group_states(broker: BrokerServices, out: Exposition) -> None:
    states: Counter[str] = Counter()
    protocols = Counter({"classic": 0, "consumer": 0, "share": 0, "streams": 0})
    share_states = Counter({"empty": 0, "stable": 0, "dead": 0})
    for shard in group_shards(broker):
        for group in shard.registry.groups.values():
            states[group.state.value.lower()] += 1
            protocols[group_type(group)] += 1
        for share_group in shard.registry.share_groups.values():
            protocols["share"] += 1
            share_states[share_group.state.value.lower()] += 1
    prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    out.add(prefix, sum(states.values()))
    for state in ("empty", "preparingrebalance", "completingrebalance", "stable"):
        out.add(f"{prefix}{state}", states[state])
    for protocol, count in protocols.items():
        out.add("kafka_server_group_coordinator_metrics_group_count", count, protocol=protocol)
    for state, count in share_states.items():
        name = "kafka_server_group_coordinator_metrics_share_group_count"
        out.add(name, count, protocol="share", state=state)


def collect_coordinators(broker: BrokerServices, out: Exposition) -> None:
    """Write the metrics of the coordinators that exist; none is created for it."""
    coordinators = broker.coordinators
    if coordinators.existing_groups is not None:
        _add_loads("group", coordinators.existing_groups.runtime.load_times_ms, out)
    if coordinators.existing_shares is not None:
        _add_loads("share", coordinators.existing_shares.runtime.load_times_ms, out)
    if coordinators.existing_transactions is None:
        return
    runtime = coordinators.existing_transactions.runtime
    _add_loads("transaction", runtime.load_times_ms, out)
    states: Counter[str] = Counter()
    for led in runtime.led_partitions():
        states += led.shard.count_states()
    for state, count in sorted(states.items()):
        out.add("pessoa_transactions", count, state=state)


def _add_loads(coordinator: str, times_ms: Collection[int], out: Exposition) -> None:
    prefix = f"kafka_server_{coordinator}_coordinator_metrics_partition_load_time"
    if times_ms:
        out.add(f"{prefix}_avg", round(sum(times_ms) / len(times_ms), 3))
        out.add(f"{prefix}_max", max(times_ms))
