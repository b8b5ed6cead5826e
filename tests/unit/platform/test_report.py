from __future__ import annotations

import re

from pessoa.platform.report import drawn_table, plain_table

HEADINGS = ("service", "address", "pid", "log")
ROWS = [
    ("broker", "localhost:9092", "71", "/h/logs/broker.log"),
    ("rest", "localhost:8082", "1234", "/h/logs/rest.log"),
]


def test_the_plain_table_is_aligned_and_has_no_trailing_blanks() -> None:
    assert plain_table(ROWS, HEADINGS).splitlines() == [
        "service  address         pid   log",
        "broker   localhost:9092  71    /h/logs/broker.log",
        "rest     localhost:8082  1234  /h/logs/rest.log",
    ]


def test_the_drawn_table_has_the_same_text() -> None:
    drawn = drawn_table(ROWS, 100, HEADINGS)
    assert all(word in drawn for row in ROWS for word in row)


def without_colour(text: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", text)


def test_a_narrow_terminal_shows_whole_addresses_and_one_line_about_the_logs() -> None:
    folder = "/home/user/" + "deep/" * 20
    drawn = without_colour(drawn_table([("broker", "localhost:9092", "71", f"{folder}broker.log")], 60, HEADINGS))
    *table, _, where = drawn.splitlines()
    assert [line.split() for line in table if "broker" in line] == [["broker", "localhost:9092", "71"]]
    assert where == f"The logs are in {folder.removesuffix('/')}."


def test_a_wide_terminal_shows_every_column() -> None:
    narrowest = next(width for width in range(200) if "broker.log" in drawn_table(ROWS, width, HEADINGS))
    lines = without_colour(drawn_table(ROWS, narrowest, HEADINGS)).splitlines()
    assert [line.split() for line in lines if "localhost" in line] == [list(row) for row in ROWS]
    assert max(map(len, lines)) <= narrowest
