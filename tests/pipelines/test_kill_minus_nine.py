"""Kill Spark, the engine and the broker during exactly-once queries: a copy, a windowed count, joins and a distinct.

The output must be that of a run without faults: every record copied once; for every key and minute counts that only
grow, up to the true number; every row joined once (two streams; a stream with a table); one of several equal rows.
`make pipelines-chaos` does more rounds.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pessoa.pipelines.plan import Distinct, Join, Node, Sink, Source, Within, to_json
from pessoa.testing import Broker
from tests.support.service_process import ServiceProcess, engine_process, is_alive
from tests.support.topics import eventually, fill, make_topic, read_all

FLOWS = Path(__file__).with_name("flows.py")
# A round is two batches of the flows' size, so that a kill falls between two batches.
ROUND = 1000
# Records are 97 ms apart in event time, so that a run covers some minutes.
FIRST_MS = 1_700_000_000_000
STEP_MS = 97
KEYS = 7
PATIENCE_S = 600.0
ROUNDS = int(os.environ.get("PESSOA_PIPELINES_ROUNDS", "1"))
SMALL_BATCHES = {"maxOffsetsPerTrigger": "500"}
INPUT = Source("input", options=SMALL_BATCHES)
# Each plan writes one row for each number to the topic of its name.
PLANS: dict[str, Node] = {
    "paired": Join(
        INPUT, Source("twins", options=SMALL_BATCHES), within=Within(0, 0, 86_400_000), right_prefix="twin_"
    ),
    "looked-up": Join(INPUT, Source("cities", is_table=True), right_prefix="city_"),
    "firsts": Distinct(Source("repeated", options=SMALL_BATCHES), ("value",)),
}

ROWS: dict[str, Callable[[int], dict[str, str]]] = {
    "paired": lambda number: {"value": f"v{number}", "twin_value": f"v{number}"},
    "looked-up": lambda number: {"value": f"v{number}", "city_value": f"c{number % KEYS}"},
    "firsts": lambda number: {"value": f"v{number}"},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Broker, ServiceProcess]]:
    with Broker() as broker:
        for topic in ("input", "twins", "repeated", "cities", "copied", "counted", *PLANS):
            # The records have old timestamps, so retention is switched off.
            make_topic(broker.bootstrap_servers, topic, retention_ms="-1")
        engine = engine_process(broker.bootstrap_servers, tmp_path / "home")
        try:
            engine.start()
            yield broker, engine
        finally:
            engine.stop()


def test_exactly_once_queries_lose_and_double_nothing_when_spark_engine_and_broker_are_killed(
    world: tuple[Broker, ServiceProcess],
) -> None:
    broker, engine = world
    servers = broker.bootstrap_servers
    written = 0

    def feed() -> None:
        nonlocal written
        # The topic `repeated` gets half of the previous rows again.
        for topic, first in (("repeated", max(0, written - ROUND // 2)), ("twins", written), ("input", written)):
            numbers = range(first, written + ROUND)
            rows = ((b"k%d" % (number % KEYS), b"v%d" % number) for number in numbers)
            fill(servers, topic, rows, [FIRST_MS + STEP_MS * number for number in numbers])
        written += ROUND

    def copied() -> int:
        return len(read_all(servers, "copied"))

    def wait_for(look: Callable[[], bool]) -> None:
        # Each check reads the whole topic, on the cores that Spark needs too.
        eventually(look, PATIENCE_S, pause_s=0.5, about=lambda: engine.ask("GET", "/queries"))

    def wait_for_more_than(count: int) -> None:
        wait_for(lambda: copied() > count)

    fill(servers, "cities", ((b"k%d" % key, b"c%d" % key) for key in range(KEYS)), [FIRST_MS - 1] * KEYS)
    feed()
    for name, plan in PLANS.items():
        body = {"plan": msgspec.json.decode(to_json(Sink(plan, name))), "delivery": "exactly-once", "slots": 2}
        engine.ask("POST", "/queries", {"id": name, **body, "max_restarts": 50})
    for name, function, topic, mode in (
        ("copy", "copy", "copied", "append"),
        ("count", "windowed_count", "counted", "update"),
    ):
        engine.ask(
            "POST",
            "/queries",
            {"id": name, "start_function": f"{FLOWS}:{function}", "topic": topic, "delivery": "exactly-once",
             "slots": 2, "output_mode": mode, "max_restarts": 50},
        )  # fmt: skip

    for _ in range(ROUNDS):
        wait_for_more_than(written - ROUND)
        feed()
        kill_spark(engine)
        wait_for_more_than(written - ROUND)
        feed()
        kill_engine(engine)
        engine.start()
        wait_for_more_than(written - ROUND)
        broker.kill()
        broker.start()
        feed()

    wait_for(lambda: copied() >= written)
    assert sorted(message.value() for message in read_all(servers, "copied")) == sorted(
        b"v%d" % number for number in range(written)
    )
    wait_for(lambda: counts(servers) == expected_counts(written))
    for name, row in ROWS.items():
        wait_for(lambda name=name: len(read_all(servers, name)) >= written)  # type: ignore[misc]
        assert sorted(message.value().decode() for message in read_all(servers, name)) == sorted(
            json.dumps(row(number), separators=(",", ":")) for number in range(written)
        )


def kill_spark(engine: ServiceProcess, query: str = "copy") -> None:
    spark = eventually(lambda: engine.spark_pid() or 0)
    os.kill(spark, signal.SIGKILL)
    eventually(
        lambda: engine.spark_pid() != spark and engine.ask("GET", f"/queries/{query}")["restarts"] > 0, PATIENCE_S
    )


def kill_engine(engine: ServiceProcess) -> None:
    spark = eventually(lambda: engine.spark_pid() or 0)
    engine.kill()
    eventually(lambda: not is_alive(spark), about="Spark outlived its engine")


def expected_counts(written: int) -> Counter[str]:
    minute = 60_000
    return Counter(f"k{number % KEYS} {(FIRST_MS + STEP_MS * number) // minute * 60}" for number in range(written))


def counts(servers: str) -> Counter[str]:
    """Return the last count of every key and minute, and assert that counts only grow.

    Counts of one key are in one partition, in the order of the batches.
    """
    found: Counter[str] = Counter()
    for message in read_all(servers, "counted"):
        start, _, count = message.value().decode().partition("=")
        place = f"{message.key().decode()} {start}"
        assert int(count) > found[place], f"{place} was counted to {found[place]}, and then to {count}"
        found[place] = int(count)
    return found
