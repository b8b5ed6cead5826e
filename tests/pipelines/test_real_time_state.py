"""Queries with state in real-time mode: hopping windows, distinct rows, joins of a stream or a table with a table."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pessoa.pipelines.engine import Engine
from pessoa.pipelines.plan import (
    Aggregate,
    Column,
    Distinct,
    Filter,
    Format,
    How,
    Join,
    Node,
    PlanRefused,
    Sink,
    Source,
    Union,
    Window,
)
from pessoa.pipelines.queries import QuerySpec
from pessoa.testing import Broker
from tests.support.topics import eventually, fill, make_topic, read_all

DEADLINE_S = 90.0


class World:
    """An engine on the shared Spark, and topics whose names no other test uses."""

    def __init__(self, engine: Engine, servers: str) -> None:
        self.engine = engine
        self.servers = servers
        self._prefix = uuid4().hex[:8]

    def topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def make(self, *names: str) -> None:
        for name in names:
            make_topic(self.servers, self.topic(name))

    def send(self, name: str, *records: tuple[bytes, bytes | None], times_ms: Sequence[int] = ()) -> None:
        fill(self.servers, self.topic(name), records, times_ms)

    def start(self, query_id: str, plan: Node) -> None:
        query = self.engine.start(QuerySpec(query_id, plan=Sink(plan, self.topic("out")), trigger_ms=5000))
        assert query.status().speed == "real-time"

    def read(self) -> list[tuple[bytes, Any]]:
        found = read_all(self.servers, self.topic("out"))
        return [(message.key(), json.loads(message.value()) if message.value() else None) for message in found]

    def wait_for_ids(self, expected: set[int]) -> None:
        eventually(lambda: {row["id"] for _, row in self.read()} == expected, DEADLINE_S, about=self.about)

    def wait_for(self, *expected: tuple[bytes, Any]) -> None:
        eventually(lambda: sorted(self.read()) == sorted(expected), DEADLINE_S, about=self.about)

    def about(self) -> object:
        return self.read(), self.engine.queries()

    def wait_for_last(self, expected: dict[bytes, object]) -> None:
        """Wait until the last value of each key is the expected one."""
        eventually(lambda: dict(self.read()) == expected, DEADLINE_S, about=self.about)


@pytest.fixture
def world(broker: Broker, spark_address: str, tmp_path: Path) -> Iterator[World]:
    with Engine(broker.bootstrap_servers, home=tmp_path, spark_remote=spark_address, state_topic=None) as engine:
        yield World(engine, broker.bootstrap_servers)


def sales(world: World, name: str = "sales") -> Source:
    return Source(world.topic(name), value=Format("json", "id BIGINT, valor DOUBLE"))


def clients(world: World) -> Source:
    return Source(world.topic("clients"), value=Format("json", "nome STRING"), is_table=True)


def sale(key: str, number: int) -> tuple[bytes, bytes]:
    return key.encode(), json.dumps({"id": number, "valor": number / 2}).encode()


def sold(key: str, number: int, nome: str | None) -> tuple[bytes, Any]:
    return key.encode(), {"id": number, "valor": number / 2, "nome": nome}


# A window of 50 seconds begins every 20 seconds, so a row is in two or three windows.
SIZE_MS, ADVANCE_MS = 50_000, 20_000


def hopping_counts(rows: Sequence[tuple[str, int, int]]) -> dict[bytes, list[tuple[int, float]]]:
    """Return the expected updates: the count and sum of each key and window after each row (key, number, time)."""
    found: dict[bytes, list[tuple[int, float]]] = {}
    for key, number, time_ms in rows:
        start_ms = time_ms // ADVANCE_MS * ADVANCE_MS
        while start_ms + SIZE_MS > time_ms:
            updates = found.setdefault(key.encode() + start_ms.to_bytes(8, "big"), [])
            count, total = updates[-1] if updates else (0, 0.0)
            updates.append((count + 1, total + number / 2))
            start_ms -= ADVANCE_MS
    return found


def test_every_row_updates_each_of_its_hopping_windows_in_real_time_also_after_a_restart(world: World) -> None:
    world.make("sales", "out")
    chance = random.Random(18)
    # An hour ago, so that retention keeps the records; they are not in the order of their times.
    first_ms = (int(time.time()) - 3600) * 1000
    rows = [(chance.choice(("ana", "rui")), each, first_ms + chance.randrange(180_000)) for each in range(40)]
    window = Window("hopping", SIZE_MS, ADVANCE_MS, grace_ms=86_400_000)
    columns = (Column("vezes", "count(*)"), Column("total", "sum(valor)"))

    def send(some: Sequence[tuple[str, int, int]]) -> None:
        world.send("sales", *(sale(key, number) for key, number, _ in some), times_ms=[when for *_, when in some])

    def updates() -> dict[bytes, list[tuple[int, float]]]:
        found: dict[bytes, list[tuple[int, float]]] = {}
        for key, row in world.read():
            found.setdefault(key, []).append((row["vezes"], row["total"]))
        return found

    send(rows[:20])
    world.start("hopping", Aggregate(sales(world), columns, window))
    # Each row has exactly one update in each of its windows.
    eventually(lambda: updates() == hopping_counts(rows[:20]), DEADLINE_S, about=world.about)
    # A resumed query continues from the state of the last batch that has ended.
    eventually(lambda: world.engine.query("hopping").progress.batch_id >= 0, DEADLINE_S, about=world.about)
    world.engine.pause("hopping")
    world.engine.resume("hopping")
    send(rows[20:])
    last = {key: each[-1] for key, each in hopping_counts(rows).items()}
    eventually(lambda: {key: each[-1] for key, each in updates().items()} == last, DEADLINE_S, about=world.about)


def test_distinct_drops_repeated_rows_in_real_time_also_after_a_restart(world: World) -> None:
    world.make("sales", "more-sales", "out")
    world.send("sales", sale("ana", 1), sale("ana", 1), sale("rui", 1), sale("ana", 2))
    world.start("first", Distinct(Union((sales(world), sales(world, "more-sales"))), ("id",)))
    world.wait_for_ids({1, 2})
    assert len(world.read()) == 2
    # The state of a batch that has not ended is lost on a pause, and its rows are read again.
    eventually(lambda: world.engine.query("first").progress.batch_id >= 0, DEADLINE_S, about=world.about)
    world.engine.pause("first")
    world.engine.resume("first")
    world.send("more-sales", sale("eva", 2), sale("eva", 3))
    world.wait_for_ids({1, 2, 3})
    assert {key for key, row in world.read() if row == {"id": 2, "valor": 1.0}} == {b"ana"}


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_is_joined_with_the_latest_row_of_a_table_in_real_time(world: World, how: How) -> None:
    world.make("sales", "clients", "out")
    # The sale is older than the rows of its buyer in the table, but the query reads the table first.
    world.send("sales", sale("ana", 1), sale("rui", 2))
    world.send("clients", (b"ana", b'{"nome": "A."}'), (b"ana", b'{"nome": "Ana"}'))
    world.start("lookup", Join(sales(world), clients(world), how, lookup="latest"))
    met = [sold("ana", 1, "Ana")] + ([sold("rui", 2, None)] if how == "left" else [])
    world.wait_for(*met)
    world.send("clients", (b"ana", b'{"nome": "Ana Maria"}'), (b"rui", b'{"nome": "Rui"}'))
    world.engine.pause("lookup")
    world.engine.resume("lookup")
    world.send("sales", sale("rui", 3), sale("ana", 4))
    now = {b"rui": sold("rui", 3, "Rui")[1], b"ana": sold("ana", 4, "Ana Maria")[1]}
    world.wait_for_last(now)
    world.send("clients", (b"ana", None))
    if how == "left":
        # A deletion emits no row of its own: wait until a sale no longer finds the deleted row.
        number = 4

        def ana_is_gone() -> bool:
            nonlocal number
            number += 1
            world.send("sales", sale("ana", number))
            return any(row["nome"] is None for key, row in world.read() if key == b"ana")

        eventually(ana_is_gone, DEADLINE_S, pause_s=0.5, about=world.read)


def test_two_tables_are_joined_in_real_time_and_a_deletion_emits_a_tombstone(world: World) -> None:
    world.make("sales", "clients", "out")
    left = Source(world.topic("sales"), value=Format("json", "id BIGINT, valor DOUBLE"), is_table=True)
    world.start("tables", Join(left, clients(world)))
    world.send("sales", sale("ana", 1), sale("rui", 2), sale("ana", 3))
    world.send("clients", (b"ana", b'{"nome": "Ana"}'), (b"rui", b'{"nome": "Rui"}'), (b"rui", b'{"nome": "R."}'))
    world.wait_for_last({b"ana": sold("ana", 3, "Ana")[1], b"rui": sold("rui", 2, "R.")[1]})
    world.send("clients", (b"ana", None))
    world.wait_for_last({b"ana": None, b"rui": sold("rui", 2, "R.")[1]})
    world.send("clients", (b"ana", b'{"nome": "Ana"}'))
    world.wait_for_last({b"ana": sold("ana", 3, "Ana")[1], b"rui": sold("rui", 2, "R.")[1]})


def test_a_plan_that_spark_refuses_at_start_is_refused_with_its_step_and_known_columns(world: World) -> None:
    world.make("sales", "out")
    with pytest.raises(PlanRefused, match=r"filter valr > 10: there is no column valr; there are .*valor"):
        world.start("wrong", Filter(sales(world), "valr > 10"))
    assert world.engine.queries() == []
