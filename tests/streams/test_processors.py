"""Processors with state and timers, sliding windows, foreign-key joins and distinct rows, on a real Spark."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pessoa.streams import App, Context, PlanRefused, Record, sliding
from pessoa.testing import Broker
from tests.streams.test_running import consume, latest, produce

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@dataclass
class Sale:
    produto: str
    valor: float


@dataclass
class Jump:
    de: float
    para: float


def at(second: float, key: Any, value: Any) -> Record:
    return Record(key, value, START + datetime.timedelta(seconds=second))


class Jumps:
    """A processor that emits a jump for each sale that is more than twice the one before it."""

    def process(self, context: Context, key: str, sale: Sale | None) -> Iterator[Jump]:
        if sale is None:
            context.state.clear()
            return
        if sale.valor < 0:
            context.state["last"] = 1e9
            raise ValueError("a negative sale")
        last = context.state.get("last")
        if last is not None and sale.valor > 2 * last:
            yield Jump(last, sale.valor)
        context.state["last"] = sale.valor


class Silence:
    """A processor that emits the key when it had no row for a second."""

    def process(self, context: Context, key: str, value: dict[str, Any]) -> Iterator[str]:
        if "timer" in context.state:
            context.cancel_timer(datetime.datetime.fromisoformat(context.state["timer"]))
        due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
        context.state["timer"] = context.set_timer(due).isoformat()
        return iter(())

    def timer(self, context: Context, key: str, time: datetime.datetime) -> Iterator[str]:
        del context.state["timer"]
        yield f"{key} is silent"


def test_a_processor_gets_rows_in_order_with_state_by_key_and_its_exceptions_make_bad_records(spark: Any) -> None:
    app = App("loja", on_error="dead-letter")
    app.stream("vendas", value=Sale).process(Jumps()).filter("para < 1000").to("saltos")
    given = [
        at(3, "ana", Sale("x", 30)), at(0, "ana", Sale("x", 10)), at(1, "rui", Sale("x", 1)),
        at(2, "ana", Sale("x", -5)), at(4, "ana", None), at(5, "ana", Sale("x", 90)), at(6, "rui", Sale("x", 3)),
    ]  # fmt: skip
    out = app.test({"vendas": given}, spark=spark)
    assert [(record.key, record.value) for record in out["saltos"]] == [
        ("ana", {"de": 10.0, "para": 30.0}), ("rui", {"de": 1.0, "para": 3.0}),
    ]  # fmt: skip
    (letter,) = out["loja-dead-letters"]
    message = letter.headers["__streams.errors.message"]
    assert message is not None
    assert message.startswith(b'ValueError: a negative sale, for {"produto": "x", "valor": -5.0}')


def test_a_processing_time_timer_calls_the_processor_when_it_is_due(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex[:8]}"
    app = App(name, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home")
    app.stream(f"{name}-in", value="valor DOUBLE").process(Silence(), returns=str, timers="processing").to(
        f"{name}-out"
    )
    produce(broker, f"{name}-in", ("ana", {"valor": 1}), ("ana", {"valor": 2}), ("rui", {"valor": 2}))
    with app.start() as running:
        found = consume(broker, [f"{name}-out"], lambda records: len(records) == 2, running.check)
    assert sorted(record.value() or b"" for record in found) == [b"ana is silent", b"rui is silent"]


class QuietMinutes:
    """A processor that counts the rows of a key, and emits the count when event time is a minute past the last row."""

    def process(self, context: Context, key: str, value: dict[str, Any]) -> Iterator[str]:
        if "due" in context.state:
            context.cancel_timer(datetime.datetime.fromisoformat(context.state["due"]))
        context.state["rows"] = context.state.get("rows", 0) + 1
        context.state["due"] = context.set_timer(datetime.timedelta(minutes=1)).isoformat()
        yield f"{key} has {context.state['rows']}"

    def timer(self, context: Context, key: str, time: datetime.datetime) -> Iterator[str]:
        rows = context.state["rows"]
        context.state.clear()
        yield f"{key} had {rows} until {time.timestamp():.0f}"


def test_event_time_timers_and_the_state_of_a_processor_survive_a_restart_of_the_app(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex[:8]}"
    # Two hours ago: a processing-time timer would be due at once, but retention still keeps the records.
    first_s = int(time.time()) // 60 * 60 - 7200
    told: list[str] = []

    def make_app() -> App:
        app = App(name, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home", delivery="exactly-once")
        rows = app.stream(f"{name}-in", value="valor DOUBLE")
        rows.process(QuietMinutes(), returns=str, timers="event", grace="10 s").to(f"{name}-out")
        return app

    def send(second: int, *keys: str) -> None:
        rows = [(key, {"valor": 1}) for key in keys]
        produce(broker, f"{name}-in", *rows, timestamp_ms=(first_s + second) * 1000)

    def wait_for(*expected: str) -> None:
        told.extend(expected)

        def has_come(records: list[Any]) -> bool:
            return len(records) >= len(told)

        found = consume(broker, [f"{name}-out"], has_come, running.check)
        assert sorted((record.value() or b"").decode() for record in found) == sorted(told)

    send(0, "ana", "rui")
    send(30, "ana")
    with make_app().start() as running:
        wait_for("ana has 1", "rui has 1", "ana has 2")
    # Sent while no app runs. The timer of rui becomes due; ana moves its timer once more, and its count continues.
    send(75, "eva")
    send(80, "ana")
    with make_app().start() as running:
        wait_for("eva has 1", "ana has 3", f"rui had 1 until {first_s + 60}")
        # A key whose timer has fired starts with empty state.
        send(300, "ivo")
        send(301, "rui")
        wait_for("ivo has 1", "rui has 1", f"ana had 3 until {first_s + 140}", f"eva had 1 until {first_s + 135}")


def test_sliding_windows_begin_and_end_at_the_times_of_rows(spark: Any) -> None:
    app = App("loja")
    windows = app.stream("vendas", value=Sale).group_by_key().window(sliding("10 s", grace="1 min"))
    windows.aggregate(vezes="count(*)", total="sum(valor * 2)", maior="max(valor)").to("deslizantes")
    given = [at(20, "ana", Sale("x", 1)), at(25, "ana", Sale("x", 3)), at(40, "ana", Sale("x", 5))]
    out = app.test({"vendas": given}, spark=spark)
    last = {record.window_start: record.value for record in out["deslizantes"]}
    assert {
        (start - START).total_seconds(): (value["vezes"], value["total"], value["maior"])
        for start, value in last.items()
        if start is not None
    } == {
        10.0: (1, 2.0, 1.0),      # [10, 20]: only the first row
        15.0: (2, 8.0, 3.0),      # [15, 25]
        20.001: (1, 6.0, 3.0),    # after the first row
        30.0: (1, 10.0, 5.0),     # [30, 40]
    }  # fmt: skip


def test_tables_are_joined_by_a_foreign_key_and_follow_changes_of_both(spark: Any) -> None:
    app = App("loja")
    orders = app.table("pedidos", value={"cliente": str, "valor": float})
    clients = app.table("clientes", value={"nome": str})
    orders.join(clients, foreign_key="cliente").to("com-nome")
    orders.left_join(clients, foreign_key="cliente", prefix="c_").to("com-ou-sem")
    given = {
        "clientes": [at(0, "a", {"nome": "Ana"}), at(6, "b", {"nome": "Bia"}), at(8, "a", None)],
        "pedidos": [
            at(1, "1", {"cliente": "a", "valor": 10}), at(2, "2", {"cliente": "b", "valor": 20}),
            at(3, "3", {"cliente": "a", "valor": 30}), at(4, "3", {"cliente": "b", "valor": 31}),
            at(5, "4", {"cliente": "b", "valor": 40}), at(7, "4", None),
        ],
    }  # fmt: skip
    out = app.test(given, spark=spark)
    assert {record.key: record.value for record in out["com-nome"]} == {
        "1": None,
        "2": {"cliente": "b", "valor": 20.0, "nome": "Bia"},
        "3": {"cliente": "b", "valor": 31.0, "nome": "Bia"},
        "4": None,
    }
    assert {record.key: record.value and record.value.get("c_nome") for record in out["com-ou-sem"]} == {
        "1": None, "2": "Bia", "3": "Bia", "4": None,
    }  # fmt: skip
    assert next(record.value for record in reversed(out["com-ou-sem"]) if record.key == "1")["valor"] == 10.0


def test_a_running_foreign_key_join_follows_changes_of_both_tables(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex[:8]}"
    app = App(name, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home")
    orders = app.table(f"{name}-pedidos", value="cliente STRING, valor DOUBLE")
    clients = app.table(f"{name}-clientes", value="nome STRING")
    orders.join(clients, foreign_key="cliente").to(f"{name}-out")

    def are(**names: str | None) -> Any:
        wanted = {(f"{name}-out", key.encode()): value for key, value in names.items()}

        def hold(records: list[Any]) -> bool:
            found = latest(records)
            return all((found[key] or {}).get("nome") == value for key, value in wanted.items() if key in found) and (
                wanted.keys() <= found.keys()
            )

        return hold

    clientes, pedidos = f"{name}-clientes", f"{name}-pedidos"
    produce(broker, clientes, *((key, {"nome": nome}) for key, nome in (("a", "Ana"), ("b", "Bia"), ("c", "Caio"))))
    produce(
        broker, pedidos, *((f"p{number}", {"cliente": key, "valor": number}) for number, key in enumerate("aac", 1))
    )
    with app.start() as running:
        assert len(running.status()) == 3
        consume(broker, [f"{name}-out"], are(p1="Ana", p2="Ana", p3="Caio"), running.check)
        # One client is changed and one deleted; one order refers to another client.
        produce(broker, clientes, ("a", {"nome": "Anabela"}), ("c", None))
        produce(broker, pedidos, ("p2", {"cliente": "b", "valor": 2}))
        consume(broker, [f"{name}-out"], are(p1="Anabela", p2="Bia", p3=None), running.check)


def test_distinct_passes_the_first_of_equal_rows(spark: Any) -> None:
    app = App("loja")
    app.stream("vendas", value=Sale).distinct("produto").to("primeiras")
    given = [("ana", Sale("x", 1)), ("rui", Sale("x", 2)), ("rui", Sale("y", 3))]
    out = app.test({"vendas": given}, spark=spark)
    assert sorted(record.value["produto"] for record in out["primeiras"]) == ["x", "y"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda sales: sales.process(object(), returns=str), "an object with a method process(context, key, value)"),
        (lambda sales: sales.process(Jumps(), timers="cuckoo"), "timers are none, processing, event, not 'cuckoo'"),
        (
            lambda sales: sales.group_by_key().count().join(sales, foreign_key="count"),
            "a foreign key joins two tables",
        ),
        (
            lambda sales: (
                sales.group_by_key().count().join(sales.group_by_key().count(), foreign_key="key", how="outer")
            ),
            "is inner or left",
        ),
        (
            lambda sales: sales.group_by_key().window(sliding("1 s")).aggregate(x="first(valor)"),
            "first(valor) cannot be had in sliding windows",
        ),
    ],
)
def test_an_invalid_processor_timer_foreign_key_or_sliding_aggregate_is_refused_with_the_reason(
    wrong: Any, sentence: str
) -> None:
    with pytest.raises(PlanRefused) as refused:
        wrong(App("loja").stream("vendas", value=Sale))
    assert sentence in str(refused.value)
