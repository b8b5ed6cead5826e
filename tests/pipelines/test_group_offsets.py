"""How far a pipeline is, shown as a consumer group: nobody waits for the commit, whatever happens to the broker."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from pessoa.pipelines.group_offsets import GroupOffsets
from pessoa.testing import Broker
from tests.support.topics import eventually, make_topic


def committed(servers: str) -> list[int]:
    # A client that has lost its coordinator may never find it again, so each question has a new one.
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("shown")])["shown"].result(60)
    return [place.offset for place in found.topic_partitions]


def test_offsets_are_committed_though_the_broker_was_away_and_go_with_their_query(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    make_topic(servers, "input", partitions=1)
    groups = GroupOffsets({"bootstrap.servers": servers})
    groups.commit("shown", [("input", 0, 5)])
    eventually(lambda: committed(servers) == [5])
    broker.kill()
    groups.commit("shown", [("input", 0, 7)])
    groups.commit("shown", [("input", 0, 9)])
    broker.start()
    eventually(lambda: committed(servers) == [9])
    groups.forget("shown", deletes=True)
    eventually(lambda: committed(servers) == [])
    groups.close()
