"""DELIMITED: one line of separated values, read and written as Apache Commons CSV does by default.

Quotes are written where they are needed: around a delimiter, a quote, a line end, a leading or trailing blank; and
around a first field that does not begin with a letter or digit (`"-1",a`). An empty field is null.
"""

from __future__ import annotations

import csv
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable, Sequence
from io import StringIO

from pessoa.ksql.operators.format_codecs import CodecFailure, Side
from pessoa.ksql.types.explicit_casts import caster
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    INTEGER,
    STRING,
    TIME,
    TIMES,
    EvaluationFailure,
    SqlType,
    Value,
)
from pessoa.ksql.types.value_text import plain_text

# A field may be as long as a record.
csv.field_size_limit(2**31 - 1)


def _text_reader(kind: SqlType) -> Callable[[str], Value]:
    if kind == STRING:
        return lambda text: text
    if kind == BOOLEAN:
        return lambda text: text.lower() == "true"
    if kind == BYTES:
        return _base64
    # Times are numbers: days, or milliseconds in 64 bits.
    found = caster(STRING, _number_type(kind))
    assert found is not None
    return found


def _number_type(kind: SqlType) -> SqlType:
    if kind not in TIMES:
        return kind
    return INTEGER if kind in (DATE, TIME) else BIGINT


def _base64(text: str) -> Value:
    try:
        return b64decode(text, validate=True)
    except BadBase64 as wrong:
        raise EvaluationFailure(f"no base64: {wrong}") from None


class DelimitedCodec:
    def __init__(self, side: Side) -> None:
        self._names = [column.name for column in side.columns]
        self._readers = [_text_reader(column.type) for column in side.columns]
        self._delimiter = side.options.delimiter

    def decode(self, data: bytes | None) -> list[Value] | None:
        if data is None:
            return None
        try:
            text = data.decode()
            rows = list(csv.reader(StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error) as wrong:
            raise CodecFailure(f"no delimited text: {wrong}") from None
        fields = rows[0] if rows else []
        if len(fields) != len(self._readers):
            raise CodecFailure(
                f"Unexpected field count, csvFields:{len(fields)} schemaFields:{len(self._readers)}"
                if fields else "No fields in record"
            )  # fmt: skip
        return [self._value(index, field) for index, field in enumerate(fields)]

    def _value(self, index: int, field: str) -> Value:
        if not field:
            return None
        try:
            return self._readers[index](field)
        except EvaluationFailure as failure:
            raise CodecFailure(f"{self._names[index]}: {failure}") from None

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        if values is None or (len(values) == 1 and values[0] is None):
            return None
        fields = [self._field(value, index == 0) for index, value in enumerate(values)]
        return self._delimiter.join(fields).encode()

    def _field(self, value: Value, is_first: bool) -> str:
        if value is None:
            return ""
        text = plain_text(value)
        if not text:
            return '""' if is_first else ""
        first, last = text[0], text[-1]
        quoted = (
            (is_first and not (first.isascii() and first.isalnum()))
            or first <= "#"
            or last <= " "
            or any(sign in text for sign in ('"', "\n", "\r", self._delimiter))
        )
        return '"' + text.replace('"', '""') + '"' if quoted else text
