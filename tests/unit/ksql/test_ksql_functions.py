"""Every function has documentation and examples, and its examples give the documented results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pessoa.ksql.functions.aggregates import aggregate_functions, resolve_aggregate
from pessoa.ksql.functions.function_table import known_names, scalar_functions
from pessoa.ksql.functions.signatures import parse_signature
from pessoa.ksql.functions.table_functions import table_functions
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.expression_nodes import Call, Literal
from pessoa.ksql.types.sql_types import BIGINT, BOOLEAN, INTEGER, STRING, Array, EvaluationFailure, Value
from tests.support.ksql_texts import parse_expression_text
from tests.unit.ksql.ksql_evaluation import evaluate, typed

# The reference's list, without CAST, ARRAY and MAP, which are syntax.
REFERENCE = """
ABS ACOS ASIN ATAN ATAN2 CBRT CEIL COS COSH COT DEGREES ENTRIES EXP FLOOR GENERATE_SERIES GEO_DISTANCE GREATEST LEAST
LN LOG PI POWER RADIANS RANDOM ROUND SIGN SIN SINH SQRT TAN TANH TRUNC AS_VALUE ARRAY_CONCAT ARRAY_CONTAINS
ARRAY_DISTINCT ARRAY_EXCEPT ARRAY_INTERSECT ARRAY_JOIN ARRAY_LENGTH ARRAY_MAX ARRAY_MIN ARRAY_REMOVE ARRAY_SORT
ARRAY_UNION AS_MAP ELT FIELD JSON_ARRAY_CONTAINS MAP_KEYS MAP_VALUES MAP_UNION SLICE FILTER REDUCE TRANSFORM CHR
CONCAT CONCAT_WS ENCODE EXTRACTJSONFIELD FROM_BYTES IS_JSON_STRING JSON_ARRAY_LENGTH JSON_CONCAT JSON_KEYS
JSON_RECORDS JSON_ITEMS TO_JSON_STRING INITCAP INSTR LCASE LEN LPAD MASK MASK_KEEP_LEFT MASK_KEEP_RIGHT MASK_LEFT
MASK_RIGHT MD5 REPLACE REGEXP_EXTRACT REGEXP_EXTRACT_ALL REGEXP_REPLACE REGEXP_SPLIT_TO_ARRAY RPAD SPLIT SPLIT_TO_MAP
SUBSTRING TO_BYTES TRIM UCASE UUID BIGINT_FROM_BYTES DOUBLE_FROM_BYTES INT_FROM_BYTES COALESCE IFNULL NULLIF
CONVERT_TZ DATEADD DATESUB FORMAT_DATE FORMAT_TIME FORMAT_TIMESTAMP FROM_DAYS FROM_UNIXTIME PARSE_DATE PARSE_TIME
PARSE_TIMESTAMP TIMEADD TIMESUB TIMESTAMPADD TIMESTAMPSUB UNIX_DATE UNIX_TIMESTAMP DATETOSTRING STRINGTODATE
STRINGTOTIMESTAMP TIMESTAMPTOSTRING URL_DECODE_PARAM URL_ENCODE_PARAM URL_EXTRACT_FRAGMENT URL_EXTRACT_HOST
URL_EXTRACT_PARAMETER URL_EXTRACT_PATH URL_EXTRACT_PORT URL_EXTRACT_PROTOCOL URL_EXTRACT_QUERY AVG COLLECT_LIST
COLLECT_SET CORRELATION COUNT COUNT_DISTINCT EARLIEST_BY_OFFSET HISTOGRAM LATEST_BY_OFFSET MAX MIN STDDEV_SAMP
STDDEV_SAMPLE SUM TOPK TOPKDISTINCT ATTR EXPLODE CUBE_EXPLODE
""".split()  # fmt: skip

# Looked at before any test runs: some load functions of their own.
KNOWN = known_names()
EXAMPLES = [(name, example) for name, row in scalar_functions().items() for example in row.examples]


def test_the_function_table_has_all_functions_of_ksqldb() -> None:
    assert sorted(REFERENCE) == KNOWN


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_the_documented_examples_of_a_scalar_function_hold(name: str, example: str) -> None:
    assert name in example
    assert evaluate(example) is True


@pytest.mark.parametrize("row", scalar_functions().values(), ids=lambda row: row.name)
def test_every_function_is_documented(row: object) -> None:
    from pessoa.ksql.functions.function_rows import Function

    assert isinstance(row, Function)
    assert row.doc.endswith(".")
    assert row.examples
    assert re.fullmatch(r"[A-Z /]+", row.category)


def feed(call: str, columns: tuple[str, ...]) -> tuple[object, Value, Value]:
    """Return the aggregate, its result over the rows, and its result when half of the rows come from a merged state."""
    node = parse_expression_text(call)
    assert isinstance(node, Call)
    arrays = [typed(column) for column in columns]
    kinds = [array.type.element for array in arrays if isinstance(array.type, Array)]
    literals = [argument for argument in node.arguments if isinstance(argument, Literal)]
    resolved = resolve_aggregate(node.name, [*kinds, *(one.type for one in literals)], [one.value for one in literals])
    rows = list(zip(*(evaluate(column) for column in columns), strict=True))
    aggregate = resolved.aggregate
    whole = aggregate.initial()
    for row in rows:
        whole = aggregate.add(whole, row)
    first, second = aggregate.initial(), aggregate.initial()
    for row in rows[: len(rows) // 2]:
        first = aggregate.add(first, row)
    for row in rows[len(rows) // 2 :]:
        second = aggregate.add(second, row)
    return resolved, aggregate.result(whole), aggregate.result(aggregate.merge(first, second))


AGGREGATES = [(row.name, *example) for row in aggregate_functions().values() for example in row.examples]


@pytest.mark.parametrize(("name", "call", "columns", "expected"), AGGREGATES)
def test_the_documented_examples_of_an_aggregate_hold_also_when_states_are_merged(
    name: str, call: str, columns: tuple[str, ...], expected: str
) -> None:
    _, result, merged = feed(call, columns)
    assert result == (pytest.approx(evaluate(expected)) if isinstance(result, float) else evaluate(expected))
    assert merged == pytest.approx(result) if isinstance(result, float) else merged == result


UNDOABLE = ["COUNT(x)", "SUM(x)", "AVG(x)", "COLLECT_LIST(x)", "STDDEV_SAMP(x)", "STDDEV_SAMPLE(x)", "ATTR(x)"]


@pytest.mark.parametrize("call", UNDOABLE)
def test_undo_of_an_aggregate_reverts_add(call: str) -> None:
    from pessoa.ksql.functions.aggregates import ResolvedAggregate

    resolved, before, _ = feed(call, ("ARRAY[1, 5, 2]",))
    assert isinstance(resolved, ResolvedAggregate)
    aggregate = resolved.aggregate
    assert aggregate.undo is not None
    state = aggregate.initial()
    for value in (1, 7, 5, None, 2):
        state = aggregate.add(state, (value,))
    for value in (None, 7):
        state = aggregate.undo(state, (value,))
    assert aggregate.result(state) == pytest.approx(before)


def test_only_some_aggregates_support_undo() -> None:
    can = {name for name, row in aggregate_functions().items()
           if row.variants[0].make((INTEGER, INTEGER), (1,)).undo is not None}  # fmt: skip
    assert can == {
        "COUNT",
        "SUM",
        "AVG",
        "COLLECT_LIST",
        "HISTOGRAM",
        "STDDEV_SAMP",
        "STDDEV_SAMPLE",
        "CORRELATION",
        "ATTR",
    }


def test_count_distinct_is_about_one_percent_off() -> None:
    aggregate = resolve_aggregate("COUNT_DISTINCT", [INTEGER], []).aggregate
    state = aggregate.initial()
    for value in range(20_000):
        state = aggregate.add(state, (value,))
    found = aggregate.result(state)
    assert isinstance(found, int)
    assert abs(found - 20_000) < 600


def test_a_sum_that_exceeds_its_decimal_type_fails_the_query() -> None:
    from pessoa.ksql.functions.aggregate_states import AggregationFailure
    from pessoa.ksql.types.sql_types import Decimal

    aggregate = resolve_aggregate("SUM", [Decimal(2, 1)], []).aggregate
    with pytest.raises(AggregationFailure):
        aggregate.add(aggregate.initial(), (evaluate("10.0"),))


@pytest.mark.parametrize("row", table_functions().values(), ids=lambda row: row.name)
def test_the_documented_examples_of_a_table_function_hold(row: object) -> None:
    from pessoa.ksql.functions.function_rows import Function

    assert isinstance(row, Function)
    for example in row.examples:
        call, _, expected = example.partition(" = ")
        assert evaluate(call) == evaluate(expected)
    assert evaluate(f"{row.name}(CAST(NULL AS ARRAY<INT>))") == []


FAILING = [
    "SUBSTRING('a', 1, CAST('x' AS INT))",
    "PARSE_DATE('2026-11-17 10', 'yyyy-MM-dd HH')",
    "PARSE_DATE('x', 'yyyy')",
    "FORMAT_DATE(DATE '2026-11-17', 'HH')",
    "FORMAT_TIMESTAMP(TIMESTAMP '2026', 'yyyy', 'Nowhere/Land')",
    "PARSE_TIMESTAMP('2026-02-30', 'yyyy-MM-dd')",
    "FORMAT_DATE(DATE '2026', 'bbb')",
    "FORMAT_DATE(DATE '2026', '''x')",
    "EXTRACTJSONFIELD('{', '$.a')",
    "EXTRACTJSONFIELD('{}', 'a')",
    "ENCODE('zz', 'hex', 'utf8')",
    "ENCODE('578', 'hex', 'utf8')",
    "ENCODE('x''578''', 'hex', 'utf8')",
    "ENCODE('a', 'utf9', 'hex')",
    "REGEXP_EXTRACT('(', 'a')",
    "REGEXP_REPLACE('a', 'a', '$5')",
    "CHR(-1)",
    "GENERATE_SERIES(1, 5, -1)",
    "GENERATE_SERIES(1, 5, 0)",
    "GENERATE_SERIES(1, 2000000000)",
    "LPAD('a', 2000000000, 'x')",
    "URL_EXTRACT_HOST('a b')",
    "INT_FROM_BYTES(TO_BYTES('00', 'hex'))",
    "GEO_DISTANCE(1, 1, 1, 1, 'ELLS')",
    "MASK_LEFT('a', -1)",
    "ARRAY_SORT(ARRAY[1], 'UP')",
    "DATEADD(DAYS, 2000000000, DATE '2026-01-01')",
]


@pytest.mark.parametrize("call", FAILING)
def test_a_function_call_that_cannot_be_computed_raises_evaluation_failure(call: str) -> None:
    with pytest.raises(EvaluationFailure):
        evaluate(call)


NULLS = [
    """EXTRACTJSONFIELD('{"a": [1]}', '$.a[-1]')""",
    "UCASE(NULL)",
    "ARRAY_LENGTH(CAST(NULL AS ARRAY<INT>))",
    "SLICE(ARRAY[1], 0, 1)",
    "REGEXP_EXTRACT('a', 'b')",
    "CONCAT_WS(NULL, 'a')",
    "JSON_ITEMS('x')",
    "JSON_KEYS('[')",
    "TRANSFORM(CAST(NULL AS ARRAY<INT>), x => x)",
    "REDUCE(ARRAY[1], CAST(NULL AS INT), (s, x) => s + x)",
    "GREATEST(NULL, CAST(NULL AS INT))",
    "URL_EXTRACT_QUERY('http://a')",
    "URL_EXTRACT_FRAGMENT('http://a')",
    "ARRAY_MAX(ARRAY[CAST(NULL AS INT)])",
    "JSON_CONCAT('1', NULL)",
    "ELT(5, 'a')",
    "FROM_BYTES(TO_BYTES('é', 'base64'), 'utf8')",
]


@pytest.mark.parametrize("call", NULLS)
def test_a_function_call_without_a_result_returns_null(call: str) -> None:
    assert evaluate(call) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("0x541", "\x05A"), ("X'41'", "A"), ("0x", ""), ("x''", ""), ("41", "A"), ("0X41", "A")]
)
def test_hex_literals_have_three_spellings(text: str, expected: str) -> None:
    assert evaluate("ENCODE(x, 'hex', 'utf8')", {"X": "STRING"}, {"X": text}) == expected


def test_an_unknown_function_gets_a_suggestion() -> None:
    with pytest.raises(SemanticFailure, match="Can't find any functions with the name 'UCAS'") as caught:
        evaluate("1 + UCAS('a')")
    assert caught.value.hint == "Did you mean UCASE?"
    assert caught.value.at.column == 5


def test_the_error_for_wrong_arguments_lists_the_signatures() -> None:
    with pytest.raises(SemanticFailure, match=r"Function 'LEN' does not accept parameters \(INTEGER\)") as caught:
        evaluate("LEN(1)")
    assert "LEN(STRING) INTEGER" in caught.value.hint
    assert "LEN(BYTES) INTEGER" in caught.value.hint


def test_the_overload_nearest_to_the_argument_types_is_chosen() -> None:
    assert typed("ABS(1)").type == INTEGER
    assert typed("ABS(CAST(1 AS BIGINT))").type == BIGINT
    assert str(typed("ABS(1.5)").type) == "DECIMAL(2, 1)"
    assert str(typed("ROUND(12.345)").type) == "DECIMAL(2, 0)"
    assert str(typed("ROUND(12.345, 1)").type) == "DECIMAL(5, 3)"
    assert str(typed("SQRT(4)").type) == "DOUBLE"
    assert typed("COALESCE(NULL, 1, CAST(2 AS BIGINT))").type == BIGINT
    assert typed("FILTER(ARRAY['a'], x => x = 'a')").type == Array(STRING)
    assert typed("TRANSFORM(ARRAY['a'], x => x = 'a')").type == Array(BOOLEAN)
    assert str(typed("ENTRIES(MAP('a' := 1), TRUE)").type) == "ARRAY<STRUCT<`K` STRING, `V` INTEGER>>"


def test_function_signatures_parse_back_from_their_text() -> None:
    for row in scalar_functions().values():
        for variant in row.variants:
            if "STRUCT" not in str(variant.signature) and "LAMBDA" not in str(variant.signature):
                assert parse_signature(str(variant.signature)) == variant.signature


def test_random_and_time_functions_use_the_injected_entropy_and_clock() -> None:
    assert evaluate("UNIX_TIMESTAMP()") == 1_794_911_400_000
    assert evaluate("RANDOM()") == evaluate("RANDOM()")
    assert evaluate("UUID()") == evaluate("UUID()")


def test_hostile_patterns_and_documents_end_in_bounded_time() -> None:
    assert evaluate("REGEXP_EXTRACT('(a+)+$', x)", {"X": "STRING"}, {"X": "a" * 5_000 + "b"}) is None
    assert evaluate("x LIKE '%a%a%a%a%a%a%a%a%a%b'", {"X": "STRING"}, {"X": "a" * 3_000}) is False
    with pytest.raises(EvaluationFailure):
        evaluate("EXTRACTJSONFIELD(x, '$.a')", {"X": "STRING"}, {"X": "[" * 100_000})


def test_importing_the_ksql_front_end_loads_no_third_party_library() -> None:
    import subprocess
    import sys

    code = (
        "import sys; import pessoa.ksql.syntax.parser, pessoa.ksql.evaluate.expression_functions; "
        "heavy = ('re2', 'pyspark', 'pandas', 'starlette', 'asyncio'); "
        "print(sorted(name for name in sys.modules if name.split('.')[0] in heavy))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(root / "src")}, check=True
    )
    assert done.stdout.strip() == "[]"
