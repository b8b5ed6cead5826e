"""The control centre's view of the cluster, when brokers lag behind the controller."""

from __future__ import annotations

import asyncio
from typing import cast

from pessoa.base.ids import Uuid
from pessoa.client.cluster_client import Node, NodesAnswer
from pessoa.client.topic_admin import TopicInfo
from pessoa.control_center.cluster_watch import ClusterImage, ClusterWatch
from pessoa.control_center.kafka_link import KafkaLink


class LinkThatLags:
    """Brokers whose metadata has a new topic only from the third request on."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, _: object) -> ClusterImage:
        self.asked += 1
        topics = {"fresh": TopicInfo("fresh", Uuid(bytes(16)), False, [])} if self.asked >= 3 else {}
        return ClusterImage(NodesAnswer("cluster", 1, [Node(1, "localhost", 9092)]), topics)


def test_the_watch_waits_until_brokers_show_a_topic_that_the_controller_has_created() -> None:
    async def act() -> None:
        link = LinkThatLags()
        watch = ClusterWatch(cast("KafkaLink", link))
        await watch.wait_for_topic("fresh")
        assert link.asked == 3
        assert (await watch.topic_info("fresh")).name == "fresh"

    asyncio.run(act())
