"""The control centre's MCP tools for assistants, and users that a reverse proxy names in a header."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.control_center.accounts import COOKIE, Accounts, Person
from pessoa.control_center.api.tool_endpoint import tool_name
from pessoa.control_center.center import Center
from pessoa.control_center.center_app import api_app
from pessoa.control_center.center_config import from_properties
from pessoa.control_center.proxy_login import ProxyLogin
from pessoa.testing import Broker

NO_SERVICES = {
    "confluent.controlcenter.schema.registry.url": "", "confluent.controlcenter.connect.cluster": "",
    "confluent.controlcenter.ksql.url": "", "pessoa.control.center.pipelines.url": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def test_mcp_tools_are_named_after_the_paths_of_the_api() -> None:
    names = {
        "/api/v1/topics": "topics", "/api/v1/topics/{topic}": "topic", "/api/v1/alerts/rules": "alerts_rules",
        "/api/v1/topics/{topic}/messages": "topic_messages", "/api/v1/brokers/{broker}/configs": "broker_configs",
    }  # fmt: skip
    assert {path: tool_name(path) for path in names} == names


def test_an_mcp_client_lists_tools_reads_masked_messages_and_gets_errors_for_wrong_calls(broker: Broker) -> None:
    config = from_properties({
        "bootstrap.servers": broker.bootstrap_servers, **NO_SERVICES, "pessoa.control.center.role": "reader",
        "pessoa.control.center.masks": "orders: value.card",
    })  # fmt: skip

    async def act() -> None:
        center = Center(config)
        async with center.running():
            admin = Person("ada", "admin")
            await center.create_topic(admin, "orders", 1, 1, {})
            await center.produce(admin, "orders", b"k", b'{"id": 7, "card": "4000"}')
            transport = httpx.ASGITransport(api_app(center))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:9021") as http:

                async def ask(method: str, **params: object) -> Any:
                    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                    headers = {"Accept": "application/json, text/event-stream"}
                    answer = await http.post("/api/mcp", json=body, headers=headers)
                    assert answer.status_code == 200, answer.text
                    return answer.json()

                begun = await ask("initialize", protocolVersion="2025-06-18", capabilities={})
                assert begun["result"]["protocolVersion"] == "2025-06-18"
                note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                assert (await http.post("/api/mcp", json=note)).status_code == 202
                tools = {one["name"]: one for one in (await ask("tools/list"))["result"]["tools"]}
                assert {"overview", "topics", "topic", "topic_messages", "groups", "group"} <= set(tools)
                assert tools["topic_messages"]["inputSchema"]["required"] == ["topic"]

                arguments = {"topic": "orders", "filter": "value.id == 7", "limit": 5}
                called = await ask("tools/call", name="topic_messages", arguments=arguments)
                found = msgspec.json.decode(called["result"]["content"][0]["text"])
                # Fields that are masked for the user are masked for the user's assistant.
                assert [one["value"] for one in found["messages"]] == [{"id": 7, "card": "••••"}]

                wrong = await ask("tools/call", name="topic", arguments={"topic": "nowhere"})
                assert wrong["result"]["isError"]
                assert "There is no topic nowhere" in wrong["result"]["content"][0]["text"]
                assert (await ask("tools/call", name="delete_topic"))["error"]["code"] == -32602
                strange = await ask("tools/call", name="topic", arguments={"name": "orders"})
                assert strange["error"]["message"] == "there is no name; topic is missing"
                assert (await ask("resources/list"))["error"]["code"] == -32601

    asyncio.run(act())


def _scope(address: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "client": (address, 5000), "headers": list(headers)}


def test_the_user_is_taken_only_from_the_header_of_a_trusted_proxy() -> None:
    accounts = Accounts(None, {}, "reader", 60.0, {"ada": "admin"}, has_proxy=True)
    proxy = ProxyLogin(accounts, "X-Forwarded-User", ("127.0.0.1",))
    assert accounts.demands_login
    assert accounts.by_cookie(None) is None
    ada = (b"x-forwarded-user", b"ada")
    stolen = (b"cookie", f"theme=dark; {COOKIE}=of-another".encode())
    found = proxy.with_session(_scope("127.0.0.1", ada, stolen))
    cookies = [value for name, value in found["headers"] if name == b"cookie"]
    assert cookies[0] == b"theme=dark"
    token = cookies[1].decode().partition("=")[2]
    assert accounts.by_cookie(token) == Person("ada", "admin")
    again = proxy.with_session(_scope("127.0.0.1", ada))
    assert again["headers"][-1] == found["headers"][-1]
    for scope in (_scope("10.0.0.9", ada), _scope("127.0.0.1"), _scope("127.0.0.1", ada, ada),
                  _scope("127.0.0.1", (b"x-forwarded-user", b""))):  # fmt: skip
        assert proxy.with_session(scope) is scope


def test_a_proxy_address_that_is_not_an_ip_address_is_refused() -> None:
    with pytest.raises(ConfigProblem, match=r"proxy\.addresses"):
        from_properties({"pessoa.control.center.proxy.addresses": "the-proxy"})
