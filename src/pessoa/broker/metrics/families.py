"""The table of metrics. A family without samples is listed all the same, so that it is known which there are."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    # counter, gauge, summary, or untyped: a counter whose name, which is Kafka's, is not that of one for Prometheus
    kind: str
    meaning: str


COUNTER, GAUGE, SUMMARY, UNTYPED = "counter", "gauge", "summary", "untyped"


def _table(prefix: str, kind: str, **meanings: str) -> dict[str, Family]:
    return {f"{prefix}{name}": Family(kind, meaning) for name, meaning in meanings.items()}


FAMILIES: dict[str, Family] = {
    **_table(
        "kafka_server_brokertopicmetrics_",
        COUNTER,
        messagesin_total="Records that producers have written.",
        bytesin_total="Bytes of records that producers have written.",
        bytesout_total="Bytes of records that consumers have read.",
        bytesrejected_total="Bytes of batches that were too large.",
        totalproducerequests_total="Batches that producers have sent.",
        failedproducerequests_total="Batches that were refused.",
        totalfetchrequests_total="Fetches of partitions that were answered.",
        failedfetchrequests_total="Fetches of partitions that failed.",
        replicationbytesin_total="Bytes of records that this broker's replicas have fetched from their leaders.",
        replicationbytesout_total="Bytes of records that followers have fetched.",
        totalsharefetchrequests_total="Share fetches of partitions that were answered with records or an error.",
        failedsharefetchrequests_total="Share fetches of partitions that failed.",
        totalshareacknowledgementrequests_total="Partitions about whose records members of share groups have said "
        "anything in ShareAcknowledge, or in vain in ShareFetch.",
        failedshareacknowledgementrequests_total="Those of them where it was refused.",
    ),
    **_table(
        "kafka_server_sharegroupmetrics_",
        COUNTER,
        recordacknowledgements_total="Records that members of share groups have acknowledged, by what they said.",
    ),
    **_table(
        "kafka_server_sharegroupmetrics_",
        GAUGE,
        partitionloadtimems_mean="Milliseconds to load a share partition, on the average of the last hundred.",
        partitionloadtimems_max="The longest of them.",
        requesttopicpartitionsfetchratio_mean="Of a hundred partitions of a group's share fetch, those that had room "
        "for it when it acquired, on the average of the last minute.",
        requesttopicpartitionsfetchratio_max="The most of them.",
        topicpartitionsacquiretimems_mean="Milliseconds that a group's share fetch waited until it acquired, on the "
        "average of the last minute.",
        topicpartitionsacquiretimems_max="The longest of them.",
    ),
    **_table(
        "kafka_server_sharepartitionmetrics_",
        GAUGE,
        inflightmessagecount="Offsets between the start and the end offset of a share partition.",
        inflightbatchcount="Runs of offsets in it that are in the same state.",
        inflightbatchmessagecount_mean="Offsets of such a run, on the average.",
    ),
    **_table(
        "kafka_server_sharepartitionmetrics_",
        COUNTER,
        acquisitionlocktimeout_total="Records of a share partition whose member said nothing before its lock ended.",
    ),
    **_table(
        "kafka_server_replicamanager_",
        GAUGE,
        leadercount="Partitions that this broker leads.",
        partitioncount="Partitions of which this broker has a replica.",
        underreplicatedpartitions="Partitions that this broker leads with fewer in-sync replicas than replicas.",
        underminisrpartitioncount="Partitions that it leads with fewer in-sync replicas than min.insync.replicas.",
        atminisrpartitioncount="Partitions that it leads with exactly min.insync.replicas in-sync replicas.",
        offlinereplicacount="Replicas of this broker in log directories that have failed.",
    ),
    **_table(
        "kafka_server_replicamanager_",
        COUNTER,
        isrshrinks_total="How often replicas have left the in-sync replicas of a partition that this broker leads.",
        isrexpands_total="How often replicas have joined the in-sync replicas of a partition that this broker leads.",
    ),
    **_table(
        "kafka_network_requestmetrics_",
        COUNTER,
        requests_total="Requests that were served.",
        errors_total="Errors in responses; a response has as many as there are partitions with errors.",
    ),
    **_table(
        "kafka_network_requestmetrics_",
        SUMMARY,
        totaltimems="Milliseconds from a whole request to its response, of the last minute or two.",
        localtimems="Of these, those until its handler was done.",
        remotetimems="Of these, those in which it waited: for replicas, records, disks, the controller.",
        throttletimems="Throttle times of requests that were throttled, in milliseconds.",
    ),
    **_table(
        "kafka_network_",
        GAUGE,
        requestchannel_requestqueuesize="Requests that are in progress.",
        socketserver_networkprocessoravgidle_percent="The share of time in which the process did not compute, 0 to 1.",
    ),
    **_table(
        "kafka_server_quota_",
        GAUGE,
        byte_rate="Bytes per second of a client with a quota; of the hundred that use most.",
        request_time="Percent of the event loop's time of a client with a quota; of the hundred that use most.",
        throttle_time="Milliseconds for which a throttled request was delayed, on the average; of the same clients.",
    ),
    **_table(
        "kafka_controller_kafkacontroller_",
        GAUGE,
        activecontrollercount="Whether this controller leads, 1 or 0.",
        offlinepartitionscount="Partitions without a leader.",
        globaltopiccount="Topics of the cluster.",
        globalpartitioncount="Partitions of the cluster.",
        activebrokercount="Brokers that are registered and not fenced.",
        fencedbrokercount="Brokers that are registered and fenced.",
        preferredreplicaimbalancecount="Partitions that another than their first replica leads.",
    ),
    **_table(
        "kafka_controller_controllerstats_",
        COUNTER,
        uncleanleaderelections_total="Elections of leaders that were not in sync.",
    ),
    **_table(
        "kafka_server_",
        GAUGE,
        kafkarequesthandlerpool_requesthandleravgidle_percent="The same share: one loop serves and reads.",
        kafkaserver_brokerstate="2 while it starts, 3 when it runs, 6 while it hands over before a stop.",
        delayedoperationpurgatory_purgatorysize="Fetches that wait for records.",
        socket_server_metrics_connection_count="Open connections.",
        raftmetrics_current_leader="The node that leads the metadata quorum; -1 if none does.",
        raftmetrics_current_epoch="The epoch of the metadata quorum.",
        raftmetrics_high_watermark="Up to where the metadata log is committed.",
        raftmetrics_log_end_offset="Where the metadata log of this node ends.",
        raftmetrics_commit_latency_avg="Milliseconds until what this node appends to the metadata log as leader is "
        "committed, on the average of the last half minute or whole one.",
        raftmetrics_commit_latency_max="The longest of them.",
        replicafetchermanager_maxlag="Committed offsets that the replica lacks which is furthest behind its leader.",
        group_coordinator_metrics_partition_load_time_avg="Milliseconds to load a partition of __consumer_offsets.",
        group_coordinator_metrics_partition_load_time_max="The longest of the last loads.",
        transaction_coordinator_metrics_partition_load_time_avg="Milliseconds to load a partition of "
        "__transaction_state.",
        transaction_coordinator_metrics_partition_load_time_max="The longest of the last loads.",
        share_coordinator_metrics_partition_load_time_avg="Milliseconds to load a partition of __share_group_state.",
        share_coordinator_metrics_partition_load_time_max="The longest of the last loads.",
        group_coordinator_metrics_group_count="Groups that this broker coordinates.",
        group_coordinator_metrics_share_group_count="Share groups that this broker coordinates, by their state.",
    ),
    **_table(
        "kafka_server_group_coordinator_metrics_",
        UNTYPED,
        offset_commit_count="Offsets that groups have committed.",
    ),
    **_table(
        "kafka_server_client_metrics_",
        UNTYPED,
        unknown_subscription_request_count="Pushes of clients whose subscriptions have changed.",
        throttle_count="Requests of clients that came before their interval was over.",
        plugin_export_count="Pushes of metrics that this page shows.",
        plugin_error_count="Pushes of metrics that could not be read.",
    ),
    **_table("kafka_server_client_metrics_", GAUGE, instance_count="Clients that have asked which metrics to push."),
    **_table(
        "kafka_log_",
        GAUGE,
        log_size="Bytes of a partition's log.",
        log_logstartoffset="The first offset of a partition's log.",
        log_logendoffset="The offset behind the last of a partition's log.",
        logmanager_offlinelogdirectorycount="Log directories that have failed.",
    ),
    **_table(
        "kafka_cluster_partition_",
        GAUGE,
        underreplicated="Whether a partition that this broker leads has too few in-sync replicas, 1 or 0.",
        underminisr="Whether it has fewer in-sync replicas than min.insync.replicas.",
        atminisr="Whether it has exactly as many.",
    ),
    **_table(
        "kafka_coordinator_group_groupmetadatamanager_",
        GAUGE,
        numgroups="Groups that this broker coordinates.",
        numgroupsempty="Those without members.",
        numgroupspreparingrebalance="Those that wait for members to join.",
        numgroupscompletingrebalance="Those that wait for the assignment of their leader.",
        numgroupsstable="Those whose members have their partitions.",
    ),
    **_table(
        "kafka_",
        GAUGE,
        brokers="Brokers that are registered and not fenced.",
        topic_partition_current_offset="The high watermark of a partition that this broker leads.",
        topic_partition_oldest_offset="The first offset of a partition that this broker leads.",
        consumergroup_members="Members of a group that this broker coordinates.",
        consumergroup_current_offset="The offset that a group has committed.",
        consumergroup_lag="How many offsets a group is behind the high watermark of a partition.",
        consumergroup_lag_sum="The same for all partitions of a topic.",
    ),
    **_table(
        "pessoa_",
        COUNTER,
        log_lines_dropped_total="Lines of this broker's own logs that the disk did not take.",
        client_metrics_evicted_total="Clients whose metrics made room for those of others before their time.",
    ),
    **_table(
        "pessoa_",
        GAUGE,
        transactions="Transactional ids that this broker coordinates, by the state of their transaction.",
        metrics_groups_left_out="Groups that this page leaves out because there are too many.",
    ),
}
