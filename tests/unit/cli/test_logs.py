"""`pessoa logs` with the application log that brokers write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pessoa.cli.log_tail import LogTail
from pessoa.cli.logs import logs

ACCESS = {
    "time": "2026-11-17T04:25:06.123Z",
    "host": "10.0.0.7",
    "principal": "User:ann",
    "client_id": "shop",
    "listener": "PLAINTEXT",
    "api": "Produce",
    "version": 12,
    "topics": ["orders"],
    "bytes_in": 812,
    "bytes_out": 66,
    "ms": 0.41,
    "result": "NONE",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PESSOA_HOME", str(tmp_path))
    for number in (1, 2):
        (tmp_path / "logs" / f"broker-{number}").mkdir(parents=True)
        (tmp_path / "logs" / f"broker-{number}.log").write_text("started\n")
    return tmp_path


def write(home: Path, broker: str, log: str, *entries: dict[str, Any] | str) -> None:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in entries]
    (home / "logs" / broker / f"{log}.log").write_text("".join(line + "\n" for line in lines))


def show(*arguments: str) -> list[str]:
    result = CliRunner().invoke(logs, arguments)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_the_access_log_is_shown_in_columns(home: Path) -> None:
    fetch = {**ACCESS, "api": "Fetch", "client_id": "long-name", "topics": [], "result": "FENCED"}
    write(home, "broker-1", "access", ACCESS, fetch)
    assert show("broker-1", "--access") == [
        "2026-11-17 04:25:06.123  10.0.0.7  User:ann  shop       Produce v12  orders  812 in  66 out  0.41 ms  ok",
        "2026-11-17 04:25:06.123  10.0.0.7  User:ann  long-name  Fetch v12    -       812 in  66 out  0.41 ms  FENCED",
    ]


def test_the_lines_of_several_brokers_are_labelled_with_their_broker(home: Path) -> None:
    write(home, "broker-1", "access", ACCESS)
    write(home, "broker-2", "access", ACCESS)
    assert [line.partition(" | ")[0] for line in show("broker", "--access")] == ["broker-1", "broker-2"]


def test_showing_a_log_that_is_off_explains_how_to_turn_it_on(home: Path) -> None:
    result = CliRunner().invoke(logs, ["broker-2", "--access"])
    assert result.exit_code == 1
    assert "--entity-type broker-loggers --entity-name 2 --add-config kafka.request.logger=DEBUG" in result.output


def test_the_last_lines_include_those_of_a_rotated_file(home: Path) -> None:
    folder = home / "logs" / "broker-1"
    (folder / "access.log.1").write_text("".join(json.dumps({**ACCESS, "ms": n}) + "\n" for n in range(5)))
    write(home, "broker-1", "access", {**ACCESS, "ms": 5})
    assert [line.split("  ")[-2] for line in show("broker-1", "--access", "-n", "3")] == ["3 ms", "4 ms", "5 ms"]


def test_control_characters_in_client_ids_are_not_printed(home: Path) -> None:
    write(home, "broker-1", "access", {**ACCESS, "client_id": "\x1b[2J\nroot"}, "not json \x1b[2J")
    shown = show("broker-1", "--access")
    assert len(shown) == 2
    assert all(line.isprintable() for line in shown)


def test_an_audit_line_shows_what_was_changed(home: Path) -> None:
    entry = {
        **ACCESS,
        "event": "CreateTopics",
        "about": {"topics": [{"name": "orders", "num_partitions": 3}, {"name": "bills"}], "validate_only": False},
        "outcome": "NONE",
    }
    write(home, "broker-1", "audit", entry)
    [line] = show("broker-1", "--audit")
    assert line.endswith("CreateTopics  ok  topics name=orders num_partitions=3, name=bills validate_only=False")


def test_a_traceback_of_the_error_log_is_indented(home: Path) -> None:
    entry = {
        "time": ACCESS["time"],
        "level": "ERROR",
        "logger": "pessoa.net",
        "message": "failed",
        "traceback": "Traceback\n  ValueError: x",
    }
    write(home, "broker-1", "error", entry)
    assert show("broker-1", "--error") == [
        "2026-11-17 04:25:06.123  ERROR  pessoa.net  failed",
        "  | Traceback",
        "  |   ValueError: x",
    ]


@pytest.mark.parametrize("log", ["agent", "referrer", "authorizer"])
def test_the_other_logs_are_shown(home: Path, log: str) -> None:
    entry = {**ACCESS, "software": "x", "software_version": "1", "service": "x", "name": "y", "message": "x denied"}
    write(home, "broker-1", log, entry)
    [line] = show("broker-1", f"--{log}")
    assert "  x" in line


def test_the_number_of_dropped_lines_is_shown(home: Path) -> None:
    write(home, "broker-1", "access", {"time": ACCESS["time"], "dropped": 7})
    assert show("broker-1", "--access") == ["2026-11-17 04:25:06.123  7 lines were dropped: the disk did not take them"]


def test_following_a_log_continues_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text("one\n")
    tail = LogTail(path)
    assert tail.last(10) == ["one"]
    with path.open("a") as file:
        file.write("two\nthr")
    assert tail.more() == ["two"]
    with path.open("a") as file:
        file.write("ee\n")
    path.rename(tmp_path / "access.log.1")
    path.write_text("four\n")
    assert tail.more() == ["three"]
    assert tail.more() == ["four"]
    tail.close()
