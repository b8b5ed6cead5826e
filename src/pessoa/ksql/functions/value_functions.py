"""Nulls, numbers in bytes, and AS_VALUE."""

from __future__ import annotations

import struct
from collections.abc import Callable

from pessoa.ksql.functions.function_rows import Function, Variant, function, variant
from pessoa.ksql.types.sql_types import EvaluationFailure, Value


def _coalesce(*values: Value) -> Value:
    return next((value for value in values if value is not None), None)


def _from_bytes(format_letter: str, size: int, result: str) -> list[Variant]:
    def read(data: bytes, order: str = "BIG_ENDIAN") -> Value:
        if len(data) != size:
            raise EvaluationFailure(f"Number of bytes must be equal to {size}, but found {len(data)}")
        if order.upper() not in ("BIG_ENDIAN", "LITTLE_ENDIAN"):
            raise EvaluationFailure(f"Byte order must be BIG_ENDIAN or LITTLE_ENDIAN, but found {order}")
        sign = ">" if order.upper() == "BIG_ENDIAN" else "<"
        value: Value = struct.unpack(sign + format_letter, data)[0]
        return value

    compute: Callable[..., Value] = read
    return [variant(f"(BYTES) {result}", compute), variant(f"(BYTES, STRING) {result}", compute)]


ROWS: list[Function] = [
    function(
        "COALESCE",
        "CONDITIONAL",
        "The first argument that is not null.",
        ["COALESCE(NULL, 'a', 'b') = 'a'"],
        variant("(T, T...) T", _coalesce, sees_null=True),
    ),
    function(
        "IFNULL",
        "CONDITIONAL",
        "The first argument, or the second if the first is null.",
        ["IFNULL(NULL, 5) = 5"],
        variant("(T, T) T", _coalesce, sees_null=True),
    ),
    function(
        "NULLIF",
        "CONDITIONAL",
        "Null if both arguments are equal, else the first.",
        ["NULLIF('a', 'a') IS NULL", "NULLIF(1, 2) = 1"],
        variant("(T, T) T", lambda first, second: None if first == second else first, sees_null=True),
    ),
    function(
        "AS_VALUE",
        "OTHER",
        "A key column, copied to the value.",
        ["AS_VALUE(5) = 5"],
        variant("(T) T", lambda value: value),
    ),
    function(
        "INT_FROM_BYTES",
        "BYTES",
        "The INTEGER in 4 bytes, BIG_ENDIAN or LITTLE_ENDIAN.",
        [
            "INT_FROM_BYTES(TO_BYTES('00000100', 'hex')) = 256",
            "INT_FROM_BYTES(TO_BYTES('01000000', 'hex'), 'LITTLE_ENDIAN') = 1",
        ],
        *_from_bytes("i", 4, "INTEGER"),
    ),
    function(
        "BIGINT_FROM_BYTES",
        "BYTES",
        "The BIGINT in 8 bytes, BIG_ENDIAN or LITTLE_ENDIAN.",
        ["BIGINT_FROM_BYTES(TO_BYTES('ffffffffffffffff', 'hex')) = -1"],
        *_from_bytes("q", 8, "BIGINT"),
    ),
    function(
        "DOUBLE_FROM_BYTES",
        "BYTES",
        "The DOUBLE in 8 bytes, BIG_ENDIAN or LITTLE_ENDIAN.",
        ["DOUBLE_FROM_BYTES(TO_BYTES('3ff0000000000000', 'hex')) = 1e0"],
        *_from_bytes("d", 8, "DOUBLE"),
    ),
]
