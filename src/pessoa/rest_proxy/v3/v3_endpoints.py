"""The table of API v3. Everything stands under /v3/clusters/{cluster_id}."""

from __future__ import annotations

from pessoa.rest_proxy.media import JSON
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.v3 import acl_endpoints as acls
from pessoa.rest_proxy.v3 import cluster_endpoints as clusters
from pessoa.rest_proxy.v3 import config_endpoints as configs
from pessoa.rest_proxy.v3 import group_endpoints as groups
from pessoa.rest_proxy.v3 import partition_endpoints as partitions
from pessoa.rest_proxy.v3 import record_endpoints as records
from pessoa.rest_proxy.v3 import share_group_endpoints as share
from pessoa.rest_proxy.v3 import streams_group_endpoints as streams
from pessoa.rest_proxy.v3 import topic_endpoints as topics
from pessoa.rest_proxy.v3.resource_links import Collection
from pessoa.web.routing import Endpoint, Handler, Query

CLUSTERS = "/v3/clusters"
CLUSTER = "/v3/clusters/{cluster_id}"
ACL_FILTERS = tuple(
    Query(name)
    for name in ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
)
OPERATIONS = (Query("includeAuthorizedOperations", "boolean"),)

Row = tuple[str, Endpoint]


def row(
    name: str, method: str, path: str, handle: Handler, summary: str, *,
    body: object = None, answer: object = None, status: int = 200, query: tuple[Query, ...] = (),
) -> Row:  # fmt: skip
    kinds = {"partition_id": "integer", "broker_id": "integer"}
    return f"api.v3.{name}", Endpoint(
        method, CLUSTER + path, handle, summary, query=query, body=body, answer=answer, status=status,
        consumes=(JSON,), produces=(JSON,), path_kinds=kinds,
    )  # fmt: skip


def v3_endpoints(proxy: Proxy) -> list[Row]:
    found = clusters.ClusterEndpoints(proxy)
    everything = Endpoint("GET", CLUSTERS, found.clusters, "The clusters", answer=Collection, produces=(JSON,))
    return [
        ("api.v3.clusters.list", everything),
        row("clusters.get", "GET", "", found.cluster, "A cluster", answer=clusters.Cluster),
        row("brokers.list", "GET", "/brokers", found.brokers, "The brokers", answer=Collection),
        row("brokers.get", "GET", "/brokers/{broker_id}", found.broker, "A broker", answer=clusters.Broker),
        *_topic_rows(proxy),
        *_partition_rows(proxy),
        *_config_rows("topic-configs", "/topics/{topic_name}/configs", configs.TopicConfigEndpoints(proxy)),
        *_config_rows("broker-configs", "/brokers/{broker_id}/configs", configs.BrokerConfigEndpoints(proxy)),
        *_config_rows("cluster-configs", "/broker-configs", configs.ClusterConfigEndpoints(proxy)),
        *_all_configs_rows(proxy),
        *_acl_rows(proxy),
        *_group_rows(proxy),
        *_share_group_rows(proxy),
        *_streams_group_rows(proxy),
        *_record_rows(proxy),
    ]


def _topic_rows(proxy: Proxy) -> list[Row]:
    here = topics.TopicEndpoints(proxy)
    path = "/topics/{topic_name}"
    return [
        row("topics.list", "GET", "/topics", here.topics, "The topics", answer=Collection, query=OPERATIONS),
        row("topics.create", "POST", "/topics", here.create, "Create a topic",
            body=topics.CreateTopic, answer=topics.Topic, status=201),
        row("topics.get", "GET", path, here.topic, "A topic", answer=topics.Topic, query=OPERATIONS),
        row("topics.update", "PATCH", path, here.change, "Add partitions to a topic",
            body=topics.ChangeTopic, answer=topics.Topic),
        row("topics.delete", "DELETE", path, here.delete, "Delete a topic", status=204),
    ]  # fmt: skip


def _partition_rows(proxy: Proxy) -> list[Row]:
    here = partitions.PartitionEndpoints(proxy)
    path = "/topics/{topic_name}/partitions"
    one = path + "/{partition_id}"
    return [
        row("partitions.list", "GET", path, here.partitions, "The partitions of a topic", answer=Collection),
        row("partitions.get", "GET", one, here.partition, "A partition", answer=partitions.Partition),
        row("partitions.offsets", "GET", f"{one}/offset", here.offsets, "Its first and its end offset",
            answer=partitions.PartitionWithOffsets, query=(Query("offset_type"),)),
        row("replicas.list", "GET", f"{one}/replicas", here.replicas, "Its replicas", answer=Collection),
        row("replicas.get", "GET", one + "/replicas/{broker_id}", here.replica, "A replica",
            answer=partitions.Replica),
        row("replicas.search-by-broker", "GET", "/brokers/{broker_id}/partition-replicas", here.replicas_of_broker,
            "The replicas on a broker", answer=Collection),
        row("reassignments.get", "GET", f"{one}/reassignment", here.reassignment, "The move of a partition",
            answer=partitions.Reassignment),
        row("reassignments.search-by-topic", "GET", f"{path}/-/reassignment", here.reassignments_of_topic,
            "The moves within a topic", answer=Collection),
        row("reassignments.list", "GET", "/topics/-/partitions/-/reassignment", here.reassignments, "All moves",
            answer=Collection),
    ]  # fmt: skip


def _config_rows(name: str, path: str, here: configs.ConfigEndpoints) -> list[Row]:
    one = path + "/{name}"
    return [
        row(f"{name}.list", "GET", path, here.entries, "Configuration", answer=Collection),
        row(f"{name}.get", "GET", one, here.entry, "One key", answer=configs.Config),
        row(f"{name}.update", "PUT", one, here.set, "Set one key", body=configs.SetConfig, status=204),
        row(f"{name}.delete", "DELETE", one, here.reset, "Take one key back to its default", status=204),
        row(f"{name}.alter", "POST", f"{path}:alter", here.alter, "Change several keys at once",
            body=configs.AlterConfigs, status=204),
    ]  # fmt: skip


def _all_configs_rows(proxy: Proxy) -> list[Row]:
    of_topics = configs.TopicConfigEndpoints(proxy)
    of_brokers = configs.BrokerConfigEndpoints(proxy)
    return [
        row("topic-configs.list-all", "GET", "/topics/-/configs", of_topics.list_all_configs,
            "The configuration of all topics", answer=Collection),
        row("topic-configs.alter-multi", "POST", "/topics/-/configs:alter", of_topics.alter_many,
            "Change several topics", body=configs.AlterTopics, answer=configs.AlteredTopics, status=207),
        row("broker-configs.list-all", "GET", "/brokers/-/configs", of_brokers.list_all_configs,
            "The configuration of all brokers", answer=Collection),
    ]  # fmt: skip


def _acl_rows(proxy: Proxy) -> list[Row]:
    here = acls.AclEndpoints(proxy)
    return [
        row("acls.list", "GET", "/acls", here.search, "Search ACLs", answer=Collection, query=ACL_FILTERS),
        row("acls.create", "POST", "/acls", here.create, "Create an ACL", body=acls.CreateAcl, status=201),
        row("acls.create-batch", "POST", "/acls:batch", here.create_many, "Create ACLs",
            body=acls.CreateAcls, status=204),
        row("acls.delete", "DELETE", "/acls", here.delete, "Delete ACLs", answer=acls.DeletedAcls, query=ACL_FILTERS),
    ]  # fmt: skip


def _group_rows(proxy: Proxy) -> list[Row]:
    here = groups.GroupEndpoints(proxy)
    path = "/consumer-groups/{consumer_group_id}"
    member = path + "/consumers/{consumer_id}"
    place = "/{topic_name}/partitions/{partition_id}"
    return [
        row("consumer-groups.list", "GET", "/consumer-groups", here.groups, "The groups", answer=Collection),
        row("consumer-groups.get", "GET", path, here.group, "A group", answer=groups.ConsumerGroup),
        row("consumers.list", "GET", f"{path}/consumers", here.consumers, "Its members", answer=Collection),
        row("consumers.get", "GET", member, here.consumer, "A member", answer=groups.Consumer),
        row("consumer-assignments.list", "GET", f"{member}/assignments", here.assignments,
            "The partitions of a member", answer=Collection),
        row("consumer-assignments.get", "GET", f"{member}/assignments{place}", here.assignment,
            "A partition of a member", answer=groups.Assignment),
        row("consumer-lags.list", "GET", f"{path}/lags", here.lags, "How far behind it is", answer=Collection),
        row("consumer-lags.get", "GET", f"{path}/lags{place}", here.lag, "The same for a partition",
            answer=groups.ConsumerLag),
        row("consumer-group-lag-summary.get", "GET", f"{path}/lag-summary", here.lag_summary, "The worst of it",
            answer=groups.LagSummary),
    ]  # fmt: skip


def _share_group_rows(proxy: Proxy) -> list[Row]:
    here = share.ShareGroupEndpoints(proxy)
    path = "/share-groups/{group_id}"
    member = path + "/consumers/{consumer_id}"
    return [
        row("share-groups.list", "GET", "/share-groups", here.groups, "The share groups", answer=Collection),
        row("share-groups.get", "GET", path, here.group, "A share group", answer=share.ShareGroup),
        row("share-groups.delete", "DELETE", path, here.delete, "Delete a share group without members", status=204),
        row("share-group-consumers.list", "GET", f"{path}/consumers", here.consumers, "Its members",
            answer=Collection),
        row("share-group-consumers.get", "GET", member, here.consumer, "A member", answer=share.ShareConsumer),
        row("share-group-consumer-assignments.list", "GET", f"{member}/assignments", here.assignments,
            "The partitions of a member", answer=Collection),
    ]  # fmt: skip


def _streams_group_rows(proxy: Proxy) -> list[Row]:
    here = streams.StreamsGroupEndpoints(proxy)
    path = "/streams-groups/{group_id}"
    member = path + "/members/{member_id}"
    subtopology = "/subtopologies/{subtopology_id}"
    rows = [
        row("streams-groups.list", "GET", "/streams-groups", here.groups, "The streams groups", answer=Collection),
        row("streams-groups.get", "GET", path, here.group, "A streams group", answer=streams.StreamsGroup),
        row("streams-group-members.list", "GET", f"{path}/members", here.members, "Its members", answer=Collection),
        row("streams-group-members.get", "GET", member, here.member, "A member", answer=streams.StreamsMember),
        row("streams-group-subtopologies.list", "GET", f"{path}/subtopologies", here.subtopologies,
            "The subtopologies of its application", answer=Collection),
        row("streams-group-subtopologies.get", "GET", path + subtopology, here.subtopology, "A subtopology",
            answer=streams.StreamsSubtopology),
    ]  # fmt: skip
    for which in (streams.CURRENT, streams.TARGET):
        name, kind = f"streams-group-member-{which}", f"{member}/{which}/{{assignments_type}}"
        rows += [
            row(f"{name}.get", "GET", f"{member}/{which}", here.assignment(which), "The tasks of a member, by kind",
                answer=streams.StreamsAssignment),
            row(f"{name}.list", "GET", kind, here.tasks(which), "Its tasks of one kind", answer=Collection),
            row(f"{name}.get-tasks", "GET", kind + subtopology, here.tasks_of_subtopology(which),
                "Those of a subtopology", answer=streams.StreamsTasks),
        ]  # fmt: skip
    return rows


def _record_rows(proxy: Proxy) -> list[Row]:
    here = records.RecordEndpoints(proxy)
    path = "/topics/{topic_name}/records"
    return [
        row("records.produce-to-topic", "POST", path, here.produce, "Write records, as a stream",
            body=records.Record, answer=records.Report),
        row("batch-produce.produce-to-topic", "POST", f"{path}:batch", here.produce_batch, "Write some records",
            body=records.Batch, answer=records.BatchAnswer, status=207),
    ]  # fmt: skip
