"""The control centre on a cluster of Apache Kafka, which has no page of metrics."""

from __future__ import annotations

import asyncio

import pytest

from pessoa.client.config_admin import ResourceType
from pessoa.control_center.accounts import Person
from pessoa.control_center.center import Center
from pessoa.control_center.center_config import from_properties
from pessoa.control_center.texts import Text

pytestmark = pytest.mark.apache
ADMIN = Person("ada", "admin")


def test_control_center_shows_and_changes_an_apache_kafka_cluster_without_its_metrics() -> None:
    from tests.apache.broker import ApacheKafka

    with ApacheKafka() as apache:
        asyncio.run(_look_at(apache.bootstrap_servers))


async def _look_at(servers: str) -> None:
    center = Center(from_properties({"bootstrap.servers": servers}))
    async with center.running():
        await center.create_topic(ADMIN, "orders", 2, 1, {"retention.ms": "5000"})
        await center.produce(ADMIN, "orders", b"k", b'{"n": 1}', [("h", b"x")], 1)
        view = await center.overview(Text())
        assert (view.level, len(view.brokers), view.controller) == ("good", 1, view.brokers[0].id)
        # Apache Kafka serves no metrics over HTTP, so bytes in and out are unknown.
        assert view.brokers[0].bytes_in is None
        assert not view.is_ours
        assert view.brokers[0].disk_total
        rows = {one.name: one for one in await center.configs(ResourceType.TOPIC, "orders")}
        assert (rows["retention.ms"].value, rows["retention.ms"].is_default) == ("5000", False)
        assert "retention" in rows["retention.ms"].doc
