"""ksqlDB's classic tutorials by the command line on a real Spark: statements from files, then pull and push queries."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pessoa.ksql.server.ksql_service import spark_runner
from pessoa.testing import Broker
from tests.services.ksql.serving import ksql_server

TUTORIALS = Path(__file__).parent / "tutorials"
# The machine that runs these tests may be very busy, and the first test waits until Spark has started.
DEADLINE_S = 300.0


class CommandLine:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *words: str) -> str:
        command = [sys.executable, "-m", "pessoa", "ksql", *words, self._url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def rows(self, query: str) -> list[list[Any]]:
        lines = self("--output", "JSON", "-e", query).splitlines()
        return [json.loads(line) for line in lines if line.startswith("[")]

    def push(self, query: str, count: int) -> list[list[Any]]:
        return self.rows(f"SET 'auto.offset.reset'='earliest'; {query} EMIT CHANGES LIMIT {count};")

    def wait_for_rows(self, query: str, wanted: list[list[Any]]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        found = self.rows(query)
        while sorted(found, key=str) != sorted(wanted, key=str):
            assert time.monotonic() < deadline, f"{query}: {found}, and not {wanted}"
            time.sleep(0.2)
            found = self.rows(query)


@pytest.fixture(scope="module")
def ksql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Start a server and run the statements of all tutorials, so that their queries start at the same time."""
    home = tmp_path_factory.mktemp("ksql")
    with Broker() as broker, ksql_server(broker.bootstrap_servers, home, make_runner=spark_runner) as server:
        command = CommandLine(str(server.base_url))
        for path in sorted(TUTORIALS.glob("*.sql")):
            command("-f", str(path))
        yield command


def test_pageviews_are_enriched_with_users(ksql: CommandLine) -> None:
    enriched: list[list[Any]] = [
        ["User_1", "Page_7", "Region_9", "FEMALE"],
        ["User_2", "Page_3", "Region_8", "MALE"],
        ["User_9", "Page_3", None, None],
    ]
    ksql.wait_for_rows("SELECT userid, pageid, regionid, gender FROM pageviews_enriched;", enriched)
    assert ksql.push("SELECT userid, pageid, regionid, gender FROM pageviews_enriched", 3) == enriched
    ksql.wait_for_rows("SELECT userid FROM pageviews_female;", [["User_1"]])


def test_cards_with_three_payments_in_a_window_are_found_with_their_amounts(ksql: CommandLine) -> None:
    query = "SELECT card_number, attempts, total, amounts FROM possible_fraud WHERE card_number = '4970';"
    ksql.wait_for_rows(query, [["4970", 3, 60.5, [10.0, 20.5, 30.0]]])
    assert ksql.rows("SELECT * FROM possible_fraud WHERE card_number = '3724';") == []


def test_movies_have_average_ratings(ksql: CommandLine) -> None:
    query = "SELECT title, ROUND(average * 100), how_many FROM average_ratings;"
    ksql.wait_for_rows(query, [["Die Hard", 835, 2], ["Tree of Life", 980, 2]])


def test_sensor_readings_out_of_range_are_selected_and_repeated_ones_counted(ksql: CommandLine) -> None:
    strange = [["s1", 151, "near"], ["s2", 162, "far"], ["s1", 170, "far"]]
    ksql.wait_for_rows("SELECT sensor, reading, how FROM strange;", strange)
    ksql.wait_for_rows("SELECT sensor, times, highest FROM hot;", [["s1", 2, 170]])


def test_the_last_locations_of_riders_are_a_table_from_which_another_table_is_made(ksql: CommandLine) -> None:
    ksql.wait_for_rows(
        "SELECT la, lo, moves FROM current_location WHERE profile_id = '4ab5cbad';", [[37.7857, -122.4011, 2]]
    )
    ksql.wait_for_rows("SELECT how_many FROM riders_near WHERE how_many > 1;", [[2]])


def test_orders_joined_with_customers_by_a_foreign_key_follow_changes_of_customers(ksql: CommandLine) -> None:
    query = "SELECT order_id, name, total FROM orders_enriched;"
    ksql.wait_for_rows(query, [[10, "Ana Maria", 5.0], [11, "Rui", 7.5]])
    ksql("-e", "INSERT INTO customers (id, name, email) VALUES (2, 'Rui Melo', 'rui@example.com');")
    ksql.wait_for_rows(query, [[10, "Ana Maria", 5.0], [11, "Rui Melo", 7.5]])


def test_queries_are_listed_and_explained(ksql: CommandLine) -> None:
    listed = ksql("-e", "SHOW QUERIES;")
    assert listed.count("RUNNING:1") == 10
    described = ksql("-e", "DESCRIBE HOT EXTENDED;")
    query_id = next(word for word in described.split() if word.startswith("CTAS_HOT_"))
    explained = ksql("-e", f"EXPLAIN {query_id};")
    assert "AGGREGATE" in explained
    assert "Processing topology" in explained
