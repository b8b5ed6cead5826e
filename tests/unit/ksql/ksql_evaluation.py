"""Evaluation of ksql expressions that tests give as text."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from pessoa.ksql.analysis.expression_scopes import ColumnScope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.types.sql_types import Value
from tests.support.ksql_texts import parse_expression_text, parse_type_text

NOW_MS = 1_794_911_400_000


class SeededEvaluationContext:
    """EvaluationContext with a seeded random generator and a fixed time."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self._random = Random(19)

    def octets(self, count: int) -> bytes:
        return self._random.randbytes(count)


def typed(text: str, columns: Mapping[str, str] | None = None) -> Typed:
    scope = ColumnScope({name: parse_type_text(kind) for name, kind in (columns or {}).items()})
    return type_expression(parse_expression_text(text), scope)


def evaluate(text: str, columns: Mapping[str, str] | None = None, row: Mapping[str, Value] | None = None) -> Value:
    return compile_expression(typed(text, columns), SeededEvaluationContext())(row or {})
