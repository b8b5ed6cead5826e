"""The HTML of every page of the control centre, with all services behind it, without a browser.

Clicks and input on the pages are tested in tests/browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from pessoa.testing import Broker
from pessoa.testing.in_process_services import KsqlServer, SchemaRegistry
from tests.browser.center_process import ControlCenter
from tests.connect.serving import PretendingRunner, connect_worker, wait_for_states
from tests.support.clients import until
from tests.support.topics import fill, make_topic

SINK = {"connector.class": "FileStreamSink", "topics": "orders", "file": "/tmp/never", "tasks.max": "1",
        "errors.deadletterqueue.topic.name": "refused", "errors.tolerance": "all"}  # fmt: skip
SCHEMAS = (
    '{"type": "record", "name": "Order", "fields": []}',
    '{"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int", "default": 0}]}',
)
# Path of a page -> texts that its HTML contains.
PAGES = {
    "/": ("Everything is well", "ksql", "other"),
    "/classroom": ("Begin a lesson",),
    "/brokers": ("Broker 1",),
    "/brokers/1": ("Log directories", "started"),
    "/brokers/1?log=access": ("it may be off", "Turn it on"),
    "/brokers/1?log=printed": ("a line that the broker printed",),
    "/topics": ("orders",),
    "/topics/orders": ("Partition",),
    "/topics/orders?tab=messages": ("hello",),
    "/topics/orders?tab=messages&value=cbor": ("This is not CBOR",),
    "/topics/orders?tab=config": ("retention.ms",),
    "/topics/orders?tab=schema": ("orders-value", "version 2, id 2", "amount", "No schema is registered for it."),
    "/topics/orders?tab=groups": ("orders",),
    "/topics/orders?tab=analysis": ("Analyse",),
    "/topics/orders?tab=access": ("orders",),
    "/topics/nowhere": ("There is no topic nowhere.",),
    "/consumers": ("connect-cluster",),
    "/consumers/connect-cluster": ("Members",),
    "/schemas": ("Compatibility of subjects without their own:", "BACKWARD", "orders-value", "AVRO"),
    "/schemas/orders-value": ("id 2", "FULL", "compare with 1", "amount"),
    "/schemas/orders-value?version=2&against=1": ("From version 1 to 2",),
    "/schemas/nowhere-value": ("not found",),
    "/connect": ("archive", "RUNNING"),
    "/connect/archive": ("RUNNING", "Dead letters", "refused", "never"),
    "/connect/nowhere": ("nowhere",),
    "/ksql": ("Running queries", "SALES", "AMOUNT INTEGER"),
    "/lineage": ("archive", "connector"),
    "/access": ("ACL",),
    "/access?tab=quotas": ("uota",),
    "/access?tab=users": ("ser",),
    "/alerts": ("Add a rule",),
    "/settings": ("Masking", "Connect"),
    "/audit": ("Outcome", "create topic"),
    "/topics?cluster=other": ("only-there",),
    "/topics?cluster=nowhere": ("There is no cluster nowhere: there are main, other.",),
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("nicegui")
    home = tmp_path_factory.mktemp("pages")
    (home / "logs" / "broker-1").mkdir(parents=True)
    (home / "logs" / "broker-1.log").write_text("a line that the broker printed\n")
    (home / "logs" / "broker-1" / "error.log").write_text('{"time": "now", "level": "WARN", "event": "started"}\n')
    with (
        Broker() as broker, Broker() as other, SchemaRegistry(broker.bootstrap_servers) as registry,
        KsqlServer(broker.bootstrap_servers) as ksql,
        connect_worker(broker.bootstrap_servers, home / "connect", runner=PretendingRunner()) as connect,
    ):  # fmt: skip
        make_topic(other.bootstrap_servers, "only-there")
        make_topic(broker.bootstrap_servers, "orders")
        fill(broker.bootstrap_servers, "orders", [(b"k", b"hello")])
        ksql.run("CREATE STREAM sales (amount INT) WITH (kafka_topic='sales', value_format='JSON', partitions=1);")
        connect.post("/connectors", json={"name": "archive", "config": SINK}).raise_for_status()
        wait_for_states(connect, "archive", "RUNNING", "RUNNING")
        for text in SCHEMAS:
            versions = f"{registry.url}/subjects/orders-value/versions"
            httpx.post(versions, json={"schema": text}, timeout=30).raise_for_status()
        level = {"compatibility": "FULL"}
        httpx.put(f"{registry.url}/config/orders-value", json=level, timeout=30).raise_for_status()
        with ControlCenter(
            home / "center.log", broker.bootstrap_servers, registry.url, f"pessoa.control.center.home={home}",
            f"confluent.controlcenter.kafka.other.bootstrap.servers={other.bootstrap_servers}",
            connect=str(connect.base_url), ksql=ksql.url,
        ) as center:  # fmt: skip
            body = {"name": "made-here", "partitions": 1, "replication": 1}
            httpx.post(f"{center.url}/api/v1/topics", json=body, timeout=30).raise_for_status()
            yield center.url


@pytest.mark.parametrize("path", PAGES)
def test_each_page_of_the_control_center_is_rendered_with_its_content(url: str, path: str) -> None:
    def lacking() -> list[str]:
        answer = httpx.get(f"{url}{path}", timeout=30)
        assert answer.status_code == 200, answer.text[:2000]
        words = [one for one in PAGES[path] if one not in answer.text]
        return [*words, *re.findall(r"notice[^>]*>.{0,300}", answer.text)] if words else []

    # Content that is slow to read is pushed to a browser later; here it is in the answer to a later request.
    until(lacking, lambda words: not words, "a page with all of its words")


def test_pages_are_rendered_in_portuguese_for_accept_language_pt_br(url: str) -> None:
    answer = httpx.get(f"{url}/connect/archive", timeout=30, headers={"Accept-Language": "pt-BR"})
    assert "Vazão" in answer.text


def test_the_api_answers_for_the_cluster_of_the_query_parameter(url: str) -> None:
    found = httpx.get(f"{url}/api/v1/topics", params={"cluster": "other"}, timeout=30).json()
    assert [one["name"] for one in found["topics"]] == ["only-there"]
    assert httpx.get(f"{url}/api/v1/topics", params={"cluster": "nowhere"}, timeout=30).status_code == 404
    assert [one["name"] for one in httpx.get(f"{url}/api/v1/clusters", timeout=30).json()] == ["main", "other"]
    analysed = httpx.post(f"{url}/api/v1/topics/orders/analysis", timeout=30).json()
    assert (analysed["messages"], analysed["distinct_keys"], analysed["is_done"]) == (1, 1, True)
