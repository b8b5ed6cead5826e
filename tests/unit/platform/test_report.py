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


def test_the_drawn_table_holds_the_same_words() -> None:
    drawn = drawn_table(ROWS, 100, HEADINGS)
    assert all(word in drawn for row in ROWS for word in row)


def test_the_drawn_table_folds_a_long_path_and_loses_nothing_of_it() -> None:
    path = "/home/somebody/" + "deep/" * 20 + "broker.log"
    drawn = drawn_table([("broker", "localhost:9092", "71", path)], 60, HEADINGS)
    without_colour = re.sub(r"\x1b\[\d+m", "", drawn)
    assert max(len(line) for line in without_colour.splitlines()) <= 60
    assert "".join(line.split()[-1] for line in without_colour.splitlines()[3:-1]).endswith(path[-100:])
