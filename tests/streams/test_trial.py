"""`App.test`: steps of the Streams API on records in memory, with a real Spark and without a Kafka cluster."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest

from pessoa.streams import (
    App,
    PlanRefused,
    Record,
    Serde,
    avro,
    boolean,
    delimited,
    double,
    floating,
    hopping,
    integer,
    long,
    raw,
    session,
    short,
    string,
    tumbling,
)

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@dataclass
class Sale:
    produto: str
    valor: float


def at(second: float, key: Any, value: Any) -> Record:
    return Record(key, value, START + datetime.timedelta(seconds=second))


def pairs(records: list[Record]) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in records]


SALES = [("ana", Sale("faca", 12)), ("rui", Sale("copo azul", 3.5)), ("ana", Sale("prato", 20))]


def test_expressions_filter_select_and_rekey_in_one_chain(spark: Any) -> None:
    app = App("loja")
    sales = app.stream("vendas", value=Sale)
    chain = sales.filter("valor > 3").with_columns(dobro="valor * 2").select("upper(produto) AS nome", "dobro")
    chain.select_key("substring(nome, 1, 1)").to("saida")
    out = app.test({"vendas": SALES}, spark=spark)
    assert pairs(out["saida"]) == [
        ("F", {"nome": "FACA", "dobro": 24.0}),
        ("C", {"nome": "COPO AZUL", "dobro": 7.0}),
        ("P", {"nome": "PRATO", "dobro": 40.0}),
    ]


def test_columns_are_inferred_and_records_keep_headers_and_timestamps(spark: Any) -> None:
    app = App("loja")
    app.stream("vendas").filter("valor > 10").to("caras")
    (record,) = app.test(
        {"vendas": [Record("ana", {"valor": 12}, START, {"h": b"1"}), ("rui", {"valor": 3.5})]}, spark=spark
    )["caras"]
    assert record == Record("ana", {"valor": 12.0}, START, {"h": b"1"})


def test_records_without_a_value_pass_columns_unchanged_and_are_not_counted(spark: Any) -> None:
    app = App("loja")
    sales = app.stream("vendas", value=Sale)
    sales.with_columns(dobro="valor * 2").to("dobros")
    sales.group_by_key().count().to("totais")
    out = app.test({"vendas": [("ana", None), ("ana", Sale("x", 1)), (None, Sale("y", 2))]}, spark=spark)
    assert [record.value is None for record in out["dobros"]] == [True, False, False]
    assert pairs(out["totais"]) == [("ana", {"count": 1})]


def test_python_functions_map_filter_flatten_and_rekey_a_stream(spark: Any) -> None:
    def double_it(sale: Sale) -> float:
        return sale.valor * 2

    def words(sale: Sale) -> Iterable[str]:
        return sale.produto.split()

    def swapped(key: str, sale: Sale) -> list[tuple[str, Sale]]:
        return [(sale.produto, Sale(key, sale.valor))]

    def triple(frame: pd.DataFrame) -> pd.Series:
        return frame["valor"] * 3

    app = App("loja")
    sales = app.stream("vendas", value=Sale)
    sales.map_values(double_it).to("dobros", value=double)
    sales.map_values(triple, returns=float).to("triplos", value=double)
    sales.filter(lambda sale: sale.valor > 10).flat_map_values(words).to("palavras")
    sales.flat_map(swapped).select_key(lambda sale: sale.produto[0], returns=str).to("trocas")
    out = app.test({"vendas": SALES}, spark=spark)
    assert pairs(out["dobros"]) == [("ana", 24.0), ("rui", 7.0), ("ana", 40.0)]
    assert pairs(out["triplos"]) == [("ana", 36.0), ("rui", 10.5), ("ana", 60.0)]
    assert pairs(out["palavras"]) == [("ana", "faca"), ("ana", "prato")]
    assert pairs(out["trocas"])[0] == ("a", {"produto": "ana", "valor": 12.0})


def test_words_of_lines_are_split_and_counted(spark: Any) -> None:
    app = App("palavras")
    lines = app.stream("linhas", value=string)
    lines.flat_map_values("split(lower(value), ' ')").group_by("value").count().to("contagem")
    out = app.test({"linhas": ["O mar e o céu", "o mar"]}, spark=spark)
    assert dict(pairs(out["contagem"])) == {
        "o": {"count": 3}, "mar": {"count": 2}, "e": {"count": 1}, "céu": {"count": 1}
    }  # fmt: skip


def test_tumbling_hopping_and_session_windows_aggregate_and_records_carry_their_window(spark: Any) -> None:
    app = App("loja")
    sales = app.stream("vendas", value=Sale).group_by_key()
    sales.window(tumbling("1 min")).aggregate(total="sum(valor)", maior="max(valor)").to("minutos", windows=False)
    sales.window(hopping("1 min", every="30 s")).count().to("saltos", windows=False)
    sales.window(session("10 s", grace="0 s")).count().to("visitas")
    given = [at(0, "ana", Sale("a", 1)), at(5, "ana", Sale("b", 2)), at(61, "ana", Sale("c", 4))]
    out = app.test({"vendas": given}, spark=spark)
    minute = datetime.timedelta(minutes=1)
    assert [(record.key, record.value, record.window_start) for record in out["minutos"]] == [
        ("ana", {"total": 3.0, "maior": 2.0}, START),
        ("ana", {"total": 4.0, "maior": 4.0}, START + minute),
    ]
    assert sorted((record.window_start, record.value["count"]) for record in out["saltos"] if record.window_start) == [
        (START - minute / 2, 2),
        (START, 2),
        (START + minute / 2, 1),
        (START + minute, 1),
    ]
    assert [record.value for record in out["visitas"]] == [
        {"count": 2, "window_start": "2026-01-01T00:00:00.000Z", "window_end": "2026-01-01T00:00:05.000Z"},
        {"count": 1, "window_start": "2026-01-01T00:01:01.000Z", "window_end": "2026-01-01T00:01:01.000Z"},
    ]


def test_two_streams_are_joined_within_a_time_difference(spark: Any) -> None:
    app = App("loja")
    sales, paid = app.stream("vendas", value=Sale), app.stream("pagos", value={"valor": float})
    sales.left_join(paid, within="10 s", grace="0 s", prefix="pago_").to("pares")
    given = {
        "vendas": [at(0, "ana", Sale("a", 1)), at(20, "rui", Sale("b", 2))],
        "pagos": [at(5, "ana", {"valor": 9}), at(31, "rui", {"valor": 8}), at(0, "eva", {"valor": 7})],
    }
    out = app.test(given, spark=spark)
    assert pairs(out["pares"]) == [
        ("ana", {"produto": "a", "valor": 1.0, "pago_valor": 9.0}),
        ("rui", {"produto": "b", "valor": 2.0, "pago_valor": None}),
    ]
    assert out["pares"][0].time == START + datetime.timedelta(seconds=5)


def test_a_stream_is_joined_with_the_table_row_of_its_time_and_grouped_by_a_joined_column(spark: Any) -> None:
    app = App("loja")
    clients = app.table("clientes", value={"nome": str})
    sales = app.stream("vendas", value=Sale).left_join(clients)
    sales.to("com_nome")
    sales.filter("nome IS NOT NULL").group_by("nome").sum("valor", "total").to("por_nome")
    given = {
        "clientes": [at(1, "ana", {"nome": "Ana"}), at(5, "ana", {"nome": "Ana Maria"}), at(8, "ana", None)],
        "vendas": [at(second, "ana", Sale("x", second)) for second in (0, 2, 3, 6, 9)],
    }
    out = app.test(given, spark=spark)
    assert [record.value["nome"] for record in out["com_nome"]] == [None, "Ana", "Ana", "Ana Maria", None]
    assert sorted(pairs(out["por_nome"])) == [("Ana", {"total": 5.0}), ("Ana Maria", {"total": 6.0})]
    assert "in several queries" in app.explain()


def test_a_join_of_two_tables_with_a_filter_emits_tombstones_for_rows_that_leave_it(spark: Any) -> None:
    app = App("loja")
    names, places = app.table("nomes", value={"nome": str}), app.table("lugares", value={"cidade": str})
    names.join(places).filter("cidade <> 'Porto'").to("fichas")
    given = {
        "nomes": [at(0, "1", {"nome": "Ana"}), at(4, "1", None)],
        "lugares": [at(1, "1", {"cidade": "Lisboa"}), at(2, "1", {"cidade": "Porto"}), at(3, "1", {"cidade": "Faro"})],
    }
    out = app.test(given, spark=spark)
    assert [record.value for record in out["fichas"]] == [
        {"nome": "Ana", "cidade": "Lisboa"},
        None,
        {"nome": "Ana", "cidade": "Faro"},
        None,
    ]


def test_pipelines_of_an_app_read_each_others_topics_and_streams_are_united(spark: Any) -> None:
    app = App("loja")
    app.stream("b", value={"n": int}).union(app.stream("c", value={"n": int})).group_by("n % 2 AS impar").count().to(
        "contagem"
    )
    app.stream("a", value={"n": int}).filter("n > 1").to("b")
    out = app.test({"a": [{"n": 1}, {"n": 2}, {"n": 3}], "c": [{"n": 5}]}, spark=spark)
    assert pairs(out["contagem"]) == [("0", {"count": 1}), ("1", {"count": 2})]


BAD = [("ana", b"lixo"), ("rui", Sale("zero", 0)), ("eva", Sale("dois", 2))]


def reciprocal(sale: Sale) -> float:
    if sale.valor == 0:
        raise ValueError("nada")
    return 1 / sale.valor


def test_bad_records_are_dropped_with_on_error_skip(spark: Any) -> None:
    app = App("loja", on_error="skip")
    app.stream("vendas", value=Sale).map_values(reciprocal).to("saida", value=double)
    assert pairs(app.test({"vendas": BAD}, spark=spark)["saida"]) == [("eva", 0.5)]


def test_bad_records_become_dead_letters_with_the_reason_in_stateless_and_stateful_pipelines(spark: Any) -> None:
    app = App("loja", on_error="dead-letter")
    sales = app.stream("vendas", value=Sale)
    sales.map_values(reciprocal).filter("value > 0").to("saida", value=double)
    out = app.test({"vendas": BAD}, spark=spark)
    assert pairs(out["saida"]) == [("eva", 0.5)]
    letters = [(record.key, record.value) for record in out["loja-dead-letters"]]
    assert letters == [(b"ana", b"lixo"), (b"rui", b'{"produto": "zero", "valor": 0}')]
    headers = [record.headers for record in out["loja-dead-letters"]]
    assert headers[0]["__streams.errors.message"] == b"its value is not JSON with the columns produto, valor"
    assert headers[1]["__streams.errors.message"] == b"ValueError: nada"
    assert headers[1]["__streams.errors.topic"] == b"vendas"
    assert headers[1]["__streams.errors.offset"] == b"1"
    counting = App("loja", on_error="dead-letter")
    counting.stream("vendas", value=Sale).group_by_key().count().to("totais")
    out = counting.test({"vendas": BAD}, spark=spark)
    assert dict(pairs(out["totais"])) == {"rui": {"count": 1}, "eva": {"count": 1}}
    assert pairs(out["loja-dead-letters"]) == [(b"ana", b"lixo")]


def test_a_bad_record_stops_a_pipeline_by_default_and_the_error_names_it(spark: Any) -> None:
    from pessoa.pipelines.refusals import explain_refusal

    app = App("loja")
    app.stream("vendas", value=Sale).to("saida")
    with pytest.raises(Exception, match="a bad record") as stopped:
        app.test({"vendas": BAD}, spark=spark)
    assert explain_refusal(stopped.value) == (
        "a bad record stopped the pipeline: vendas-0@0: its value is not JSON with the columns produto, valor"
    )


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("valr > 10", "filter valr > 10: there is no column valr; there are key, produto, valor"),
        ("valor >", "filter valor >: this is no Spark SQL expression"),
        ("dobro(valor) > 1", "filter dobro(valor) > 1: there is no function dobro in Spark SQL"),
    ],
)
def test_an_expression_that_spark_refuses_is_reported_with_its_step_and_the_known_columns(
    spark: Any, condition: str, reason: str
) -> None:
    app = App("loja")
    app.stream("vendas", value=Sale).filter(condition).select("produto").to("saida")
    with pytest.raises(PlanRefused) as refused:
        app.test({"vendas": SALES}, spark=spark)
    assert str(refused.value).startswith(reason)


PRIMITIVES: list[tuple[Serde[Any], Any]] = [
    (string, "é"),
    (raw, b"\x00\xff"),
    (short, -2),
    (integer, -(2**31)),
    (long, 2**63 - 1),
    (floating, 1.25),
    (double, -0.1),
    (boolean, True),
    (delimited("a INT, b STRING", ";"), ["-1", "x;y"]),
]


def test_primitive_formats_read_back_the_values_that_they_write(spark: Any) -> None:
    app = App("formatos", on_error="dead-letter")
    topics: dict[str, list[Any]] = {}
    for number, (serde, value) in enumerate(PRIMITIVES):
        app.stream(f"de{number}", value=serde).to(f"para{number}", value=serde)
        topics[f"de{number}"] = [("k", value), (None, None)]
    out = app.test(topics, spark=spark)
    for number, (_, value) in enumerate(PRIMITIVES):
        assert pairs(out[f"para{number}"]) == [("k", value), (None, None)]


@pytest.mark.parametrize(
    ("serde", "bytes_", "reason"),
    [
        (integer, b"abc", b"its value has 3 bytes, and a int has 4"),
        (string, b"\xff", b"its value is not UTF-8"),
        (delimited("a INT, b INT"), b"1,x", b"its value is not a line with the columns a, b"),
    ],
)
def test_bytes_of_the_wrong_format_are_bad_records(spark: Any, serde: Any, bytes_: bytes, reason: bytes) -> None:
    app = App("formatos", on_error="dead-letter")
    app.stream("de", value=serde).to("para")
    (letter,) = app.test({"de": [bytes_]}, spark=spark)["formatos-dead-letters"]
    assert letter.headers["__streams.errors.message"] == reason


def test_avro_with_a_given_schema_needs_no_registry_in_app_test(spark: Any) -> None:
    app = App("loja")
    schema = '{"type": "record", "name": "V", "fields": [{"name": "valor", "type": ["null", "double"]}]}'
    app.stream("vendas", value=avro(schema)).filter("valor > 1").to("caras", value=avro())
    assert pairs(app.test({"vendas": [{"valor": 1}, {"valor": 2}]}, spark=spark)["caras"]) == [(None, {"valor": 2.0})]


def test_the_event_time_is_taken_from_the_timestamp_expression_of_the_stream(spark: Any) -> None:
    app = App("loja", on_error="dead-letter")
    app.stream("vendas", value="quando STRING", timestamp="try_to_timestamp(quando)").group_by_key().window(
        tumbling("1 h")
    ).count().to("horas")
    out = app.test({"vendas": [("a", {"quando": "2025-05-05T10:59:00Z"}), ("a", {"quando": "ontem"})]}, spark=spark)
    assert out["horas"][0].window_start == datetime.datetime(2025, 5, 5, 10, tzinfo=datetime.UTC)
    assert out["loja-dead-letters"][0].headers["__streams.errors.message"] == b"has no event time"
