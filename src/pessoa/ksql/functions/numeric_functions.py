"""Numbers: rounding, roots, trigonometry, series, distances on Earth."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable

from pessoa.ksql.functions.function_rows import EvaluationContext, Function, Variant, function, variant
from pessoa.ksql.types.number_arithmetic import wrap_bigint, wrap_integer
from pessoa.ksql.types.sql_types import Decimal, EvaluationFailure, SqlType, Value

_CATEGORY = "MATHEMATICAL"
_EARTH_KM, _EARTH_MILES = 6371.0, 3959.0
# A series is made whole in memory.
_LONGEST_SERIES = 1_000_000
_ROOM = decimal.Context(prec=1_000)


def _with_nan_outside_domain(compute: Callable[..., float]) -> Callable[..., float]:
    """Return the function with Java's results: NaN outside of its domain, infinity if it overflows."""

    def compute_or_nan(*values: float) -> float:
        try:
            return compute(*map(float, values))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return compute_or_nan


def _ln(value: float) -> float:
    return -math.inf if value == 0 else math.log(value)


def _log(base: float, value: float) -> float:
    denominator = _ln(base)
    return math.nan if denominator == 0 else _ln(value) / denominator


def _power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        return math.inf
    return math.pow(base, exponent)


def _cbrt(value: float) -> float:
    root = math.cbrt(value)
    # Of a cube the root is exact.
    return float(round(root)) if math.isfinite(root) and round(root) ** 3 == value else root


def _cot(value: float) -> float:
    tangent = math.tan(value)
    return math.copysign(math.inf, tangent) if tangent == 0 else 1 / tangent


def _double(name: str, doc: str, example: str, compute: Callable[..., float]) -> Function:
    return function(name, _CATEGORY, doc, [example], variant("(DOUBLE) DOUBLE", _with_nan_outside_domain(compute)))


def _type_of_argument(types: tuple[SqlType, ...]) -> SqlType:
    return types[0]


def _integral_type(types: tuple[SqlType, ...]) -> SqlType:
    kind = types[0]
    assert isinstance(kind, Decimal)
    return Decimal(max(1, kind.precision - kind.scale), 0)


def _by_kind(
    whole: Callable[[int], int], double: Callable[[float], float], exact: Callable[[decimal.Decimal], decimal.Decimal]
) -> list[Variant]:
    """Return the variants of a function whose result has the type of its argument."""
    return [
        variant("(INTEGER) INTEGER", lambda value: wrap_integer(whole(value))),
        variant("(BIGINT) BIGINT", lambda value: wrap_bigint(whole(value))),
        variant("(DOUBLE) DOUBLE", double),
        variant("(DECIMAL) DECIMAL", exact, returns=_type_of_argument),
    ]


def _double_integral(rounding: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(rounding(value)) if math.isfinite(value) else value


def _decimal_integral(rounding: str) -> Callable[[decimal.Decimal], decimal.Decimal]:
    def rounded(value: decimal.Decimal) -> decimal.Decimal:
        whole = value.quantize(decimal.Decimal(1), rounding=rounding, context=_ROOM)
        return whole.quantize(value, context=_ROOM)

    return rounded


def _round_to(value: decimal.Decimal, digits: int, rounding: str) -> decimal.Decimal:
    """Return the value rounded to so many digits behind the point, with its own scale."""
    places = min(max(digits, -400), 400)
    return value.quantize(decimal.Decimal(1).scaleb(-places), rounding=rounding, context=_ROOM).quantize(
        value, context=_ROOM
    )


def _half_up_mode(value: decimal.Decimal) -> str:
    """Return the rounding that goes towards plus infinity from the middle: 1.5 → 2, -1.5 → -1."""
    return decimal.ROUND_HALF_DOWN if value < 0 else decimal.ROUND_HALF_UP


def _round(value: float) -> int:
    if math.isnan(value):
        return 0
    if abs(value) >= 2**63:
        return 2**63 - 1 if value > 0 else -(2**63)
    return int(
        decimal.Decimal(value).quantize(
            decimal.Decimal(1), rounding=_half_up_mode(decimal.Decimal(value)), context=_ROOM
        )
    )


def _round_double(value: float, digits: int) -> float:
    if not math.isfinite(value):
        return value
    exact = decimal.Decimal(repr(value))
    places = decimal.Decimal(1).scaleb(-min(max(digits, -400), 400))
    # No minus zero.
    return float(exact.quantize(places, rounding=_half_up_mode(exact), context=_ROOM)) + 0.0


def _truncate(value: float) -> int:
    if math.isnan(value):
        return 0
    return max(-(2**63), min(2**63 - 1, int(value))) if math.isfinite(value) else (2**63 - 1 if value > 0 else -(2**63))


def _truncate_double(value: float, digits: int) -> float:
    if not math.isfinite(value):
        return value
    places = decimal.Decimal(1).scaleb(-min(max(digits, -400), 400))
    return float(decimal.Decimal(repr(value)).quantize(places, rounding=decimal.ROUND_DOWN, context=_ROOM))


def _sign(value: decimal.Decimal) -> int:
    return (value > 0) - (value < 0)


def _series(start: int, end: int, step: int | None = None) -> list[int]:
    stride = step if step is not None else (1 if end >= start else -1)
    if stride == 0:
        raise EvaluationFailure("GENERATE_SERIES step cannot be zero")
    if (end - start) * stride < 0:
        raise EvaluationFailure("GENERATE_SERIES step has wrong sign")
    if (end - start) // stride >= _LONGEST_SERIES:
        raise EvaluationFailure(f"GENERATE_SERIES has more than {_LONGEST_SERIES} values")
    return list(range(start, end + (1 if stride > 0 else -1), stride))


def geo_distance(lat1: float, lon1: float, lat2: float, lon2: float, unit: str = "KM") -> float:
    """Return the length of the great circle between two points (haversine)."""
    word = unit.upper()
    if word not in ("KM", "MI", "MILE", "MILES", "KILOMETER", "KILOMETERS"):
        raise EvaluationFailure(f"GEO_DISTANCE: unknown unit {unit}")
    if not all(map(math.isfinite, (lat1, lat2, lon2 - lon1))):
        return math.nan
    first, second = math.radians(lat1), math.radians(lat2)
    half = math.sin((second - first) / 2) ** 2
    half += math.cos(first) * math.cos(second) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    return 2 * (_EARTH_MILES if word.startswith("MI") else _EARTH_KM) * math.asin(min(1.0, math.sqrt(half)))


def _random(around: EvaluationContext) -> float:
    return (int.from_bytes(around.octets(8), "big") >> 11) / 2**53


def _largest(*values: Value) -> Value:
    return max((value for value in values if value is not None), default=None)  # type: ignore[type-var]


def _smallest(*values: Value) -> Value:
    return min((value for value in values if value is not None), default=None)  # type: ignore[type-var]


_ROWS_OF_DOUBLES = [
    _double("ACOS", "The arc cosine, in radians.", "ACOS(1) = 0e0", math.acos),
    _double("ASIN", "The arc sine, in radians.", "ASIN(0) = 0e0", math.asin),
    _double("ATAN", "The arc tangent, in radians.", "ATAN(0) = 0e0", math.atan),
    _double("CBRT", "The cube root.", "CBRT(-27e0) = -3e0", _cbrt),
    _double("COS", "The cosine of an angle in radians.", "COS(0) = 1e0", math.cos),
    _double("COSH", "The hyperbolic cosine.", "COSH(0) = 1e0", math.cosh),
    _double("COT", "The cotangent of an angle in radians.", "ROUND(COT(1), 3) = 0.642e0", _cot),
    _double("DEGREES", "An angle in radians, in degrees.", "DEGREES(PI()) = 180e0", math.degrees),
    _double("EXP", "e to the power of the argument.", "EXP(0) = 1e0", math.exp),
    _double("LN", "The natural logarithm.", "LN(1) = 0e0", _ln),
    _double("RADIANS", "An angle in degrees, in radians.", "RADIANS(180) = PI()", math.radians),
    _double("SIN", "The sine of an angle in radians.", "SIN(0) = 0e0", math.sin),
    _double("SINH", "The hyperbolic sine.", "SINH(0) = 0e0", math.sinh),
    _double("SQRT", "The square root.", "SQRT(16) = 4e0", math.sqrt),
    _double("TAN", "The tangent of an angle in radians.", "TAN(0) = 0e0", math.tan),
    _double("TANH", "The hyperbolic tangent.", "TANH(0) = 0e0", math.tanh),
]

ROWS: list[Function] = [
    *_ROWS_OF_DOUBLES,
    function(
        "ABS",
        _CATEGORY,
        "The absolute value.",
        ["ABS(-5) = 5", "ABS(-1.5) = 1.5"],
        *_by_kind(abs, abs, lambda value: value.copy_abs()),
    ),
    function(
        "CEIL",
        _CATEGORY,
        "The smallest whole number that is not less.",
        ["CEIL(1.2e0) = 2e0", "CEIL(-1.5) = -1.0"],
        *_by_kind(lambda value: value, _double_integral(math.ceil), _decimal_integral(decimal.ROUND_CEILING)),
    ),
    function(
        "FLOOR",
        _CATEGORY,
        "The largest whole number that is not greater.",
        ["FLOOR(1.8e0) = 1e0", "FLOOR(-1.5) = -2.0"],
        *_by_kind(lambda value: value, _double_integral(math.floor), _decimal_integral(decimal.ROUND_FLOOR)),
    ),
    function(
        "ATAN2",
        _CATEGORY,
        "The angle of the point (x, y), given y and x.",
        ["ATAN2(0, 1) = 0e0"],
        variant("(DOUBLE, DOUBLE) DOUBLE", math.atan2),
    ),
    function(
        "LOG",
        _CATEGORY,
        "The natural logarithm, or the one to a base.",
        ["LOG(1) = 0e0", "LOG(2, 8) = 3e0"],
        variant("(DOUBLE) DOUBLE", _with_nan_outside_domain(_ln)),
        variant("(DOUBLE, DOUBLE) DOUBLE", _with_nan_outside_domain(_log)),
    ),
    function(
        "POWER",
        _CATEGORY,
        "The base to the power of the exponent.",
        ["POWER(2, 10) = 1024e0"],
        variant("(DOUBLE, DOUBLE) DOUBLE", _with_nan_outside_domain(_power)),
    ),
    function("PI", _CATEGORY, "The number pi.", ["ROUND(PI(), 2) = 3.14e0"], variant("() DOUBLE", lambda: math.pi)),
    function(
        "RANDOM",
        _CATEGORY,
        "A random number from 0 up to 1.",
        ["RANDOM() < 1"],
        variant("() DOUBLE", _random, takes_context=True),
    ),
    function(
        "ROUND",
        _CATEGORY,
        "Rounded; from the middle towards plus infinity.",
        [
            "ROUND(2.5e0) = 3",
            "ROUND(-1.5e0) = -1",
            "ROUND(1.25, 1) = 1.30",
            "ROUND(12.5) = 13.",
            "ROUND(1.234e0, 2) = 1.23e0",
        ],
        variant("(BIGINT) BIGINT", lambda value: value),
        variant("(DOUBLE) BIGINT", _round),
        variant(
            "(DECIMAL) DECIMAL",
            lambda value: value.quantize(decimal.Decimal(1), rounding=_half_up_mode(value), context=_ROOM),
            returns=_integral_type,
        ),
        variant(
            "(BIGINT, INTEGER) BIGINT",
            lambda value, n: wrap_bigint(int(_round_to(decimal.Decimal(value), n, _half_up_mode(value)))),
        ),
        variant("(DOUBLE, INTEGER) DOUBLE", _round_double),
        variant(
            "(DECIMAL, INTEGER) DECIMAL",
            lambda value, n: _round_to(value, n, _half_up_mode(value)),
            returns=_type_of_argument,
        ),
    ),
    function(
        "TRUNC",
        _CATEGORY,
        "Cut off behind the point, or behind so many digits: towards zero.",
        ["TRUNC(1.9e0) = 1", "TRUNC(-1.9e0) = -1", "TRUNC(1.29, 1) = 1.20", "TRUNC(12.9) = 12."],
        variant("(INTEGER) INTEGER", lambda value: value),
        variant("(BIGINT) BIGINT", lambda value: value),
        variant("(DOUBLE) BIGINT", _truncate),
        variant(
            "(DECIMAL) DECIMAL",
            lambda value: value.quantize(decimal.Decimal(1), rounding=decimal.ROUND_DOWN, context=_ROOM),
            returns=_integral_type,
        ),
        variant(
            "(BIGINT, INTEGER) BIGINT", lambda value, n: int(_round_to(decimal.Decimal(value), n, decimal.ROUND_DOWN))
        ),
        variant("(DOUBLE, INTEGER) DOUBLE", _truncate_double),
        variant(
            "(DECIMAL, INTEGER) DECIMAL",
            lambda value, n: _round_to(value, n, decimal.ROUND_DOWN),
            returns=_type_of_argument,
        ),
    ),
    function(
        "SIGN",
        _CATEGORY,
        "-1, 0 or 1.",
        ["SIGN(-3) = -1", "SIGN(0.0) = 0"],
        variant("(BIGINT) INTEGER", _sign),
        variant("(DOUBLE) INTEGER", _sign),
        variant("(DECIMAL) INTEGER", _sign),
    ),
    function(
        "GREATEST",
        _CATEGORY,
        "The largest argument that is not null.",
        ["GREATEST(3, 7, 5) = 7", "GREATEST('a', NULL, 'b') = 'b'"],
        variant("(T, T...) T", _largest, sees_null=True),
    ),
    function(
        "LEAST",
        _CATEGORY,
        "The smallest argument that is not null.",
        ["LEAST(3, 7, 2.5e0) = 2.5e0"],
        variant("(T, T...) T", _smallest, sees_null=True),
    ),
    function(
        "GENERATE_SERIES",
        "ARRAY",
        "The numbers from start to end, both inclusive, a step apart.",
        [
            "GENERATE_SERIES(1, 3) = ARRAY[1, 2, 3]",
            "GENERATE_SERIES(5, 1, -2) = ARRAY[5, 3, 1]",
            "GENERATE_SERIES(3, 1) = ARRAY[3, 2, 1]",
        ],
        variant("(INTEGER, INTEGER) ARRAY<INTEGER>", _series),
        variant("(BIGINT, BIGINT) ARRAY<BIGINT>", _series),
        variant("(INTEGER, INTEGER, INTEGER) ARRAY<INTEGER>", _series),
        variant("(BIGINT, BIGINT, INTEGER) ARRAY<BIGINT>", _series),
    ),
    function(
        "GEO_DISTANCE",
        "MATHEMATICAL",
        "The distance of two points (latitude, longitude) on Earth, in KM or MI.",
        [
            "ROUND(GEO_DISTANCE(37.4133e0, -122.1162e0, 36.4133e0, -122.1162e0)) = 111",
            "ROUND(GEO_DISTANCE(37.4133e0, -122.1162e0, 36.4133e0, -122.1162e0, 'MI')) = 69",
        ],
        variant("(DOUBLE, DOUBLE, DOUBLE, DOUBLE) DOUBLE", geo_distance),
        variant("(DOUBLE, DOUBLE, DOUBLE, DOUBLE, STRING) DOUBLE", geo_distance),
    ),
]
