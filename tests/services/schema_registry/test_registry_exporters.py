"""Exporters: created, paused, changed; and registrations and deletions that they copy to a second registry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from pessoa.schema_registry.registry_config import Config
from pessoa.testing.broker import Broker
from tests.services.schema_registry.serving import registry_client
from tests.services.schema_registry.test_registry_api import refusal, register

INNER = '{"type":"fixed","name":"n.F","size":4}'
OUTER = '{"type":"record","name":"O","fields":[{"name":"f","type":"n.F"}]}'
REFERENCES = [{"name": "n.F", "subject": "inner", "version": 1}]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Start two registries, each with its own schemas topic."""
    with Broker() as broker:
        one = Config(topic="_schemas_one", group_id="one")
        two = Config(topic="_schemas_two", group_id="two")
        servers = broker.bootstrap_servers
        with registry_client(servers, one) as source, registry_client(servers, two) as destination:
            yield source, destination


def until(look: Callable[[], Any], wanted: Any, timeout_s: float = 30) -> None:
    """Wait until `look` returns `wanted`; on timeout the assertion shows the last value."""
    deadline_s = time.monotonic() + timeout_s
    while (found := look()) != wanted:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)


def settings(destination: httpx.Client, **more: Any) -> dict[str, Any]:
    return {"config": {"schema.registry.url": str(destination.base_url)}, **more}


def remove(source: httpx.Client, name: str) -> None:
    source.put(f"/exporters/{name}/pause")
    assert source.delete(f"/exporters/{name}").status_code == 204


def test_an_exporter_is_created_paused_changed_reset_and_deleted(pair: tuple[httpx.Client, httpx.Client]) -> None:
    source, destination = pair
    body = settings(destination, name="life", subjects=["nothing"], contextType="custom", context="c")
    body["config"]["basic.auth.user.info"] = "alice:secret"
    assert source.post("/exporters", json=body).json() == {"name": "life"}
    assert source.get("/exporters").json() == ["life"]
    shown = source.get("/exporters/life").json()
    assert (shown["contextType"], shown["context"], shown["subjects"]) == ("CUSTOM", "c", ["nothing"])
    assert shown["subjectRenameFormat"] == "${subject}"
    assert "secret" not in str(shown) + source.get("/exporters/life/config").text
    until(lambda: source.get("/exporters/life/status").json()["state"], "RUNNING")
    assert refusal(source.post("/exporters", json=body)) == (409, 40960)
    assert refusal(source.put("/exporters/life", json={"subjects": ["x"]})) == (409, 40963)
    assert refusal(source.delete("/exporters/life")) == (409, 40963)
    assert refusal(source.put("/exporters/life/reset")) == (409, 40963)
    assert refusal(source.put("/exporters/life/resume")) == (409, 40961)
    assert source.put("/exporters/life/pause").json() == {"name": "life"}
    assert source.get("/exporters/life/status").json()["state"] == "PAUSED"
    assert source.put("/exporters/life", json={"subjects": ["x"]}).json() == {"name": "life"}
    assert source.get("/exporters/life").json()["subjects"] == ["x"]
    assert source.put("/exporters/life/reset").status_code == 200
    assert source.get("/exporters/life/status").json()["offset"] == 0
    assert source.put("/exporters/life/resume").json() == {"name": "life"}
    remove(source, "life")
    for path in ("", "/status", "/config"):
        assert refusal(source.get(f"/exporters/life{path}")) == (404, 40450)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": ""}, 40950),
        ({"name": "a b"}, 40950),
        ({"config": {}}, 40951),
        ({"config": {"schema.registry.url": "nowhere"}}, 40951),
        ({"contextType": "OTHER"}, 40951),
        ({"contextType": "CUSTOM"}, 40951),
        ({"subjects": []}, 40952),
        ({"subjectRenameFormat": "constant"}, 40952),
    ],
)
def test_an_invalid_exporter_is_refused(
    pair: tuple[httpx.Client, httpx.Client], change: dict[str, Any], code: int
) -> None:
    source, destination = pair
    assert refusal(source.post("/exporters", json=settings(destination, name="e") | change)) == (409, code)


def test_an_exporter_copies_registrations_and_deletions_with_ids_versions_and_references(
    pair: tuple[httpx.Client, httpx.Client],
) -> None:
    source, destination = pair
    register(source, "inner", INNER)
    body = settings(destination, name="copy", contextType="CUSTOM", context="far", subjectRenameFormat="dc_${subject}")
    source.post("/exporters", json=body)
    register(source, "outer", OUTER, references=REFERENCES, metadata={"properties": {"owner": "a"}})

    def names(**query: str) -> list[str]:
        found: list[str] = destination.get("/subjects", params={"subjectPrefix": ":.far:", **query}).json()
        return found

    until(names, [":.far:dc_inner", ":.far:dc_outer"])
    there = destination.get("/subjects/:.far:dc_outer/versions/1").json()
    here = source.get("/subjects/outer/versions/1").json()
    assert (there["id"], there["schema"], there["metadata"]) == (here["id"], OUTER, {"properties": {"owner": "a"}})
    assert there["references"] == [{"name": "n.F", "subject": ":.far:dc_inner", "version": 1}]
    source.delete("/subjects/outer")
    until(names, [":.far:dc_inner"])
    assert names(deleted="true") == [":.far:dc_inner", ":.far:dc_outer"]
    source.delete("/subjects/outer?permanent=true")
    until(lambda: names(deleted="true"), [":.far:dc_inner"])
    # A schema that is registered during a pause is copied after the resume.
    source.put("/exporters/copy/pause")
    register(source, "late", '"string"')
    source.put("/exporters/copy/resume")
    until(names, [":.far:dc_inner", ":.far:dc_late"])
    remove(source, "copy")


def test_an_exporter_copies_only_the_subjects_that_match_its_patterns(pair: tuple[httpx.Client, httpx.Client]) -> None:
    source, destination = pair
    for name in ("orders-value", "orders-key", "users-value", ":.ctx:orders-value"):
        register(source, name, '"long"')
    body = settings(destination, name="some", contextType="CUSTOM", context="sel", subjects=["orders-*", ":.ctx:*"])
    source.post("/exporters", json=body)
    until(
        lambda: [each for each in destination.get("/subjects").json() if each.startswith(":.sel")],
        [":.sel.ctx:orders-value", ":.sel:orders-key", ":.sel:orders-value"],
    )
    remove(source, "some")


def test_the_status_of_an_exporter_has_an_error_while_its_destination_is_unreachable(
    pair: tuple[httpx.Client, httpx.Client],
) -> None:
    source, _ = pair
    register(source, "stuck", '"bytes"')
    config = {"schema.registry.url": "http://127.0.0.1:1"}
    source.post("/exporters", json={"name": "stuck", "config": config, "subjects": ["stuck"]})
    until(lambda: bool(source.get("/exporters/stuck/status").json().get("trace")), True)
    remove(source, "stuck")
