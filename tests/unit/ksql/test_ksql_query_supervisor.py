"""Which persistent queries run on a server, with a runner that only records its calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.query_runner import PersistentQuery, RunnerStatus
from pessoa.ksql.server.commands import Command
from pessoa.ksql.server.ksql_state import KsqlState, apply_command
from pessoa.ksql.server.query_supervisor import QuerySupervisor

STREAM = "CREATE STREAM S (ID INT KEY, V VARCHAR) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
QUERY = "CREATE STREAM B AS SELECT * FROM S EMIT CHANGES;"
SETTLED_S = 30.0


class WritingRunner:
    def __init__(self, asked: list[str]) -> None:
        self._asked = asked
        self.refusal: KsqlError | None = None

    def start(self, query: PersistentQuery) -> None:
        if self.refusal is not None:
            raise self.refusal
        told = "".join(f" {name}={value}" for name, value in query.properties.items())
        self._asked.append(f"start {query.id}{told}")

    def pause(self, query_id: str) -> None:
        self._asked.append(f"pause {query_id}")
        raise KsqlError("not now")

    def resume(self, query_id: str) -> None:
        self._asked.append(f"resume {query_id}")

    def terminate(self, query_id: str, delete_state: bool) -> None:
        self._asked.append(f"terminate {query_id}{' with its state' if delete_state else ''}")

    def status(self, query_id: str) -> RunnerStatus:
        return RunnerStatus("RUNNING")

    def explain(self, plan: LogicalPlan) -> list[str]:
        return []

    def close(self) -> None:
        self._asked.append("close")


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def runner(asked: list[str]) -> WritingRunner:
    return WritingRunner(asked)


@pytest.fixture
def supervisor(runner: WritingRunner) -> Iterator[QuerySupervisor]:
    supervisor = QuerySupervisor(lambda: runner)
    supervisor.start()
    yield supervisor
    supervisor.stop()


def state(*statements: str, after: KsqlState | None = None) -> KsqlState:
    found = after or KsqlState()
    for offset, statement in enumerate(statements):
        found = apply_command(found, Command(statement), offset).state
    return found


def settle(supervisor: QuerySupervisor, wanted: KsqlState) -> None:
    supervisor.want(wanted)
    assert supervisor.wait_until_settled(SETTLED_S)


def test_a_ksql_server_runs_queries_only_while_it_is_the_leader(supervisor: QuerySupervisor, asked: list[str]) -> None:
    settle(supervisor, state(STREAM, QUERY))
    assert asked == []
    assert supervisor.status("CSAS_B_1").state == "RUNNING"
    supervisor.lead(True)
    assert supervisor.wait_until_settled(SETTLED_S)
    assert asked == ["start CSAS_B_1"]
    supervisor.lead(False)
    # The state stays for the next leader, and nothing runs here when this returns.
    assert asked == ["start CSAS_B_1", "close"]


def test_terminated_and_replaced_queries_end(supervisor: QuerySupervisor, asked: list[str]) -> None:
    supervisor.lead(True)
    settle(supervisor, state(STREAM, QUERY))
    replaced = QUERY.replace("CREATE", "CREATE OR REPLACE").replace("*", "*, UCASE(V) AS U")
    settle(supervisor, state(STREAM, QUERY, replaced))
    assert asked == ["start CSAS_B_1", "terminate CSAS_B_1", "start CSAS_B_1"]
    settle(supervisor, state(STREAM, QUERY, replaced, "TERMINATE ALL;"))
    assert asked[-1] == "terminate CSAS_B_1 with its state"


def test_alter_system_restarts_queries_with_the_new_setting_from_their_position(
    supervisor: QuerySupervisor, asked: list[str]
) -> None:
    supervisor.lead(True)
    wanted = state(STREAM, QUERY)
    settle(supervisor, wanted)
    wanted = state("ALTER SYSTEM 'ksql.streams.auto.offset.reset'='earliest';", after=wanted)
    settle(supervisor, wanted)
    again = ["terminate CSAS_B_1", "start CSAS_B_1 auto.offset.reset=earliest"]
    assert asked == ["start CSAS_B_1", *again]
    own = Command(QUERY.replace("B AS", "C AS"), {"auto.offset.reset": "latest"})
    settle(supervisor, apply_command(wanted, own, 5).state)
    assert asked[3:] == ["start CSAS_C_5 auto.offset.reset=latest"]
    with pytest.raises(KsqlError, match="Not recognizable"):
        state("ALTER SYSTEM 'no.such.property'='1';", after=wanted)


def test_a_failed_pause_does_not_prevent_pausing_the_other_queries(
    supervisor: QuerySupervisor, asked: list[str]
) -> None:
    supervisor.lead(True)
    wanted = state(STREAM, QUERY)
    settle(supervisor, wanted)
    wanted = state("PAUSE ALL;", after=wanted)
    settle(supervisor, wanted)
    settle(supervisor, state("RESUME ALL;", after=wanted))
    assert asked == ["start CSAS_B_1", "pause CSAS_B_1", "resume CSAS_B_1"]


def test_a_query_that_cannot_start_shows_the_reason_and_is_retried(
    supervisor: QuerySupervisor, runner: WritingRunner, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pessoa.ksql.server.query_supervisor._FIRST_RETRY_S", 0.05)
    runner.refusal = KsqlError("Spark is away")
    supervisor.lead(True)
    settle(supervisor, state(STREAM, QUERY))
    assert (supervisor.status("CSAS_B_1").state, supervisor.status("CSAS_B_1").error) == ("ERROR", "Spark is away")
    runner.refusal = None
    waited = threading.Event()
    for _ in range(600):
        if asked or waited.wait(0.05):
            break
    assert asked == ["start CSAS_B_1"]
    assert supervisor.status("CSAS_B_1").state == "RUNNING"
