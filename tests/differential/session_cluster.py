"""The part of the session about the cluster: its APIs and features, its topics and their configurations.

Topics are created with explicit replica assignments, since each side would otherwise place them at random.
"""

from __future__ import annotations

from typing import Any

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.api.api_versions import ApiVersionsRequest
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest
from pessoa.wire.api.create_topics import CreatableTopic
from pessoa.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pessoa.wire.api.describe_acls import DescribeAclsRequest
from pessoa.wire.api.describe_cluster import DescribeClusterRequest
from pessoa.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pessoa.wire.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from pessoa.wire.api.list_config_resources import ListConfigResourcesRequest
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.session_stage import Player
from tests.support.admin_script import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    LOGGER,
    SET,
    TOPIC,
    alter,
    create,
    delete,
    grow,
    quorum,
    script,
    topic,
)


def placed(player: Player, name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    """Return a topic with a replica on every broker, in which each partition has another preferred leader."""
    nodes = player.nodes
    replicas = {
        index: [nodes[(index + step) % len(nodes)] for step in range(len(nodes))] for index in range(partitions)
    }
    return topic(name, -1, -1, replicas, {key.replace("_", "."): value for key, value in configs.items()})


def metadata(*names: str | Uuid) -> MetadataRequest:
    topics = [
        MetadataRequestTopic(name=name) if isinstance(name, str) else MetadataRequestTopic(name=None, topic_id=name)
        for name in names
    ]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def configs(kind: int, name: str, *keys: str, synonyms: bool = False) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)


def partitions_of(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
    topics = [TopicRequest(name=name) for name in names]
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)


def greeting_steps(player: Player) -> None:
    for version in range(5):
        request = ApiVersionsRequest(client_software_name="session", client_software_version="1.0")
        player.ask("what it can do", request, version)
    player.ask("a bad name of the client", ApiVersionsRequest(client_software_name="!", client_software_version=""), 3)
    for version in range(3):
        player.ask("the cluster", DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    player.ask("its controllers", DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2))
    player.ask("what it is not", DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=7))
    player.ask("the quorum", quorum("__cluster_metadata", 0), 1)


def topic_steps(player: Player) -> None:
    orders = placed(player, "orders", 3, retention_ms="-1", retention_bytes="-1")
    player.ask("orders", create(orders))
    player.ask(
        "for later",
        create(
            placed(player, "counted", retention_ms="-1"),
            placed(player, "paid", 2, retention_ms="-1"),
            placed(player, "compacted", cleanup_policy="compact"),
            placed(player, "stamped", message_timestamp_type="LogAppendTime"),
            placed(player, "small", max_message_bytes="1000", retention_ms="-1"),
        ),
    )
    player.ask("an older client", create(placed(player, "old")), 2)
    player.ask("an older client again", create(placed(player, "old")), 4)
    player.wait_until_applied()
    for version in range(4, 14):
        player.ask("one topic", metadata("orders"), version)
    player.ask("all", MetadataRequest(topics=None))
    player.ask("none", MetadataRequest(topics=[]))
    player.ask("all as it was", MetadataRequest(topics=[]), 0)
    player.ask("several, some unknown", metadata("orders", "nothing", "no thing", ""))
    player.ask("by id", metadata(player.topic_id("orders")))
    player.ask("by an unknown id", metadata(Uuid.of(4711)))
    player.ask("by no id", metadata(ZERO_UUID))
    allowed = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], include_topic_authorized_operations=True)
    player.ask("what is allowed", allowed)
    player.ask("some", partitions_of("orders", "nothing", "paid"))
    player.ask("all", partitions_of())
    player.ask("a page", partitions_of("orders", "paid", limit=2))
    player.ask("the next page", partitions_of("orders", "paid", cursor=Cursor(topic_name="orders", partition_index=2)))
    foreign = Cursor(topic_name="nothing", partition_index=0)
    player.ask("a page behind a topic that was not asked for", partitions_of("orders", "paid", cursor=foreign))
    player.ask("a page of all behind an unknown topic", partitions_of(cursor=foreign))
    player.ask("a page behind an unknown topic of the list", partitions_of("nothing", "paid", cursor=foreign))
    negative = Cursor(topic_name="orders", partition_index=-1)
    player.ask("a page behind a negative partition", partitions_of("orders", "orders", "paid", cursor=negative))
    player.ask("a page of all behind a negative partition", partitions_of(cursor=negative))
    beyond = Cursor(topic_name="orders", partition_index=1000)
    player.ask("a page behind the last partition", partitions_of("orders", "paid", cursor=beyond))
    for limit in (0, -7):
        player.ask(f"a page of {limit}", partitions_of("orders", "paid", limit=limit))
    player.ask("a page that ends before an unknown topic", partitions_of("orders", "other", "paid", limit=3))
    player.ask("grow", grow("old", 2, [player.nodes]))
    player.wait_until_applied()
    player.ask("one that has grown", metadata("old"))
    player.ask("delete", delete("old", "nothing"))
    player.wait_until_applied()
    player.ask("one that is gone", metadata("old"))


def config_steps(player: Player) -> None:
    for version in (1, 2, 3, 4):
        player.ask("a topic", configs(TOPIC, "small", synonyms=True), version)
    player.ask("an unknown topic", configs(TOPIC, "nothing"))
    player.ask("an impossible topic", configs(TOPIC, "no thing"))
    player.ask("one key", configs(TOPIC, "small", "max.message.bytes", "no.such.key"))
    broker_keys = ("num.partitions", "log.retention.ms", "min.insync.replicas", "compression.type", "node.id")
    player.ask("a broker", configs(BROKER, "1", *broker_keys, synonyms=True))
    player.ask("all brokers", configs(BROKER, "", synonyms=True))
    player.ask("another broker", configs(BROKER, "9"))
    player.ask("no broker", configs(BROKER, "one"))
    player.ask("another logger", configs(LOGGER, "9"))
    player.ask("a group", configs(GROUP, "readers", synonyms=True))
    player.ask("a group without a name", configs(GROUP, ""))
    player.ask("client metrics", configs(CLIENT_METRICS, "m"))
    player.ask("an unknown type", configs(77, "x"))
    player.ask("set", alter(TOPIC, "small", ("retention.ms", SET, "86400000"), ("segment.bytes", SET, "1048576")))
    player.ask("set for a group", alter(GROUP, "readers", ("consumer.heartbeat.interval.ms", SET, "6000")))
    player.ask("set for all brokers", alter(BROKER, "", ("log.cleaner.backoff.ms", SET, "20000")))
    player.wait_until_applied()
    player.ask("a topic that was changed", configs(TOPIC, "small", "retention.ms", "segment.bytes", synonyms=True))
    player.ask("a group that was changed", configs(GROUP, "readers", synonyms=True))
    player.ask("a broker after that", configs(BROKER, "1", "log.cleaner.backoff.ms", synonyms=True))
    player.ask("all brokers after that", configs(BROKER, "", synonyms=True))
    for title, kinds in {"everything": [], "groups": [GROUP], "topics": [TOPIC], "brokers": [BROKER, 8]}.items():
        player.ask(title, ListConfigResourcesRequest(resource_types=kinds))
    player.ask("a kind that does not exist", ListConfigResourcesRequest(resource_types=[77]))
    player.ask("client metrics", ListConfigResourcesRequest(), 0)


def access_steps(player: Player) -> None:
    """Nothing is denied in these steps, because there is no authorizer."""
    everything: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    player.ask("all", DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1, **everything))
    creation = AclCreation(
        resource_type=TOPIC,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    player.ask("one", CreateAclsRequest(creations=[creation]))
    wanted = DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, **everything
    )
    player.ask("all", DeleteAclsRequest(filters=[wanted]))


def admin_steps(player: Player) -> None:
    """The valid and invalid requests that change the cluster, from the controller's own tests.

    Their topics are placed at random, so with several brokers no step can move a replica of them.
    """
    described = ("Describe", "List")
    is_applied = False
    for step in script():
        name, _, title = step.title.partition(": ")
        if len(player.nodes) > 1 and title in ("same replicas", "nothing to cancel"):
            continue
        if name.startswith(described) and not is_applied:
            player.wait_until_applied()
            is_applied = True
        player.ask(f"admin, {title}", step.request, step.version)


OPENING = (greeting_steps, topic_steps, config_steps, access_steps)
CLOSING = (admin_steps,)
