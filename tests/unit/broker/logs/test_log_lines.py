"""Lines of logs: an entry is one line, whatever the client id contains (attack 21)."""

from __future__ import annotations

import json
import logging

import pytest

from pessoa.base.printable import printable
from pessoa.broker.logs.log_lines import (
    LONGEST_NAME,
    EscapingFormatter,
    TimeText,
    render_json,
    render_text,
    shortened,
)

NASTY = 'a"b\\c\nINFO forged\r\x1b[2J\x9b1m\u2028\u202e\x00=d'


def test_a_json_line_is_ascii_without_control_characters_and_reads_back() -> None:
    line = render_json({"time": "t", "client_id": NASTY})
    assert line.endswith(b"\n")
    assert all(32 <= byte < 127 for byte in line[:-1])
    assert json.loads(line)["client_id"] == NASTY


def test_a_text_line_has_no_control_characters_and_keeps_its_quotes() -> None:
    line = render_text({"time": "t", "client_id": NASTY, "api": "Fetch", "name": None}).decode()
    assert line[:-1].isprintable()
    assert line == ('t client_id="a\\"b\\\\c\\nINFO forged\\r\\x1b[2J\\x9b1m\\u2028\\u202e\\x00=d" api=Fetch\n')


@pytest.mark.parametrize(("value", "word"), [("", '""'), ("two words", '"two words"'), ("a=b", '"a=b"'), (7, "7")])
def test_a_text_line_quotes_values_that_could_not_be_parsed_back(value: str | int, word: str) -> None:
    assert render_text({"time": "t", "k": value}) == f"t k={word}\n".encode()


def test_a_long_name_is_truncated_in_a_log_line() -> None:
    assert len(shortened("x" * 32_000)) == LONGEST_NAME
    assert shortened("x" * LONGEST_NAME) == "x" * LONGEST_NAME


def test_times_are_utc_with_milliseconds() -> None:
    times = TimeText()
    assert times.of(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert times.of(1_700_000_000_008) == "2023-11-14T22:13:20.008Z"
    assert times.of(1_700_000_001_000) == "2023-11-14T22:13:21.000Z"


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, None)
    return logging.LogRecord("pessoa.net", logging.WARNING, "f.py", 1, message, None, info)


def test_a_log_record_with_newlines_cannot_forge_another_record() -> None:
    formatter = EscapingFormatter("%(levelname)s %(message)s")
    assert formatter.format(record("x\nERROR forged\x1b[2J")) == "WARNING x\\nERROR forged\\x1b[2J"
    shown = formatter.format(record("failed", ValueError("x\nERROR forged")))
    assert all(line.startswith(("WARNING", "  | ")) for line in shown.split("\n"))
    assert "\x1b" not in shown


def test_printable_text_stays_as_it_is() -> None:
    assert printable("árvore ≥ 3") == "árvore ≥ 3"
