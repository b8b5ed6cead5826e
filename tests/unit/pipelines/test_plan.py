"""The logical plan: JSON round trips, columns, refusals, and its description as text."""

from __future__ import annotations

import pytest

from pessoa.pipelines.explain import duration, explain
from pessoa.pipelines.plan import (
    Aggregate,
    Apply,
    Column,
    Distinct,
    Errors,
    Filter,
    FlatMap,
    Format,
    Function,
    Join,
    Node,
    PlanRefused,
    Project,
    Rekey,
    Sink,
    Source,
    Union,
    Window,
    Within,
    from_json,
    to_json,
)
from pessoa.pipelines.shapes import WINDOW_COLUMNS, ColumnsUnknown, shape

SALES = Source("vendas", value=Format("json", "produto STRING, valor DOUBLE"))
CLIENTS = Source("clientes", value=Format("json", "nome STRING"), is_table=True)
COUNT = (Column("count", "count(*)"),)
MINUTE = Window("tumbling", 60_000, grace_ms=86_400_000)


def test_a_plan_with_every_node_survives_json() -> None:
    function = Function("loja:dobro", "STRUCT<dobro: DOUBLE>", "pandas", True, "loja:Venda")
    mapped = Apply(FlatMap(SALES, "array(produto)", name="palavra"), function, Errors("dead-letter", "cartas"))
    left = Rekey(Union((mapped, Project(SALES, (Column("dobro", "valor * 2"),)))), (Column("k", "dobro"),))
    right = Filter(Source("pagos", key=Format("long"), value=Format("avro", schema='"long"')), function)
    joined = Join(left, right, "left", Within(1, 2, 3), "l_", "r_")
    plan = Sink(Aggregate(joined, COUNT, Window("session", 5, grace_ms=1)), "saida", also=("k",), windowed_key=False)
    assert from_json(to_json(plan)) == plan


def test_json_that_is_no_plan_is_refused_with_the_position() -> None:
    with pytest.raises(PlanRefused, match=r"this is no plan: .*\$\.input"):
        from_json('{"type": "Filter", "input": {"type": "Sieve"}, "condition": "x"}')


def test_the_columns_of_a_plan_are_derived_from_its_steps() -> None:
    assert shape(SALES).columns == ("key", "produto", "valor")
    assert shape(Project(SALES, (Column("dobro", "valor * 2"),), keep=True)).values == ("produto", "valor", "dobro")
    assert shape(Project(SALES, (Column("valor", "valor * 2"),), keep=True)).values == ("produto", "valor")
    rekeyed = shape(Rekey(SALES, (Column("produto", "produto"),)))
    assert (rekeyed.keys, rekeyed.values) == (("produto",), ("valor",))
    counted = shape(Aggregate(SALES, COUNT, MINUTE))
    assert counted.keys == ("key", "window_start", "window_end")
    assert counted.values == ("count",)
    assert counted.is_table
    assert shape(Join(SALES, CLIENTS, right_prefix="c_")).values == ("produto", "valor", "c_nome")


def test_a_function_that_gives_pairs_makes_keys_and_values() -> None:
    pairs = Function("f", "ARRAY<STRUCT<key: BIGINT, value: STRUCT<a: INT, b: INT>>>", with_key=True)
    made = shape(FlatMap(SALES, pairs))
    assert (made.keys, made.values) == (("key",), ("a", "b"))


def test_the_origin_of_a_record_is_known_up_to_the_first_stateful_step() -> None:
    counted = Rekey(Aggregate(SALES, COUNT, MINUTE), tuple(Column(name, name) for name in ("key", *WINDOW_COLUMNS)))
    assert shape(counted).window == MINUTE
    assert not shape(Union((Project(counted, (Column("x", "1"),)), Project(counted, (Column("x", "2"),))))).has_origin
    pairs = Function("f", "ARRAY<STRUCT<key: BIGINT, value: INT>>", with_key=True)
    assert shape(FlatMap(SALES, pairs)).has_origin
    assert not shape(FlatMap(counted, pairs)).has_origin
    assert shape(Rekey(counted, (Column("key", "key"),))).window is None


REFUSED: list[tuple[Node, str]] = [
    (Source("t", value=Format("yaml")), "there is no format 'yaml'"),
    (Source("t", value=Format("json")), "the source t: the format json needs a schema"),
    (Source("t", key=Format("none"), is_table=True), "the table t needs a key"),
    (Source("t", errors=Errors("dead-letter")), "none is named"),
    (Source("t", value=Format("json", "a INT, A STRING")), "the column a stands twice"),
    (Source("t", value=Format("json", "rowtime INT")), "a name that every row has already"),
    (Project(SALES, (Column("key", "1"),)), "two columns called key"),
    (Aggregate(CLIENTS, COUNT), "a table is aggregated by a new key"),
    (Aggregate(Source("t", key=Format("none")), COUNT), "an aggregate needs a key"),
    (Aggregate(SALES, COUNT, Window("tumbling", 0)), "a size greater than nothing"),
    (Aggregate(SALES, COUNT, Window("hopping", 10, 20)), "advances by more than nothing"),
    (FlatMap(CLIENTS, "array(nome)"), "a table has one row for a key"),
    (Rekey(SALES, ()), "at least one column"),
    (Join(SALES, SALES), "two streams are joined within a time"),
    (Join(CLIENTS, SALES), "a table cannot be joined with a stream"),
    (Join(SALES, CLIENTS, within=Within(1, 1)), "within is for two streams"),
    (Join(SALES, CLIENTS, "outer"), "a stream joins a table inner or left"),
    (Join(SALES, SALES, within=Within(1, 1)), "both sides of the join have the column produto"),
    (Join(SALES, Rekey(CLIENTS, (Column("a", "1"), Column("b", "2")))), "a join needs keys that match"),
    (Union((SALES, Source("t"))), "a union needs the same columns"),
    (Union((SALES,)), "two inputs or more"),
    (Union((CLIENTS, CLIENTS)), "a union is of streams"),
    (Distinct(CLIENTS), "no row of it comes twice"),
    (Distinct(Source("t"), ("nome",)), "there is no column nome to tell rows apart by; there are key, value"),
    (Distinct(Source("t"), within_ms=-1), "within a time greater than nothing"),
]


@pytest.mark.parametrize(("plan", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_an_impossible_plan_is_refused_with_a_reason(plan: Node, reason: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        shape(plan)
    assert reason in str(refused.value)


def test_unknown_columns_are_refused_with_their_own_error() -> None:
    with pytest.raises(ColumnsUnknown):
        shape(Filter(Source("t", value=Format("avro")), "x > 1"))


def test_explain_prints_the_plan_from_its_end_to_its_sources() -> None:
    plan = Sink(Aggregate(Filter(SALES, "valor > 10"), COUNT, MINUTE), "totais")
    assert explain(plan).splitlines() == [
        "sink totais · key string, value json",
        (
            "└─ aggregate count = count(*), windows of 1 minute, 1 day of grace · keeps state · "
            "table (key, window_start, window_end) → (count)"
        ),
        "   └─ filter valor > 10 · stream (key) → (produto, valor)",
        "      └─ source vendas · key string, value json · stream (key) → (produto, valor)",
        "runs in real-time mode",
    ]


def test_explain_shows_both_sides_of_a_join_and_what_is_wrong_with_it() -> None:
    lines = explain(Sink(Join(SALES, SALES, "left", Within(1000, 0)), "x")).splitlines()
    assert lines[1].startswith("└─ left join within 1 second before and 0 milliseconds after")
    assert "both sides of the join have the column produto" in lines[1]
    assert [line[:6] for line in lines[2:4]] == ["   ├─ ", "   └─ "]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 milliseconds"), (1, "1 millisecond"), (90_000, "90 seconds"), (3_600_000, "1 hour")],
)
def test_durations_are_shown_in_the_largest_unit_that_fits(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text
