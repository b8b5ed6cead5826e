"""How the control centre parses responses of ksql, Connect and pipelines, brokers' logs and group descriptions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.client.registry_client import subjects
from pessoa.control_center.accounts import Person
from pessoa.control_center.alerts import shown_rules
from pessoa.control_center.broker_logs import TAIL_BYTES, log_path, read_tail
from pessoa.control_center.connector_facts import password_keys, read_connectors, shown_config
from pessoa.control_center.group_details import task_names, task_partitions
from pessoa.control_center.ksql_catalogue import read_catalogue
from pessoa.control_center.service_links import RegistryLink, ServiceLink
from pessoa.control_center.stored_state import AlertRule
from pessoa.web.asgi_app import App, make_app
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint
from pessoa.web.serving import ThreadedServer
from pessoa.wire.api.streams_group_describe import Subtopology, TaskIds, TopicInfo


def test_a_catalogue_joins_queries_with_the_topics_of_their_streams() -> None:
    described: Any = {
        "name": "SALES", "type": "STREAM", "topic": "sales", "keyFormat": "KAFKA", "valueFormat": "JSON",
        "windowType": None, "fields": [
            {"name": "CITY", "type": "KEY", "schema": {"type": "STRING"}},
            {"name": "TAGS", "schema": {"type": "ARRAY", "memberSchema": {"type": "INTEGER"}}},
        ],
    }  # fmt: skip
    query: Any = {"id": "CSAS_BIG_1", "statementText": "CREATE …", "state": "RUNNING", "sources": ["SALES"],
             "sinks": ["BIG"], "executionPlan": "> SINK", "queryErrors": [{"errorMessage": "it broke"}]}  # fmt: skip
    found = read_catalogue(
        [{"sourceDescriptions": [described]}, {"queryDescriptions": [query]}, {"functions": [{"name": "ABS"}]}]
    )
    assert found.sources[0].columns == (("CITY", "STRING KEY"), ("TAGS", "ARRAY<INTEGER>"))
    assert (found.queries[0].reads, found.queries[0].writes) == (("sales",), ("BIG",))
    assert found.queries[0].errors == ("it broke",)
    labels = {one.label for one in found.words()}
    assert {"SELECT", "ABS(", "SALES", "CITY"} <= labels


@pytest.mark.parametrize("answer", [None, 3, [], [None, {"sourceDescriptions": 5}], {"message": "no"}])
def test_a_ksql_response_of_another_shape_gives_an_empty_catalogue(answer: object) -> None:
    assert read_catalogue(answer) == ((), (), ())  # type: ignore[arg-type]


def test_the_rows_of_a_query_are_shown_as_table_bars_and_line() -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.pages.ksql_results import QueryRows, column_names

    assert column_names("`ID` INTEGER KEY, `A B` STRUCT<X INT, Y INT>, `C` DECIMAL(4, 2)") == ["ID", "A B", "C"]
    rows = QueryRows()
    lines = ['[{"header":{"queryId":"q","schema":"`CITY` STRING KEY, `N` BIGINT"}},',
             '{"row":{"columns":["Porto",3]}},', '{"row":{"columns":["Faro",4]}},', "",
             '{"row":{"columns":["Porto",9]}},', '{"finalMessage":"Limit Reached"}]']  # fmt: skip
    assert [rows.take(line) for line in lines] == [None] * 6
    assert rows.number_columns() == ["N"]
    assert rows.bars("N") == [("Porto", 9.0), ("Faro", 4.0)]
    assert [one.value for one in rows.line("N")] == [3.0, 4.0, 9.0]
    assert rows.notes == ["Limit Reached"]
    assert rows.take('{"errorMessage":"gone"}]') == "gone"
    printed = QueryRows()
    printed.take("rowtime: 2026/11/17, key: 0, value: {}")
    assert list(printed.lines) == ["rowtime: 2026/11/17, key: 0, value: {}"]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("SELECT 1;", True), ("  print topic;", True), ("-- SELECT\nSELECT * FROM s;", True), ("select--x", True),
        ("/* a */ /* b */\n-- c\n SELECT 1;", True), ("SELECT/**/1;", True), ("/*/ SELECT", False),
        ("SELECTED", False), ("", False), ("-- SELECT", False), ("/* SELECT", False), ("DROP s; SELECT 1;", False),
        ("/* " * 300_000, False), ("/**/ " * 200_000 + "SELECT", True), ("--\n" * 300_000 + "DROP", False),
    ],
    ids=range(15),
)  # fmt: skip
def test_a_ksql_text_is_a_query_if_its_first_word_after_comments_is_select_or_print(text: str, is_one: bool) -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.pages.ksql_page import is_query

    assert is_query(text) is is_one


def test_a_reader_pauses_no_query_and_only_an_admin_terminates_one() -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.pages.ksql_page import _act

    async def attempt(action: Any, _: str) -> bool:
        with pytest.raises(HttpProblem) as refused:
            await action
        assert refused.value.status == 403
        return False

    for role, wanted in (("reader", "editor"), ("editor", "admin")):
        visit: Any = SimpleNamespace(person=Person("rui", role), t=str, attempt=attempt)
        asyncio.run(_act(visit, "TERMINATE q;", wanted))


def test_connectors_are_read_with_their_dead_letter_topic_and_without_secrets() -> None:
    config: Any = {"errors.deadletterqueue.topic.name": "refused", "connection.password": "x", "topics": "orders"}
    status: Any = {"type": "sink", "connector": {"state": "RUNNING"},
              "tasks": [{"id": 0, "state": "FAILED", "trace": "why"}, "nonsense"]}  # fmt: skip
    one, other = read_connectors({"b": {"status": None}, "a": {"status": status, "info": {"config": config}}, "c": 1})
    assert (one.name, one.group, one.dead_letter_topic, one.failed) == ("a", "connect-a", "refused", 1)
    assert (other.kind, other.state, other.dead_letter_topic) == ("?", "?", None)
    assert shown_config(one.config)["connection.password"] == "••••"
    assert read_connectors(["no"]) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("consumer.override.sasl.jaas.config", "PlainLoginModule required;"), ("basic.auth.user.info", "ada:x"),
        ("ssl.keystore.key", "pem"), ("key.passphrase", "x"), ("db.pwd", "x"), ("sink.api.key", "x"), ("apiKey", "x"),
        ("http.headers", "Authorization: Bearer x"), ("aws.access.key.id", "x"), ("connection.string", "a;Password=x"),
        ("connection.url", "jdbc:postgresql://ada:x@db/shop"), ("target", "https://x@host/"), ("odd.name", "typed"),
    ],
)  # fmt: skip
def test_a_secret_of_a_connector_is_hidden_by_its_name_its_value_or_its_type(key: str, value: str) -> None:
    passwords = password_keys([{"name": "odd.name", "type": "PASSWORD"}, {"name": "topics", "type": "LIST"}, 3])
    assert shown_config({key: value}, passwords) == {key: "••••"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("key.converter", "org.apache.kafka.connect.storage.StringConverter"), ("key.deserializer", "x"),
        ("value.converter.schema.registry.url", "http://registry:8081"), ("header.converter", "x"),
        ("errors.deadletterqueue.context.headers.enable", "true"), ("topics", "orders"), ("message.key.columns", "a:b"),
        ("connection.url", "jdbc:postgresql://db/shop"), ("password", ""),
    ],
)  # fmt: skip
def test_a_setting_of_a_connector_that_is_no_secret_is_shown(key: str, value: str) -> None:
    assert shown_config({key: value}) == {key: value}


def test_the_connector_form_sends_masked_secrets_and_keeps_them_unless_they_change() -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.pages.connector_form import ConnectorForm

    known = {"name": "c", "connector.class": "C", "db.password": "hunter2", "url": "h://u:p@x", "topics": "t"}
    visit: Any = None
    form = ConnectorForm(visit, known)
    rows: Any = [{"name": "db.password", "type": "PASSWORD"}, {"name": "url"}, {"name": "topics"}]
    shown = {row["name"]: form._initial_text(row) for row in rows}
    assert shown == {"db.password": "••••", "url": "••••", "topics": "t"}
    fields: Any = {key: SimpleNamespace(value=value) for key, value in shown.items()}
    form._fields = fields
    assert form.config() == known
    fields["db.password"].value = "new"
    assert form.config() == {**known, "db.password": "new"}
    assert form._without_secrets("Invalid value hunter2 for db.password") == "Invalid value •••• for db.password"


def test_credentials_in_the_url_of_a_service_are_used_and_never_shown() -> None:
    link = ServiceLink("Connect", "http://ada:p%40ss@localhost:1/base/", "/")
    state = asyncio.run(link.state())
    assert state.url == "http://localhost:1/base"
    assert "p%40ss" not in repr(link) + state.note
    assert link._login == ("ada", "p@ss")
    assert ServiceLink("ksql", "", "/").url == ""


def problem_of(ask: Callable[[], Any]) -> tuple[int, int, str]:
    with pytest.raises(HttpProblem) as raised:
        asyncio.run(ask())
    return raised.value.status, raised.value.code, raised.value.message


def asks_of(url: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return two functions that request the subjects of the registry at this address: by RegistryLink and by
    ServiceLink."""

    async def by_client() -> object:
        link = RegistryLink(url, {})
        try:
            return await link.ask(subjects())
        finally:
            await link.close()

    async def by_path() -> object:
        link = ServiceLink("Schema Registry", url, "/subjects")
        try:
            return await link.ask("GET", "/subjects")
        finally:
            await link.close()

    return by_client, by_path


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (404, b'{"error_code": 40401, "message": "Subject not found"}', (404, 40401, "Subject not found")),
        (500, b'{"error_code": 50001, "message": "no store"}', (502, 50001, "no store")),
        (401, b"{}", (401, 401, "Schema Registry answered 401.")),
        (503, b"<html>Bad gateway</html>", (502, 503, "Schema Registry answered 503.")),
        (403, b'["no"]', (403, 403, "Schema Registry answered 403.")),
    ],
)
def test_an_error_of_the_registry_is_shown_as_those_of_other_services(
    status: int, body: bytes, told: tuple[int, int, str]
) -> None:
    async def make() -> App:
        async def refuse(_: Request) -> Response:
            return Response(body, status)

        return make_app("registry", [Endpoint("GET", "/subjects", refuse)])

    with ThreadedServer(make) as server:
        assert [problem_of(ask) for ask in asks_of(server.url)] == [told, told]


def test_an_unreachable_or_unconfigured_registry_is_shown_as_other_services_are() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
    by_client, by_path = (problem_of(ask) for ask in asks_of(url.replace("//", "//ada:secret@")))
    assert by_client == by_path
    assert by_client[:2] == (503, 50302)
    assert by_client[2].startswith(f"Schema Registry at {url} does not answer: ")
    told = (503, 50301, "Schema Registry is not configured here.")
    assert [problem_of(ask) for ask in asks_of("")] == [told, told]


def test_the_registry_client_of_a_page_has_the_timeout_and_login_of_other_services() -> None:
    link = RegistryLink("http://localhost:1", {"basic.auth.user.info": "ada:x", "schema.registry.url": "http://other"})
    client = link._registry
    assert client._timeout() == ServiceLink("Connect", "http://localhost:1", "/")._client().timeout
    assert (client._auth(), client._urls) == (("ada", "x"), ["http://localhost:1"])


def test_users_other_than_admins_see_only_the_host_of_a_webhook() -> None:
    rule = AlertRule("r", "lag", webhook="https://ada:x@hooks.example/services/SECRET?token=y")
    assert shown_rules([rule, AlertRule("s", "disk")], to_admin=True)[0] == rule
    assert [one.webhook for one in shown_rules([rule, AlertRule("s", "disk")], to_admin=False)] == ["hooks.example", ""]


def test_the_lineage_of_a_pipeline_is_taken_from_its_status_and_its_consumer_group() -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.lineage_graph import Flow
    from pessoa.control_center.pages.lineage_page import pipeline_flows, stands_for_another

    answer = [{"id": "shout", "state": "RUNNING", "group": "pessoa-shout", "sources": ["in"], "sinks": ["out"]}, 7]
    flows = pipeline_flows(answer, {"pessoa-shout": ["in", "more"]})  # type: ignore[arg-type]
    assert flows == [Flow("pipeline", "shout", ("in", "more"), ("out",), "RUNNING")]
    assert stands_for_another("pessoa-shout", flows)
    assert stands_for_another("_confluent-ksql-default_query_CSAS_BIG_1", ())
    assert not stands_for_another("billing", flows)


def test_a_log_is_read_from_its_end_newest_first_in_columns(tmp_path: Path) -> None:
    (tmp_path / "logs" / "broker-1").mkdir(parents=True)
    assert log_path(str(tmp_path), 1, "error") is None
    (tmp_path / "logs" / "broker-1.log").write_text("printed\n")
    assert log_path(None, 1, "error") is None
    assert log_path(str(tmp_path), 1, "../../etc/passwd") is None
    path = log_path(str(tmp_path), 1, "error")
    assert path == tmp_path / "logs" / "broker-1" / "error.log"
    lines = [msgspec.json.encode({"extra": {"n": n}, "level": "WARN", "time": f"t{n}"}).decode() for n in range(30_000)]
    path.write_text("\n".join(lines) + "\n")
    assert path.stat().st_size > TAIL_BYTES
    found = read_tail(path, 3)
    assert found.columns == ["time", "level", "extra"]
    assert [row[0] for row in found.rows] == ["t29999", "t29998", "t29997"]
    assert [row[2] for row in read_tail(path, 3, "T29998").rows] == ['{"n":29998}']
    path.write_text("not JSON\n")
    assert read_tail(path, 3) == ([], [["not JSON"]])


def test_tasks_of_a_streams_group_are_named_and_read_the_sources_of_their_subtopology() -> None:
    again = TopicInfo(name="again", partitions=2, replication_factor=1, topic_configs=[])
    about = Subtopology(
        subtopology_id="0", source_topics=["words"], repartition_sink_topics=["again"], state_changelog_topics=[],
        repartition_source_topics=[again],
    )  # fmt: skip
    tasks = [TaskIds(subtopology_id="0", partitions=[1, 0]), TaskIds(subtopology_id="9", partitions=[0])]
    assert task_names(tasks) == ["0_0", "0_1", "9_0"]
    assert task_partitions(tasks, {"0": about}) == [("again", 0), ("again", 1), ("words", 0), ("words", 1)]
