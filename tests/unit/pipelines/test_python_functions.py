"""Python functions as Spark's workers call them: with Arrow arrays, here without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pessoa.pipelines.plan import Function, PlanRefused
from pessoa.pipelines.python_functions import Wrapped, find_function

pa = pytest.importorskip("pyarrow", reason="pessoa[spark] is not installed")


@dataclass
class Part:
    nome: str
    cor: str | None = None


@dataclass
class Sale:
    produto: str
    valor: float
    partes: list[Part]


def called(function: Any, spec: Function, rows: list[Any], result: Any, **more: Any) -> list[tuple[Any, Any]]:
    wrapped = Wrapped(
        function, spec, result, more.get("keys", []), is_plain=more.get("is_plain", False), takes=more.get("takes")
    )
    made = wrapped(pa.array(rows, more.get("type")))
    return [(row["result"], row["error"]) for row in made.to_pylist()]


def test_a_function_gets_rows_as_dicts_and_is_not_called_for_null_values() -> None:
    seen = []

    def double(row: dict[str, Any]) -> float:
        seen.append(row)
        return float(row["valor"]) * 2

    assert called(double, Function("f", "DOUBLE"), [{"valor": 1.5}, None], pa.float64()) == [(3.0, None), (None, None)]
    assert seen == [{"valor": 1.5}]


def test_a_function_gets_instances_of_its_dataclass_with_nested_dataclasses() -> None:
    rows = [{"produto": "faca", "valor": 1.0, "partes": [{"nome": "cabo", "cor": None}]}]

    def name(sale: Sale) -> str:
        assert isinstance(sale.partes[0], Part)
        return f"{sale.produto} {sale.partes[0].nome}"

    assert called(name, Function("f", "STRING", takes="t"), rows, pa.string(), takes=Sale) == [("faca cabo", None)]


def test_a_dataclass_becomes_columns_and_pairs_become_keys_and_values() -> None:
    kind = pa.struct([("nome", pa.string()), ("cor", pa.string())])
    made = called(lambda row: Part(row["a"]), Function("f", "x"), [{"a": "x"}], kind)
    assert made == [({"nome": "x", "cor": None}, None)]
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))
    spec = Function("f", "x", with_key=True)
    made = called(lambda key, value: [(key, value), (key, 2)], spec, [{"k": "a", "v": 1}], pairs, keys=["k"],
                  is_plain=True)  # fmt: skip
    assert made == [([{"key": "a", "value": 1}, {"key": "a", "value": 2}], None)]


def test_an_exception_for_one_row_is_the_error_of_that_row_only() -> None:
    def broken(row: dict[str, Any]) -> Any:
        return {1: 10, 2: "dez"}[row["v"]]

    made = called(broken, Function("f", "BIGINT"), [{"v": 1}, {"v": 2}, {"v": 3}, {"v": 1}], pa.int64())
    assert [result for result, _ in made] == [10, None, None, 10]
    assert made[1][1] is not None
    assert made[2][1] == "KeyError: 3"


def test_fields_that_were_not_declared_are_an_error() -> None:
    ((result, error),) = called(lambda _: {"b": 1}, Function("f", "x"), [{"v": 1}], pa.struct([("a", pa.int64())]))
    assert (result, error) == (None, "ValueError: the field b was not declared")


@pytest.mark.parametrize("style", ["pandas", "arrow"])
def test_a_vectorised_function_is_called_once_and_its_results_are_assigned_to_their_rows(style: Any) -> None:
    calls = []

    def double(column: Any) -> Any:
        calls.append(len(column))
        if style == "pandas":
            return column * 2
        import pyarrow.compute as pc

        return pc.multiply(column, 2)

    rows = [{"v": 1}, None, {"v": 3}]
    made = called(double, Function("f", "BIGINT", style), rows, pa.int64(), is_plain=True)
    assert made == [(2, None), (None, None), (6, None)]
    assert calls == [2]


def test_a_vectorised_function_that_fails_is_retried_row_by_row() -> None:
    def reciprocal(frame: Any) -> Any:
        if (frame["v"] == 0).any():
            raise ZeroDivisionError("zero")
        return 1 / frame["v"]

    made = called(reciprocal, Function("f", "DOUBLE", "pandas"), [{"v": 2}, {"v": 0}, None], pa.float64())
    assert made == [(0.5, None), (None, "ZeroDivisionError: zero"), (None, None)]


def test_a_vectorised_function_may_return_columns() -> None:
    kind = pa.struct([("b", pa.int64()), ("a", pa.string())])

    def columns(frame: Any) -> Any:
        return frame.assign(b=frame["v"] + 1, a="x")[["a", "b"]]

    assert called(columns, Function("f", "x", "pandas"), [{"v": 1}], kind) == [({"b": 2, "a": "x"}, None)]


def test_functions_are_found_by_name() -> None:
    assert find_function("math:sqrt", {}) is __import__("math").sqrt
    assert find_function("f", {"f": len}) is len
    with pytest.raises(PlanRefused, match="did not come with the plan"):
        find_function("f", {})
    with pytest.raises(PlanRefused, match="cannot be imported"):
        find_function("math:no", {})
