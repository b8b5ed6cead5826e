"""Steps of Kafka Streams that SQL lacks: branch, peek, foreach, cogroup, suppress, through, joins by a column."""

from __future__ import annotations

import datetime
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from pessoa.streams import App, PlanRefused, Record, sliding, tumbling
from pessoa.testing import Broker
from tests.streams.test_running import consume, latest, produce

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@dataclass
class Sale:
    produto: str
    valor: float


SALES = [("ana", Sale("faca", 12)), ("rui", Sale("copo", 3.5)), ("ana", Sale("prato", 7))]


def names(records: list[Record]) -> list[str]:
    return [record.value["produto"] for record in records]


def at(second: float, key: Any, value: Any) -> Record:
    return Record(key, value, START + datetime.timedelta(seconds=second))


def test_each_row_takes_the_first_branch_whose_condition_holds(spark: Any) -> None:
    app = App("loja")
    sales = app.stream("vendas", value=Sale)
    dear, cheap = sales.branch("valor > 10", "valor > 5")
    dear.to("caras")
    cheap.to("medias")
    for name, stream in sales.split(por_ana="key = 'ana'", de_copos="produto = 'copo'", rest="outras").items():
        stream.to(name)
    parts = sales.split(rest="resto", dez=lambda sale: sale.valor > 10, cinco=lambda sale: sale.valor > 5)
    parts["cinco"].merge(parts["resto"]).to("sem-dez")
    out = app.test({"vendas": [*SALES, ("eva", Sale("mesa", 1))]}, spark=spark)
    assert names(out["caras"]) == ["faca"]
    assert names(out["medias"]) == ["prato"]
    assert (names(out["por_ana"]), names(out["de_copos"]), names(out["outras"])) == (
        ["faca", "prato"],
        ["copo"],
        ["mesa"],
    )
    assert sorted(names(out["sem-dez"])) == ["copo", "mesa", "prato"]


def test_peek_calls_a_function_and_passes_rows_unchanged_and_foreach_writes_no_rows(spark: Any, tmp_path: Path) -> None:
    app = App("loja", on_error="dead-letter")
    sales = app.stream("vendas", value=Sale)
    seen, ended = tmp_path / "seen", tmp_path / "ended"

    def look(key: str, sale: Sale) -> None:
        with seen.open("a") as file:
            file.write(f"{key} {sale.produto}\n")

    def end(sale: Sale) -> None:
        if sale.valor < 5:
            raise ValueError("too cheap")
        with ended.open("a") as file:
            file.write(f"{sale.produto}\n")

    sales.peek(look).to("iguais")
    sales.foreach(end)
    out = app.test({"vendas": [*SALES, ("eva", None)]}, spark=spark)
    assert [(record.key, record.value and record.value["produto"]) for record in out["iguais"]] == [
        ("ana", "faca"), ("rui", "copo"), ("ana", "prato"), ("eva", None),
    ]  # fmt: skip
    assert sorted(seen.read_text().split("\n")) == ["", "ana faca", "ana prato", "rui copo"]
    assert sorted(ended.read_text().split()) == ["faca", "prato"]
    (letter,) = out["loja-dead-letters"]
    assert letter.headers["__streams.errors.message"] == b"ValueError: too cheap"
    assert set(out) == {"iguais", "loja-dead-letters"}
    assert "\nloja-end\n" in app.explain()


def test_branch_split_merge_peek_and_foreach_run_on_a_broker(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex[:8]}"
    seen, ended = tmp_path / "seen", tmp_path / "ended"

    def look(key: str, sale: Sale) -> None:
        with seen.open("a") as file:
            file.write(f"{key} {sale.produto}\n")

    def end(sale: Sale) -> None:
        if sale.valor < 1:
            raise ValueError("too cheap")
        with ended.open("a") as file:
            file.write(f"{sale.produto}\n")

    app = App(name, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home", on_error="dead-letter")
    sales = app.stream(f"{name}-vendas", value=Sale)
    dear, middling = sales.branch("valor > 10", "valor > 5")
    dear.to(f"{name}-caras")
    # A branch by a Python function, merged with two other streams and passed to peek.
    parts = sales.split(rest="resto", dez=lambda sale: sale.valor > 10)
    parts["resto"].merge(middling, app.stream(f"{name}-feira", value=Sale)).peek(look).to(f"{name}-todas")
    sales.foreach(end)
    rows = [*SALES, ("eva", Sale("mesa", 0.5))]
    produce(broker, f"{name}-feira", ("ivo", {"produto": "banco", "valor": 20}))
    produce(broker, f"{name}-vendas", *((key, asdict(sale)) for key, sale in rows))
    outputs = [f"{name}-{each}" for each in ("caras", "todas", "dead-letters")]

    def have_all_come(records: list[Any]) -> bool:
        return len(records) == 7 and ended.exists() and len(ended.read_text().split()) == 3

    with app.start() as running:
        found = consume(broker, outputs, have_all_come, running.check)
        assert f"{name}-end" in {query.id for query in running.status()}
    values: dict[str | None, list[tuple[Any, Any]]] = {}
    for record in found:
        values.setdefault(record.topic(), []).append((record.key(), record.value()))
    caras, todas, letters = (values[each] for each in outputs)
    assert [(key, json.loads(value)) for key, value in caras] == [(b"ana", {"produto": "faca", "valor": 12.0})]
    # The plate (prato) is in both of the merged branches.
    assert sorted((key, json.loads(value)["produto"]) for key, value in todas) == [
        (b"ana", "prato"), (b"ana", "prato"), (b"eva", "mesa"), (b"ivo", "banco"), (b"rui", "copo"),
    ]  # fmt: skip
    assert sorted(seen.read_text().splitlines()) == ["ana prato", "ana prato", "eva mesa", "ivo banco", "rui copo"]
    assert sorted(ended.read_text().split()) == ["copo", "faca", "prato"]
    assert [json.loads(value)["produto"] for _, value in letters] == ["mesa"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    # A query that ends in foreach writes no topic.
    assert {topic for topic in admin.list_topics(timeout=20).topics if topic.startswith(name)} == {
        *outputs, f"{name}-vendas", f"{name}-feira",
    }  # fmt: skip


def test_cogroup_aggregates_the_groups_of_two_streams_together(spark: Any) -> None:
    app = App("loja")
    sales = app.stream("vendas", value=Sale).group_by_key()
    returned = app.stream("devolucoes", value={"valor": float, "motivo": str}).group_by_key()
    both = sales.cogroup("v", d=returned)
    both.aggregate(saldo="coalesce(sum(v.valor), 0) - coalesce(sum(d.valor), 0)", vezes="count(d)").to("saldos")
    out = app.test(
        {"vendas": SALES, "devolucoes": [("ana", {"valor": 2, "motivo": "x"}), ("eva", {"valor": 1}), ("ana", None)]},
        spark=spark,
    )
    assert {record.key: record.value for record in out["saldos"]} == {
        "ana": {"saldo": 17.0, "vezes": 1},
        "rui": {"saldo": 3.5, "vezes": 0},
        "eva": {"saldo": -1.0, "vezes": 1},
    }


def test_a_stream_is_joined_with_a_table_by_a_column_and_keeps_its_key(spark: Any) -> None:
    app = App("loja")
    products = app.global_table("produtos", value={"preco": float})
    sales = app.stream("vendas", value=Sale)
    sales.join(products, on="produto").to("com-preco")
    sales.left_join(products, on="upper(produto)", prefix="p_").to("sem-preco")
    out = app.test({"produtos": [("faca", {"preco": 9}), ("prato", {"preco": 5})], "vendas": SALES}, spark=spark)
    assert [(record.key, record.value) for record in out["com-preco"]] == [
        ("ana", {"produto": "faca", "valor": 12.0, "preco": 9.0}),
        ("ana", {"produto": "prato", "valor": 7.0, "preco": 5.0}),
    ]
    assert [record.value.get("p_preco") for record in out["sem-preco"]] == [None] * 3


def test_suppress_emits_only_the_final_result_of_each_window(spark: Any) -> None:
    app = App("loja")
    counted = app.stream("vendas", value=Sale).group_by_key().window(tumbling("1 min", grace="10 s")).count()
    counted.suppress().to("finais")
    out = app.test({"vendas": [at(0, *SALES[0]), at(30, *SALES[0]), at(70, *SALES[0])]}, spark=spark)
    assert [record.value["count"] for record in out["finais"]] == [2, 1]
    assert "runs in micro-batches: it says final results only" in app.explain()


def test_through_and_repartition_pass_rows_through_topics_into_separate_queries(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex[:8]}"
    app = App(name, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home")
    sales = app.stream(f"{name}-vendas", value=Sale)
    middle_rows = sales.select_key("produto").through(f"{name}-meio", partitions=3)
    middle_rows.repartition(2).group_by_key().sum("valor").to(f"{name}-somas")
    minute_ms = (int(time.time()) // 60 - 60) * 60_000
    produce(
        broker, f"{name}-vendas", *((key, {"produto": sale.produto, "valor": sale.valor}) for key, sale in SALES * 2),
        timestamp_ms=minute_ms,
    )  # fmt: skip
    with app.start() as running:
        assert len(running.status()) == 3
        found = consume(
            broker, [f"{name}-somas"],
            lambda records: latest(records).get((f"{name}-somas", b"faca")) == {"sum": 24.0}, running.check,
        )  # fmt: skip
        middle = consume(broker, [f"{name}-meio"], lambda records: len(records) == 6, running.check)
    assert found
    assert {json.loads(record.key() or b"")["key"] for record in middle} == {"faca", "copo", "prato"}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    known = admin.list_topics(timeout=20).topics
    assert len(known[f"{name}-meio"].partitions) == 3
    assert len(known[f"{name}-{name}-somas-2-repartition"].partitions) == 2


def test_sliding_windows_suppress_cogroup_and_global_table_joins_follow_new_records_while_the_app_runs(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex[:8]}"
    app = App(name, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home")
    sales = app.stream(f"{name}-vendas", value=Sale)
    returned = app.stream(f"{name}-devolucoes", value={"valor": float})
    by_key = sales.group_by_key()
    by_key.window(sliding("10 s", grace="1 min")).sum("valor", "total").to(f"{name}-deslizantes", windows=False)
    by_key.window(tumbling("1 min", grace="0 s")).count().suppress().to(f"{name}-finais", windows=False)
    balance = by_key.cogroup("v", d=returned.group_by_key())
    balance.aggregate(saldo="coalesce(sum(v.valor), 0) - coalesce(sum(d.valor), 0)").to(f"{name}-saldos")
    sales.join(app.global_table(f"{name}-produtos", value={"preco": float}), on="produto").to(f"{name}-precos")
    minute_ms = (int(time.time()) // 60 - 60) * 60_000

    def sell(second: int, produto: str, valor: float) -> None:
        sale = {"produto": produto, "valor": valor}
        produce(broker, f"{name}-vendas", ("ana", sale), timestamp_ms=minute_ms + second * 1000)

    def wait_for(topic: str, expected: set[Any], read: Any) -> None:
        def has_come(records: list[Any]) -> bool:
            return {read(key, value) for (_, key), value in latest(records).items()} == expected

        consume(broker, [f"{name}-{topic}"], has_come, running.check)

    def windowed(column: str) -> Any:
        """Return a function that reads the second at which a window starts, and the value of a column."""
        return lambda key, value: ((int.from_bytes(key[-8:], "big") - minute_ms) / 1000, value[column])

    produce(broker, f"{name}-produtos", ("faca", {"preco": 9}), ("copo", {"preco": 5}))
    produce(broker, f"{name}-devolucoes", ("ana", {"valor": 0.5}))
    sell(0, "faca", 1)
    sell(5, "copo", 2)
    with app.start() as running:
        wait_for("deslizantes", {(-10.0, 1.0), (-5.0, 3.0), (0.001, 2.0)}, windowed("total"))
        wait_for("saldos", {2.5}, lambda _, value: value["saldo"])
        wait_for("precos", {5.0}, lambda _, value: value["preco"])
        sell(600, "faca", 4)
        produce(broker, f"{name}-devolucoes", ("ana", {"valor": 1}))
        wait_for("finais", {(0.0, 2)}, windowed("count"))
        wait_for("deslizantes", {(-10.0, 1.0), (-5.0, 3.0), (0.001, 2.0), (590.0, 4.0)}, windowed("total"))
        wait_for("saldos", {5.5}, lambda _, value: value["saldo"])
        wait_for("precos", {9.0}, lambda _, value: value["preco"])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda app, sales: sales.branch(), "split by one condition or more"),
        (lambda app, sales: sales.branch("valor > 1", lambda sale: True), "all expressions or all functions"),
        (lambda app, sales: sales.split(a="valor > 1", rest="a"), "two branches are called a"),
        (lambda app, sales: sales.repartition(0), "one partition or more, not 0"),
        (lambda app, sales: sales.through(""), "through which topic"),
        (lambda app, sales: sales.peek(lambda: 1), "takes the value, or key and value"),
        (lambda app, sales: sales.group_by_key().count().suppress(), "this aggregate has none"),
        (lambda app, sales: app.table("t", value=Sale).suppress(), "right behind a windowed aggregate"),
        (lambda app, sales: sales.join(sales, on="produto"), "for a stream and a table"),
        (lambda app, sales: sales.join(app.table("t", value=Sale), on="produto", within="1 s"), "on=… is for a table"),
        (lambda app, sales: sales.group_by_key().cogroup("a"), "two groups or more"),
        (
            lambda app, sales: sales.group_by_key().cogroup("a", b=sales.group_by("produto")),
            "have one key: (key), and b has (produto)",
        ),
        (
            lambda app, sales: sales.group_by_key().cogroup("a", b=sales.group_by_key().window(tumbling("1 s"))),
            "windows come after cogroup",
        ),
    ],
)
def test_an_invalid_step_is_refused_with_the_reason(wrong: Any, sentence: str) -> None:
    app = App("loja")
    with pytest.raises(PlanRefused) as refused:
        wrong(app, app.stream("vendas", value=Sale))
    assert sentence in str(refused.value)
