"""Spark, the engine and the broker are killed in the middle of a windowed count in real-time mode.

Delivery is at least once: a batch that had not ended is repeated, and its updates come again. What must hold is that
the last update of every key and minute is that of a run in which nothing happened.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pessoa.pipelines.plan import Aggregate, Column, Format, Sink, Source, Window, to_json
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
COUNT = Sink(
    Aggregate(
        Source("input", value=Format("bytes")),
        (Column("count", "count(*)"),),
        Window("tumbling", MINUTE_MS, grace_ms=DAY_MS),
    ),
    "counted",
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Broker, ServiceProcess]]:
    with Broker() as broker:
        for topic in ("input", "counted"):
            # The records are of a fixed time, which is long ago.
            make_topic(broker.bootstrap_servers, topic, retention_ms="-1")
        engine = engine_process(broker.bootstrap_servers, tmp_path / "home")
        try:
            engine.start()
            yield broker, engine
        finally:
            engine.stop()


def test_the_last_update_of_every_window_is_right_after_spark_the_engine_and_the_broker_were_killed(
    world: tuple[Broker, ServiceProcess],
) -> None:
    broker, engine = world
    servers = broker.bootstrap_servers
    written = 0

    def feed() -> None:
        nonlocal written
        numbers = range(written, written + ROUND)
        rows = ((b"k%d" % (number % KEYS), b"v%d" % number) for number in numbers)
        written += fill(servers, "input", rows, [FIRST_MS + STEP_MS * number for number in numbers])

    def wait_for_counts() -> None:
        eventually(
            lambda: last_updates(servers) == expected_updates(written),
            PATIENCE_S,
            pause_s=0.5,
            about=lambda: engine.ask("GET", "/queries"),
        )

    feed()
    plan = msgspec.json.decode(to_json(COUNT))
    # Batches of five seconds, so that the kills fall into several of them.
    query = engine.ask("POST", "/queries", {"id": "count", "plan": plan, "trigger_ms": 5000, "max_restarts": 50})
    assert (query["speed"], query["delivery"]) == ("real-time", "at-least-once")
    wait_for_counts()
    feed()
    kill_spark(engine, "count")
    wait_for_counts()
    feed()
    kill_engine(engine)
    engine.start()
    feed()
    wait_for_counts()
    broker.kill()
    broker.start()
    feed()
    wait_for_counts()


def last_updates(servers: str) -> dict[bytes, int]:
    """The last count of each key and minute, by the key of its records: the name and the start of the window."""
    return {message.key(): json.loads(message.value())["count"] for message in read_all(servers, "counted")}


def expected_updates(written: int) -> dict[bytes, int]:
    times = ((number % KEYS, (FIRST_MS + STEP_MS * number) // MINUTE_MS * MINUTE_MS) for number in range(written))
    return {b"k%d" % key + start_ms.to_bytes(8, "big"): count for (key, start_ms), count in Counter(times).items()}
