"""What `ksql` prints, and the commands that it executes itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pessoa.cli.ksql.case_runs import run_case_files
from pessoa.cli.ksql.entity_tables import render, table
from pessoa.cli.ksql.ksql_session import KsqlSession, Leave
from pessoa.cli.ksql.ksql_shell import is_whole
from pessoa.cli.ksql.row_boxes import RowBox, cell_text
from pessoa.cli.ksql.server_client import KsqlClient


class RecordingClient(KsqlClient):
    """A client that answers every statement with one entity, and records the statements."""

    def __init__(self) -> None:
        super().__init__("http://localhost:1")
        self.sent: list[tuple[str, dict[str, str], dict[str, str]]] = []

    def statements(self, text: str, properties: Any, variables: Any) -> list[dict[str, Any]]:
        self.sent.append((text, dict(properties), dict(variables)))
        return [] if text.startswith("SET") else [{"@type": "warning_entity", "message": "done", "warnings": []}]


@pytest.fixture
def client() -> RecordingClient:
    return RecordingClient()


@pytest.fixture
def session(client: RecordingClient) -> KsqlSession:
    return KsqlSession(client, width=lambda: 40)


def test_a_printed_table_has_a_head_dashes_rows_and_dashes() -> None:
    assert table(["A", "Long"], [["x", 1], ["y\nz", None]]) == [
        " A | Long ",
        "----------",
        " x | 1 ",
        " y | ",
        " z | ",
        "----------",
    ]  # fmt: skip


def test_columns_share_the_width_of_the_terminal_and_wrap_or_are_truncated() -> None:
    assert RowBox(["A", "B"], 21).head() == ["+---------+---------+", "|A        |B        |", "+---------+---------+"]
    assert RowBox(["A", "B"], 21).row([1, "0123456789ab"]) == ["|1        |012345678|", "|         |9ab      |"]
    assert RowBox(["A", "B"], 21, wrap=False).row([True, "0123456789ab"]) == ["|true     |012345...|"]
    assert cell_text({"X": [1, None]}) == "{X=[1, null]}"


@pytest.mark.parametrize("output", ["TABULAR", "JSON"])
def test_control_characters_of_a_record_are_not_printed_to_the_terminal(
    output: str, client: RecordingClient, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b]0;owned\x07\x9b2J\r\x7f"
    session = KsqlSession(client, output, width=lambda: 80)
    lines = iter([json.dumps({"columnNames": [f"A{hostile}"]}), json.dumps([hostile]), json.dumps([{hostile: "b"}])])
    rows: Any = (line.encode() for line in lines)
    assert session._show_rows(rows, "SELECT 1;")
    session.fail(hostile)
    session._show([{"@type": "warning_entity", "message": hostile}])
    shown = capsys.readouterr().out
    assert not [one for one in shown if one != "\n" and not one.isprintable()]
    assert "\\u001b]0;owned\\u0007\\u009b2J" in shown
    if output == "JSON":
        assert [hostile] in [json.loads(line) for line in shown.splitlines()[:3] if line.startswith("[")]


def test_the_clear_command_clears_the_screen(session: KsqlSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert session.run_line("clear")
    assert capsys.readouterr().out.startswith("\x1b[2J")


def test_warnings_are_printed_before_the_result() -> None:
    shown = render({"@type": "warning_entity", "message": "old\nmore", "warnings": [{"message": "5.x"}]})
    assert shown[0] == "WARNING: 5.x"
    assert " old " in shown


def test_properties_and_variables_are_kept_and_sent(
    session: KsqlSession, client: RecordingClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert session.run("SET 'auto.offset.reset'='earliest'; DEFINE t = 'x'; SHOW STREAMS; SHOW TABLES;")
    assert client.sent[-1] == ("SHOW STREAMS;\nSHOW TABLES;", {"auto.offset.reset": "earliest"}, {"T": "x"})
    assert session.run("SET 'auto.offset.reset'='latest'; SHOW VARIABLES; UNSET 'auto.offset.reset';")
    said = capsys.readouterr().out
    assert "to 'earliest'. Use the UNSET command to revert your change." in said
    assert "from 'earliest' to 'latest'." in said
    assert "Successfully unset local property 'auto.offset.reset' (value was 'latest')." in said
    assert "Variable Name" in said
    assert not session.run("UNSET 'never.set';")


def test_local_commands_need_no_server(
    session: KsqlSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spooled = tmp_path / "spooled"
    assert session.run_line(f"spool '{spooled}'")
    for line in ("version", "output", "output json", "help", "history", "request-pipelining", "set cli wrap off"):
        assert session.run_line(line), line
    assert session.run_line("spool off")
    assert session.output == "JSON"
    assert "Output format set to JSON" in spooled.read_text()
    assert not session.run_line("SHOW STREAMS;")
    with pytest.raises(Leave):
        session.run_line("exit")
    assert "WRAP is OFF" in capsys.readouterr().out


def test_run_script_runs_a_script_and_refuses_recursion(
    session: KsqlSession, client: RecordingClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "s.sql"
    script.write_text("-- a comment; with a semicolon\nSHOW STREAMS;")
    assert session.run(f"RUN SCRIPT '{script}';")
    assert "SHOW STREAMS;" in client.sent[-1][0]
    script.write_text(f"RUN SCRIPT '{script}';")
    session.run_script(str(script))
    assert "deep at most" in capsys.readouterr().out
    assert not session.run_script(str(tmp_path / "none.sql"))


def test_a_statement_text_is_complete_at_its_semicolon() -> None:
    assert is_whole("SHOW STREAMS;")
    assert not is_whole("SELECT ';' FROM s")
    assert not is_whole("SELECT 'open;")


def test_the_cases_of_a_file_are_run_and_failures_are_reported(tmp_path: Path) -> None:
    given = "given:\nCREATE STREAM s (id STRING KEY, n INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');\n"
    case = '\n## doubled\nCREATE STREAM o AS SELECT id, n * 2 AS d FROM s EMIT CHANGES;\nin:\ns "a" {"n": 2}\nout:\n'
    good, bad, no = tmp_path / "good.case", tmp_path / "bad.case", tmp_path / "no.case"
    good.write_text(given + case + 'O "a" {"D": 4}\n')
    bad.write_text(given + case + 'O "a" {"D": 5}\n')
    no.write_text("what is this")
    said: list[str] = []
    assert run_case_files([good], said.append) == 0
    assert said[-1] == "1 cases, all hold"
    assert run_case_files([tmp_path / "bad.case"], said.append) == 1
    assert said[-1] == "1 cases, 1 failed"
    assert run_case_files([no], said.append) == 2
    assert run_case_files([], said.append) == 2


def test_scripts_beside_a_case_file_are_not_run_unless_they_have_user_functions(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w').close()")
    (tmp_path / "functions.py").write_text(
        "from pessoa.ksql.functions.user_functions import udf\n"
        "@udf('BESIDE_A_CASE', '(INT) INT')\ndef beside(x):\n    return x + 1\n"
    )
    (tmp_path / "some.case").write_text(
        "given:\nCREATE STREAM s (id STRING KEY, n INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');\n"
        "## called\nCREATE STREAM o AS SELECT id, BESIDE_A_CASE(n) AS d FROM s EMIT CHANGES;\n"
        'in:\ns "a" {"n": 2}\nout:\nO "a" {"D": 3}\n'
    )
    said: list[str] = []
    assert run_case_files([tmp_path / "some.case"], said.append) == 0, said
    assert not (tmp_path / "was_run").exists()
