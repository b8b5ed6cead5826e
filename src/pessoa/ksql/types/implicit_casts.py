"""Which types stand for others without a CAST, and the one type that several expressions have together.

- INTEGER → BIGINT → DECIMAL → DOUBLE; ARRAY, MAP and STRUCT by their elements (structs: the union of the fields).
- STRING → TIMESTAMP, DATE, TIME (ISO text) and BYTES (base64), in expressions.
- A *literal* in a list (IN, ARRAY[…], MAP(…)) also gives way the other way round: text that is a number or a truth
  becomes one, and every literal becomes text where a STRING is wanted.
- INSERT VALUES takes only the first rule, and STRING for times and bytes: '1' is no INTEGER.
"""

from __future__ import annotations

from pessoa.ksql.types.explicit_casts import caster, parse_decimal
from pessoa.ksql.types.operator_types import wider_number
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INTEGER,
    NULL_TYPE,
    STRING,
    TIMES,
    Array,
    Decimal,
    EvaluationFailure,
    Map,
    SqlType,
    Struct,
    Value,
    as_decimal,
    is_number,
)


def can_cast_implicitly(source: SqlType, target: SqlType) -> bool:
    """Return whether a value of the source type may be used where the target type is expected."""
    if source in (target, NULL_TYPE):
        return True
    if source == STRING:
        return target in (*TIMES, BYTES)
    if is_number(source) and is_number(target):
        return _widens(source, target)
    match source, target:
        case Array(one), Array(other):
            return can_cast_implicitly(one, other)
        case Map(key, value), Map(other_key, other_value):
            return can_cast_implicitly(key, other_key) and can_cast_implicitly(value, other_value)
        case Struct(fields), Struct():
            found = [(kind, target.field(name)) for name, kind in fields]
            return all(wanted is not None and can_cast_implicitly(kind, wanted) for kind, wanted in found)
    return False


def _widens(source: SqlType, target: SqlType) -> bool:
    if target == DOUBLE:
        return True
    if isinstance(target, Decimal):
        own = as_decimal(source)
        return (
            own is not None
            and own.scale <= target.scale
            and own.precision - own.scale <= target.precision - target.scale
        )
    return source == INTEGER and target == BIGINT


def fits_column(source: SqlType, target: SqlType) -> bool:
    """Return whether a value may be written into a column: a number into any DECIMAL, where its size is checked
    later."""
    exact = isinstance(target, Decimal) and (source in (INTEGER, BIGINT) or isinstance(source, Decimal))
    return exact or can_cast_implicitly(source, target)


def common_type(first: SqlType, second: SqlType) -> SqlType | None:
    """Return the type that both can be turned into; None if there is none."""
    if first == second or second == NULL_TYPE:
        return first
    if first == NULL_TYPE:
        return second
    if is_number(first) and is_number(second):
        return wider_number(first, second)
    match first, second:
        case Array(one), Array(other):
            element = common_type(one, other)
            return None if element is None else Array(element)
        case Map(key, value), Map(other_key, other_value):
            keys, values = common_type(key, other_key), common_type(value, other_value)
            return None if keys is None or values is None else Map(keys, values)
        case Struct(), Struct():
            return _common_struct(first, second)
    if can_cast_implicitly(first, second):
        return second
    return first if can_cast_implicitly(second, first) else None


def _common_struct(first: Struct, second: Struct) -> Struct | None:
    fields: list[tuple[str, SqlType]] = []
    for name, kind in first.fields:
        other = second.field(name)
        found = kind if other is None else common_type(kind, other)
        if found is None:
            return None
        fields.append((name, found))
    fields += [(name, kind) for name, kind in second.fields if first.field(name) is None]
    return Struct(tuple(fields))


def literal_value(text: str, target: SqlType) -> Value:
    """Return the value that a string literal in a list has if the other items are of the target type. Raises
    EvaluationFailure."""
    if target == BOOLEAN:
        word = text.strip().lower()
        for whole, value in (("true", True), ("yes", True), ("false", False), ("no", False)):
            if word and whole.startswith(word):
                return value
        raise EvaluationFailure(f'invalid input syntax for type BOOLEAN: "{text}"')
    if target in (INTEGER, BIGINT):
        # A number may be written as 2e1, if it is whole.
        number = parse_decimal(text)
        limit = 2**31 if target == INTEGER else 2**63
        if number != number.to_integral_value() or not -limit <= number < limit:
            raise EvaluationFailure(f"{text} is no {target}")
        return int(number)
    cast = caster(STRING, target)
    if cast is None:
        raise EvaluationFailure(f"{text} is no {target}")
    return cast(text)


def literal_fits(text: str, target: SqlType) -> bool:
    """Return whether a string literal in a list can be converted to the type."""
    try:
        literal_value(text, target)
    except EvaluationFailure:
        return False
    return True


def number_type_of(text: str) -> SqlType | None:
    """Return the type of a number in text; None if the text is no number."""
    for kind in (INTEGER, BIGINT):
        if literal_fits(text, kind):
            return kind
    try:
        value = parse_decimal(text)
    except EvaluationFailure:
        return None
    if "e" in text.lower():
        return DOUBLE
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return Decimal(max(len(digits), scale, 1), scale)
