"""Warnings that clients can cause are written a bounded number of times."""

from __future__ import annotations

import io
import logging

from pessoa.broker.logs.repeated_lines import MAX_INFO_LINES, MAX_KINDS, MAX_LINES, WINDOW_S, BoundedStderr


class Listing:
    def __init__(self) -> None:
        self._written = io.StringIO()
        self._handler = BoundedStderr(self._written)

    @property
    def lines(self) -> list[str]:
        return self._written.getvalue().splitlines()

    def say(self, text: str, *arguments: object, at_s: float = 0.0, level: int = logging.WARNING) -> None:
        record = logging.LogRecord("pessoa.net", level, "", 0, text, arguments, None)
        record.created = at_s
        self._handler.handle(record)
        # Another handler of the same record must not see what this one has added.
        assert record.msg == text


def test_a_flood_of_one_kind_is_written_in_part_and_counted() -> None:
    log = Listing()
    for number in range(5 * MAX_LINES):
        log.say("%s is refused", number)
    assert log.lines == [f"{number} is refused" for number in range(MAX_LINES)]
    log.say("%s is refused", "100%s", at_s=WINDOW_S)
    assert log.lines[-1] == f"100%s is refused ({4 * MAX_LINES} such lines before it were left out)"
    log.say("%s is refused", 7, at_s=WINDOW_S + 1)
    assert log.lines[-1] == "7 is refused"
    log.say("%s is refused", 8, at_s=3 * WINDOW_S)
    assert log.lines[-1] == "8 is refused"


def test_repeated_lines_are_limited_by_kind_and_info_lines_have_a_higher_limit() -> None:
    log = Listing()
    for number in range(2 * MAX_INFO_LINES):
        log.say("%s is refused", number)
        log.say("%s has begun", number, level=logging.INFO)
    log.say("the disk is full", level=logging.ERROR)
    assert log.lines[-1] == "the disk is full"
    assert sum(line.endswith("has begun") for line in log.lines) == MAX_INFO_LINES


def test_a_clock_that_goes_back_resets_the_count_of_repeated_lines() -> None:
    log = Listing()
    for _ in range(2 * MAX_LINES):
        log.say("refused", at_s=1000.0)
    log.say("refused", at_s=10.0)
    assert log.lines[-1] == f"refused ({MAX_LINES} such lines before it were left out)"


def test_the_number_of_distinct_lines_that_are_counted_is_bounded() -> None:
    log = Listing()
    for number in range(10 * MAX_KINDS):
        log.say(f"text {number}")
    assert len(log.lines) == MAX_KINDS + MAX_LINES
