"""Kill Spark, the engine and the broker during real-time queries with state: windows, joins with tables, distinct rows.

Delivery is at least once: a batch that had not ended is repeated with its updates. The last update of every key (and
minute) must be that of a run without faults, and no row may be missing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pessoa.pipelines.plan import Aggregate, Column, Distinct, Format, Join, Node, Sink, Source, Window, to_json
from pessoa.testing import Broker
from tests.pipelines.test_kill_minus_nine import (
    FIRST_MS,
    KEYS,
    PATIENCE_S,
    ROUND,
    STEP_MS,
    kill_engine,
    kill_spark,
)
from tests.support.service_process import ServiceProcess, engine_process
from tests.support.topics import eventually, fill, make_topic, read_all

MINUTE_MS = 60_000
DAY_MS = 86_400_000
INPUT = Source("input", value=Format("string"))
# The keys are the names of the queries and of the topics that they write.
PLANS: dict[str, Node] = {
    "counted": Aggregate(INPUT, (Column("count", "count(*)"),), Window("tumbling", MINUTE_MS, grace_ms=DAY_MS)),
    "looked-up": Join(INPUT, Source("cities", is_table=True), right_prefix="city_", lookup="latest"),
    "tables": Join(msgspec.structs.replace(INPUT, is_table=True), Source("names", is_table=True), right_prefix="name_"),
    "firsts": Distinct(Source("repeated"), ("value",)),
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Broker, ServiceProcess]]:
    with Broker() as broker:
        for topic in ("input", "repeated", "cities", "names", *PLANS):
            # The records have old timestamps, so retention is switched off.
            make_topic(broker.bootstrap_servers, topic, retention_ms="-1")
        engine = engine_process(broker.bootstrap_servers, tmp_path / "home")
        try:
            engine.start()
            yield broker, engine
        finally:
            engine.stop()


def test_the_last_update_of_every_key_is_right_after_spark_the_engine_and_the_broker_were_killed(
    world: tuple[Broker, ServiceProcess],
) -> None:
    broker, engine = world
    servers = broker.bootstrap_servers
    written = 0

    def feed() -> None:
        nonlocal written
        # The topic `repeated` gets half of the previous rows again.
        for topic, first in (("repeated", max(0, written - ROUND // 2)), ("input", written)):
            numbers = range(first, written + ROUND)
            rows = ((b"k%d" % (number % KEYS), b"v%d" % number) for number in numbers)
            fill(servers, topic, rows, [FIRST_MS + STEP_MS * number for number in numbers])
        written += ROUND
        fill(servers, "names", ((b"k%d" % key, b"n%d after %d" % (key, written)) for key in range(KEYS)))

    def wait_for_all() -> None:
        for name, expected in EXPECTED.items():
            eventually(
                lambda name=name, expected=expected: expected(read_all(servers, name), written),  # type: ignore[misc]
                PATIENCE_S, pause_s=0.5, about=lambda: engine.ask("GET", "/queries"),
            )  # fmt: skip

    fill(servers, "cities", ((b"k%d" % key, b"c%d" % key) for key in range(KEYS)))
    feed()
    for name, plan in PLANS.items():
        # Batches of five seconds, so that the kills fall into several of them.
        body = {"plan": msgspec.json.decode(to_json(Sink(plan, name))), "trigger_ms": 5000, "max_restarts": 50}
        query = engine.ask("POST", "/queries", {"id": name, **body})
        assert (query["speed"], query["delivery"]) == ("real-time", "at-least-once")
    wait_for_all()
    feed()
    kill_spark(engine, "counted")
    wait_for_all()
    feed()
    kill_engine(engine)
    engine.start()
    feed()
    wait_for_all()
    broker.kill()
    broker.start()
    feed()
    wait_for_all()


def rows_of(messages: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in messages]


def are_counted(messages: list[Any], written: int) -> bool:
    """Return True if the last count of each key and minute is right; the key of a record is the name and the start."""
    times = ((number % KEYS, (FIRST_MS + STEP_MS * number) // MINUTE_MS * MINUTE_MS) for number in range(written))
    expected = {b"k%d" % key + start.to_bytes(8, "big"): count for (key, start), count in Counter(times).items()}
    return {message.key(): json.loads(message.value())["count"] for message in messages} == expected


def are_looked_up(messages: list[Any], written: int) -> bool:
    """Return True if every row was joined with the row of its key, and the last row of each key was written last."""
    last = {row["city_value"]: row["value"] for row in rows_of(messages)}
    expected = {f"c{number % KEYS}": f"v{number}" for number in range(written)}
    return last == expected and {row["value"] for row in rows_of(messages)} == {f"v{each}" for each in range(written)}


def are_joined(messages: list[Any], written: int) -> bool:
    last = {message.key().decode(): json.loads(message.value()) for message in messages}
    return last == {
        f"k{number % KEYS}": {"value": f"v{number}", "name_value": f"n{number % KEYS} after {written}"}
        for number in range(written)
    }


def are_all_there(messages: list[Any], written: int) -> bool:
    return {row["value"] for row in rows_of(messages)} == {f"v{number}" for number in range(written)}


EXPECTED: dict[str, Callable[[list[Any], int], bool]] = {
    "counted": are_counted, "looked-up": are_looked_up, "tables": are_joined, "firsts": are_all_there,
}  # fmt: skip
