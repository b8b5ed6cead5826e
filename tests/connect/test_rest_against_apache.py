"""Send the same REST requests to Apache's Connect 4.3.1 and to ours, on the same Apache broker; compare the answers.

Status and body are compared: error messages, connectors, states, validation with every definition.
Not compared are versions, addresses, generations, documentation (each side has its own) and the traces of failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apache.broker import ApacheKafka
from tests.connect.apache_connect import apache_worker
from tests.connect.serving import PretendingRunner, connect_worker, wait_for_states, wait_until

SOURCE = {"connector.class": "FileStreamSource", "file": "/nowhere/in.txt", "topic": "lines"}
SINK = {"connector.class": "FileStreamSink", "file": "/nowhere/out.txt", "topics": "lines"}
PLACE = {"filename": "/nowhere/in.txt"}
# A config provider, and a configuration that refers to it for the number of tasks and for the topic.
PROVIDER = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}
VARIABLES = {"CONNECT_TASKS": "2", "CONNECT_TOPIC": "hidden-lines"}
REFERRING = {**SOURCE, "tasks.max": "${env:CONNECT_TASKS}", "topic": "${env:CONNECT_TOPIC}"}

# The requests in order: method, path and body; or WAIT, a connector and the states to wait for.
SCRIPT: list[tuple[str, str, Any]] = [
    ("GET", "/connectors", None),
    ("POST", "/connectors", {"name": "f", "config": SOURCE}),
    ("POST", "/connectors", {"name": "f", "config": SOURCE}),
    ("POST", "/connectors", {"name": "g", "config": {"connector.class": "FileStreamSource"}}),
    ("POST", "/connectors", {"name": "g", "config": {"file": "x"}}),
    ("POST", "/connectors", {"name": "g", "config": {**SOURCE, "name": "h"}}),
    ("POST", "/connectors", {"name": "g", "config": {**SINK, "topics.regex": "a"}}),
    ("POST", "/connectors", {"name": "g", "config": {**SINK, "topics": ""}}),
    ("WAIT", "f", ("RUNNING", "RUNNING")),
    ("GET", "/connectors/f", None),
    ("GET", "/connectors/f/config", None),
    ("GET", "/connectors/f/status", None),
    ("GET", "/connectors/f/tasks/0/status", None),
    ("GET", "/connectors/f/tasks/3/status", None),
    ("GET", "/connectors?expand=info&expand=status", None),
    ("PUT", "/connectors/f/config", {**SOURCE, "batch.size": "10"}),
    ("PATCH", "/connectors/f/config", {"batch.size": None, "tasks.max": "1"}),
    ("PATCH", "/connectors/unknown/config", {"a": "b"}),
    ("PUT", "/connectors/f/pause", None),
    ("WAIT", "f", ("PAUSED", "PAUSED")),
    ("PATCH", "/connectors/f/offsets", {"offsets": [{"partition": PLACE, "offset": {"position": 1}}]}),
    ("DELETE", "/connectors/f/offsets", None),
    ("PUT", "/connectors/f/stop", None),
    ("WAIT", "f", ("STOPPED",)),
    ("GET", "/connectors/f", None),
    ("GET", "/connectors/f/tasks", None),
    ("GET", "/connectors/f/status", None),
    ("PATCH", "/connectors/f/offsets", {"offsets": []}),
    ("PATCH", "/connectors/f/offsets", {"offsets": [{"partition": PLACE, "offset": {"position": 1}}]}),
    ("GET", "/connectors/f/offsets", None),
    ("DELETE", "/connectors/f/offsets", None),
    ("GET", "/connectors/f/offsets", None),
    ("PUT", "/connectors/f/topics/reset", None),
    ("PUT", "/connectors/f/resume", None),
    ("WAIT", "f", ("RUNNING", "RUNNING")),
    ("POST", "/connectors/f/restart", None),
    ("POST", "/connectors/unknown/restart", None),
    ("POST", "/connectors/f/tasks/9/restart", None),
    *[("GET", f"/connectors/unknown{path}", None) for path in ("", "/config", "/status", "/tasks", "/topics",
    "/offsets")],
    ("PUT", "/connectors/unknown/pause", None),
    ("DELETE", "/connectors/f", None),
    ("DELETE", "/connectors/f", None),
    ("POST", "/connectors", {"name": "r", "config": SOURCE, "initial_state": "STOPPED"}),
    ("WAIT", "r", ("STOPPED",)),
    ("DELETE", "/connectors/r", None),
    ("POST", "/connectors", {"name": "e", "config": REFERRING}),
    ("WAIT", "e", ("RUNNING", "RUNNING")),
    ("GET", "/connectors/e", None),
    ("GET", "/connectors/e/config", None),
    ("DELETE", "/connectors/e", None),
    ("GET", "/connector-plugins/Nope/config", None),
    ("PUT", "/connector-plugins/FileStreamSink/config/validate", {"connector.class": "FileStreamSource"}),
    ("PUT", "/connector-plugins/FileStreamSource/config/validate", {**SOURCE, "name": "v"}),
    ("PUT", "/connector-plugins/FileStreamSink/config/validate", {**SINK, "name": "v"}),
    ("PUT", "/connector-plugins/FileStreamSource/config/validate",
     {**SOURCE, "name": "v", "transforms": "a",
      "transforms.a.type": "org.apache.kafka.connect.transforms.HoistField$Value", "transforms.a.field": "x",
      "predicates": "p", "predicates.p.type": "RecordIsTombstone"}),
    ("PUT", "/connector-plugins/FileStreamSource/config/validate", {"connector.class": "FileStreamSource"}),
    ("GET", "/nothing", None),
]  # fmt: skip

# Keys that are not compared.
IGNORED_KEYS = ("version", "worker_id", "documentation", "recommended_values", "default_value", "trace")


def play(client: httpx.Client) -> list[Any]:
    transcript: list[Any] = []
    for method, path, body in SCRIPT:
        if method == "WAIT":
            wait_for_states(client, path, *body)
            continue
        answer = wait_until(
            partial(_request_unless_rebalancing, client, method, path, body), "the worker has no rebalance to do first"
        )
        if method == "GET" and path.endswith("/offsets"):
            # Apache's worker reads the partitions first and their offsets later, and these may be gone by then.
            answer = wait_until(partial(_get_settled_offsets, client, path), "the offsets have settled")
        content = normal(answer.json()) if answer.content else None
        transcript.append((method, path, answer.status_code, content))
    return transcript


def _request_unless_rebalancing(client: httpx.Client, method: str, path: str, body: Any) -> httpx.Response | None:
    """Return the answer; None if a rebalance made the worker refuse the request with 409, and it must be retried."""
    answer = client.request(method, path, json=body)
    is_put_off = answer.status_code == 409 and ("momentarily" in answer.text or "rebalance" in answer.text)
    return None if is_put_off else answer


def _get_settled_offsets(client: httpx.Client, path: str) -> httpx.Response | None:
    answer = client.get(path)
    has_gone = any(each["offset"] is None for each in answer.json().get("offsets", ()))
    return None if has_gone else answer


def normal(value: Any) -> Any:
    """Return the body of an answer without what may differ between the workers."""
    if isinstance(value, dict):
        if "definition" in value and value["definition"]["name"].endswith("plugin.version"):
            return "a version"
        kept = {key: normal(one) for key, one in value.items() if key not in IGNORED_KEYS}
        # Tasks may appear before or after the answer.
        if set(kept) == {"name", "config", "tasks", "type"}:
            kept["tasks"] = "some or none"
        return kept
    if isinstance(value, list):
        found = [normal(one) for one in value]
        # Apache's worker lists the keys of a validation in the order of a hash map.
        if found and all((isinstance(one, dict) and "definition" in one) or one == "a version" for one in found):
            return sorted(found, key=str)
        return found
    if isinstance(value, str) and value.startswith("Connector config {"):
        # The settings stand in braces, in the order of a hash map.
        return value.rpartition("}")[2]
    return value


def shown(client: httpx.Client) -> dict[str, str]:
    """Return the values in the answer of a validation for the two keys that refer to the config provider."""
    answer = client.put("/connector-plugins/FileStreamSource/config/validate", json={**REFERRING, "name": "v"})
    found = [each["value"] for each in answer.json()["configs"]]
    assert not any(each["errors"] for each in found), found
    return {each["name"]: each["value"] for each in found if each["name"] in ("tasks.max", "topic")}


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka() as running:
        yield running


@pytest.mark.apache
def test_apaches_worker_and_ours_give_equal_answers_to_the_same_rest_requests(
    kafka: ApacheKafka,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in VARIABLES.items():
        monkeypatch.setenv(name, text)
    with (
        apache_worker(kafka.bootstrap_servers, tmp_path, PROVIDER) as url,
        httpx.Client(base_url=url, timeout=120) as client,
    ):
        theirs = play(client)
        # Apache's worker shows the resolved values in a validation, ours does not: docs/DEVIATIONS.md.
        assert shown(client) == {"tasks.max": "2", "topic": "hidden-lines"}
    with connect_worker(kafka.bootstrap_servers, tmp_path / "home", PROVIDER, PretendingRunner()) as client:
        ours = play(client)
        assert shown(client) == {"tasks.max": "${env:CONNECT_TASKS}", "topic": "${env:CONNECT_TOPIC}"}
    different = [f"theirs {a}\nours   {b}" for a, b in zip(theirs, ours, strict=True) if a != b]
    record_property("compared", f"{len(ours)} answers of Connect's interface with Apache's")
    assert not different, "\n".join(different)
