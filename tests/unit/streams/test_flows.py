"""Chains of calls of the streams API: the resulting plan, its types for mypy, its errors. Nothing runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import pandas as pd
import pyarrow as pa
import pytest

from pessoa.pipelines.plan import (
    Aggregate,
    Column,
    Filter,
    Function,
    Join,
    Node,
    Project,
    Rekey,
    Sink,
    Source,
    Window,
    Within,
    every,
    to_json,
)
from pessoa.pipelines.shapes import shape
from pessoa.streams import (
    App,
    PlanRefused,
    Stream,
    Table,
    avro,
    delimited,
    hopping,
    long,
    nothing,
    session,
    string,
    tumbling,
)
from pessoa.streams.app import finish_sink
from pessoa.streams.learning import learn_columns
from pessoa.streams.running import RECORDS_PER_BATCH, in_limited_batches
from pessoa.streams.windows import milliseconds


@dataclass
class Sale:
    produto: str
    valor: float


@dataclass
class Double:
    dobro: float


def double(sale: Sale) -> Double:
    return Double(sale.valor * 2)


def words(sale: Sale) -> list[str]:
    return sale.produto.split()


def by_product(key: int, sale: Sale) -> Iterable[tuple[str, float]]:
    yield sale.produto, sale.valor


def chunk(frame: pd.DataFrame) -> pd.Series:
    return frame["valor"] * 2


def table(given: pa.Table) -> pa.Array:
    return given.column("valor")


def app() -> App:
    return App("loja")


def test_a_chain_of_stream_operations_becomes_a_plan() -> None:
    loja = app()
    sales = loja.stream("vendas", value=Sale)
    sales.filter("valor > 10").group_by_key().window(tumbling("1 min")).count().to("totais")
    (plan,) = loja.plans
    assert plan.topic == "totais"
    counted = plan.input
    assert isinstance(counted, Aggregate)
    assert counted.window == Window("tumbling", 60_000, grace_ms=86_400_000)
    assert isinstance(counted.input, Filter)
    assert isinstance(counted.input.input, Source)
    assert counted.input.input.value.columns == "produto STRING, valor DOUBLE"


def test_the_types_of_columns_are_derived_along_the_chain() -> None:
    loja = app()
    sales = loja.stream("vendas", key=long, value=Sale)
    assert_type(sales, Stream[int, Sale])
    assert_type(sales.filter(lambda sale: sale.valor > 1), Stream[int, Sale])
    assert_type(sales.map_values(double), Stream[int, Double])
    assert_type(sales.flat_map_values(words), Stream[int, str])
    assert_type(sales.flat_map(by_product), Stream[str, float])
    assert_type(sales.select_key(lambda sale: sale.produto, returns=str), Stream[str, Sale])
    assert_type(sales.select("produto"), Stream[int, dict[str, Any]])
    assert_type(sales.group_by_key().count(), Table[int, dict[str, Any]])
    assert_type(loja.stream("x", value="a INT"), Stream[str, dict[str, Any]])
    assert_type(loja.stream("x", value=string), Stream[str, str])
    assert_type(loja.table("t", value=Sale), Table[str, Sale])


def test_functions_are_described_by_their_annotations() -> None:
    loja = app()
    sales = loja.stream("vendas", value=Sale)
    described = Function(f"{__name__}:double", "STRUCT<dobro: DOUBLE>", takes=f"{__name__}:Sale")
    assert sales.map_values(double).node.function == described  # type: ignore[union-attr]
    assert sales.flat_map_values(words).node.each.returns == "ARRAY<STRING>"  # type: ignore[union-attr]
    assert sales.flat_map(by_product).node.each.returns == (  # type: ignore[arg-type, union-attr]
        "ARRAY<STRUCT<key: STRING, value: DOUBLE>>"
    )
    assert sales.map_values(chunk, returns=float).node.function.style == "pandas"  # type: ignore[union-attr]
    assert sales.map_values(table, returns=float).node.function.style == "arrow"  # type: ignore[union-attr]
    assert loja.functions.by_name[f"{__name__}:double"] is double


def test_two_functions_with_the_same_name_are_distinguished() -> None:
    loja = app()
    sales = loja.stream("vendas", value=Sale)
    first = sales.map_values(lambda sale: sale.valor, returns=float).node
    second = sales.map_values(lambda sale: sale.valor, returns=float).node
    assert first.function.name != second.function.name  # type: ignore[union-attr]


def test_a_function_whose_result_is_unknown_is_refused() -> None:
    with pytest.raises(PlanRefused, match=r"what does .*lambda.* return"):
        app().stream("vendas", value=Sale).map_values(lambda sale: sale.valor)


def test_selected_expressions_need_a_column_name() -> None:
    sales = app().stream("vendas", value=Sale)
    selected = sales.select("produto", "valor * 2 AS dobro", triplo="valor * 3").node
    assert isinstance(selected, Project)
    assert selected.columns == (
        Column("produto", "produto"),
        Column("dobro", "valor * 2"),
        Column("triplo", "valor * 3"),
    )
    with pytest.raises(PlanRefused, match="needs a name"):
        sales.select("valor * 2")


def test_a_stream_join_has_a_window_and_a_grace_period() -> None:
    loja = app()
    sales, paid = loja.stream("vendas", value=Sale), loja.stream("pagos", value={"pago": float})
    joined = sales.join(paid, within=("1 min", timedelta(seconds=5))).node
    assert isinstance(joined, Join)
    assert joined.within == Within(60_000, 5000, 86_400_000)
    with pytest.raises(PlanRefused, match="a left join of streams needs a grace"):
        sales.left_join(paid, within="1 min")


def test_an_outer_join_of_streams_keeps_both_sides_and_needs_a_grace() -> None:
    loja = app()
    sales, paid = loja.stream("vendas", value=Sale), loja.stream("pagos", value={"valor": float})
    joined = sales.outer_join(paid, within="1 min", grace="10 s", prefix="pago_")
    assert_type(joined, Stream[str, dict[str, Any]])
    node = joined.node
    assert node == Join(sales.node, paid.node, "outer", Within(60_000, 60_000, 10_000), right_prefix="pago_")
    assert list(shape(node).values) == ["produto", "valor", "pago_valor"]
    with pytest.raises(PlanRefused, match="an outer join of streams needs a grace"):
        sales.outer_join(paid, within="1 min")


def test_an_outer_join_of_tables_is_a_table_of_the_keys_that_either_has() -> None:
    loja = app()
    names, places = loja.table("nomes", value={"nome": str}), loja.table("lugares", value={"nome": str})
    joined = names.outer_join(places, prefix="lugar_")
    assert joined.node == Join(names.node, places.node, "outer", right_prefix="lugar_")
    made = shape(joined.node)
    assert made.is_table
    assert list(made.values) == ["nome", "lugar_nome"]


def test_a_stream_and_a_table_have_no_outer_join() -> None:
    loja = app()
    sales, names = loja.stream("vendas", value=Sale), loja.table("nomes", value={"nome": str})
    with pytest.raises(PlanRefused, match="a stream joins a table inner or left"):
        shape(sales.join(names, how="outer").node)


def test_the_changes_of_a_table_are_a_stream_with_its_keys_and_columns() -> None:
    loja = app()
    counts = loja.stream("vendas", value=Sale).group_by("produto", "valor > 1 AS caro").count()
    changes = counts.to_stream()
    assert isinstance(changes, Stream)
    assert changes.node == Rekey(counts.node, (Column("produto", "`produto`"), Column("caro", "`caro`")))
    table, stream = shape(counts.node), shape(changes.node)
    assert (table.is_table, stream.is_table) == (True, False)
    assert (stream.keys, stream.values) == (table.keys, table.values)
    typed = loja.table("clientes", value=Sale)
    assert_type(typed.to_stream(), Stream[str, Sale])


def test_keys_are_written_as_they_were_read_until_they_change() -> None:
    loja = app()
    numbered = loja.stream("a", key=long, value=Sale)
    numbered.filter("valor > 1").to("b")
    numbered.select_key("produto").to("c")
    numbered.group_by("produto", "valor").count().to("d")
    loja.stream("e", key=nothing, value=avro()).to("f", value=delimited(delimiter=";"))
    assert [plan.key.kind for plan in loja.plans] == ["long", "string", "json", "none"]
    assert loja.plans[-1].value.delimiter == ";"
    assert isinstance(loja.plans[2].input.input, Rekey)  # type: ignore[union-attr]


def test_plain_values_are_written_as_text_and_objects_as_json() -> None:
    @dataclass
    class Measure:
        value: float

    loja = app()
    loja.stream("a", value=Measure).filter("value > 1").to("json-1")
    loja.stream("a", value=Measure).map_values("value * 2").to("string-1")
    loja.stream("a", value=string).select_key("value").to("string-2")
    loja.stream("a", value=Sale).flat_map_values(words).to("string-3")
    loja.stream("a", value=Sale).map_values(double).to("json-2")
    loja.stream("a", value=string).group_by("value").count("value2").to("json-3")
    for plan in loja.plans:
        done = finish_sink(plan)
        assert isinstance(done, Sink)
        assert done.value.kind == plan.topic.partition("-")[0]


def test_two_pipelines_to_one_topic_are_refused() -> None:
    loja = app()
    loja.stream("a").to("b")
    with pytest.raises(PlanRefused, match="two pipelines write to b"):
        loja.stream("c").to("b")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"id": "minha loja"}, "'minha loja' cannot be the name of an app: it takes letters"),
        ({"on_error": "ignore"}, "on_error is stop or skip or dead-letter, not 'ignore'"),
        ({"delivery": "exactly_once"}, "delivery is at-least-once or exactly-once, not 'exactly_once'"),
        ({"speed": "realtime"}, "speed is real-time or micro-batch, not 'realtime'"),
    ],
)
def test_invalid_app_settings_are_refused_when_the_app_is_made(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanRefused, match=sentence):
        App(**{"id": "loja", **wrong})


def test_an_app_can_be_explained_before_any_schema_is_known() -> None:
    loja = App("loja", on_error="dead-letter")
    assert "has no pipelines" in loja.explain()
    loja.stream("vendas").filter("valor > 10").to("caras")
    text = loja.explain()
    assert text.startswith("loja-caras\nsink caras")
    assert "bad records go to loja-dead-letters · columns as they will be found" in text
    assert text.endswith("runs in real-time mode")


def test_the_plans_of_an_app_survive_json() -> None:
    loja = app()
    loja.stream("vendas", value=Sale).map_values(double).to("x")
    assert b'"takes"' in to_json(loja.plans[0])
    assert isinstance(loja.plans[0], Sink)


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("1 min", 60_000),
        ("90 seconds", 90_000),
        ("1h 30m", 5_400_000),
        ("500ms", 500),
        ("1.5 s", 1500),
        ("2 DAYS", 172_800_000),
        (250, 250),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_durations_are_parsed_from_readable_texts(duration: Any, expected: int) -> None:
    assert milliseconds(duration) == expected


@pytest.mark.parametrize("duration", ["", "1 fortnight", "soon", "5 min or so"])
def test_a_text_that_is_no_duration_is_refused(duration: str) -> None:
    with pytest.raises(PlanRefused, match="is no time"):
        milliseconds(duration)


def test_windows_have_a_size_an_advance_and_a_grace() -> None:
    assert hopping("5 min", every="1 min", grace=0) == Window("hopping", 300_000, 60_000)
    assert session("30 s", grace="10 s") == Window("session", 30_000, grace_ms=10_000)
    with pytest.raises(PlanRefused, match="needs a grace"):
        tumbling("1 min", final=True)


def test_columns_are_inferred_from_records() -> None:
    samples = [
        b'{"a": 1, "b": null, "c": {"x": true}, "d": [1], "e": "s"}',
        None,
        b"nonsense",
        b"[1]",
        b'{"a": 2.5, "b": null, "c": {"y": 1}, "d": [null, 2.5], "e": 3, "f": {}}',
    ]
    assert learn_columns(samples) == (
        "a DOUBLE, b STRING, c STRUCT<x: BOOLEAN, y: BIGINT>, d ARRAY<DOUBLE>, e STRING, f STRING"
    )
    assert learn_columns([b"x"]) == ""


def test_batches_are_limited_only_if_the_result_does_not_depend_on_batch_borders() -> None:
    app = App("loja")
    sales = app.stream("vendas", value="valor DOUBLE")
    sales.filter("valor > 1").to("a")
    sales.group_by_key().count().to("b")
    sales.group_by_key().window(tumbling("1 min")).count().to("c")
    sales.join(app.table("clientes", value="nome STRING")).to("d")
    sales.merge(app.stream("mais", value="valor DOUBLE")).to("e")

    def limits(plan: Node) -> list[str | None]:
        sources = [node for node in every(in_limited_batches(plan)) if isinstance(node, Source)]
        return [source.options.get("maxOffsetsPerTrigger") for source in sources]

    most = str(RECORDS_PER_BATCH)
    assert [limits(plan) for plan in app.plans] == [[most], [most], [None], [None, None], [None, None]]
