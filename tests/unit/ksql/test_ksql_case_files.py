"""Case files: their syntax, and the errors in them."""

from __future__ import annotations

import pytest

from pessoa.ksql.case_files import CaseBytes, CaseProblem, CaseSchema, read_cases
from pessoa.ksql.operators.case_runner import CaseFailure, run_case

FILE = """# About something.

given:
CREATE STREAM s (id STRING KEY, n INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');

## first
CREATE STREAM o AS SELECT * FROM s EMIT CHANGES;
settings:
a.b = c = d
schemas:
s-value AVRO {"type": "int"}
in:
s "a" {"n": 1} @10 partition=3 headers={"h": "v", "g": null}
s hex:00ff null window=5..9 schema=1 key_schema=2
# A remark.
out:
log:
0 something

## second
in:
s "a" {"n": 1}
each:
n + 1 ==> 2
TRANSFORM(ARRAY[1], x => x + 1) ==> [2]
"""


def test_a_case_file_is_parsed_into_its_cases() -> None:
    first, second, third = read_cases(FILE)
    assert first.name == "first"
    assert first.statements.startswith("CREATE STREAM o")
    assert first.settings == (("a.b", "c = d"),)
    assert first.schemas == (CaseSchema("s-value", "AVRO", '{"type": "int"}'),)
    one, other = first.inputs
    assert (one.topic, one.key, one.value, one.timestamp_ms, one.partition) == ("s", '"a"', '{"n": 1}', 10, 3)
    assert one.headers == (("h", "v"), ("g", None))
    assert (other.key, other.value, other.window) == (CaseBytes(b"\0\xff"), None, (5, 9))
    assert (other.schema_id, other.key_schema_id) == (1, 2)
    assert first.outputs == ()
    assert first.rows is None
    assert first.error is None
    assert first.log == ((0, "something"),)
    assert second.name == "second: n + 1"
    assert third.statements.endswith("SELECT TRANSFORM(ARRAY[1], x => x + 1) AS X FROM S EMIT CHANGES;")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT 1;", "line 1: a case begins with '## name'"),
        ("## a\ngiven:\n", "line 2: given: stands before the cases"),
        ("in:\n## a\n", "line 1: in: stands behind the cases"),
        ("## a\nSELECT 1;\n", "line 1: the case 'a' expects nothing"),
        ("## a\nout:\n## a\nout:\n", "line 3: the case 'a' is there already, in line 1"),
        ("## a\nin:\ns {bad\nout:\n", "line 3: no JSON at column 3"),
        ('## a\nin:\ns "a" 1 @soon\nout:\n', "line 3: @ needs milliseconds since 1970"),
        ('## a\nin:\ns "a" 1 what=5\nout:\n', "line 3: what is 'what=5'?"),
        ('## a\nin:\ns "a" 1 window=x\nout:\n', "line 3: window= needs a number"),
        ("## a\nrows:\n5\n", "line 3: a row is a JSON array"),
        ("## a\nlog:\nwarn x\n", "line 3: an entry of the log begins with its type, 0 to 3"),
        ("## a\nsettings:\nx\nout:\n", "line 3: a setting is 'name = value'"),
        ("## a\nschemas:\nx y\nout:\n", "line 3: a schema is 'subject AVRO|JSON|PROTOBUF text'"),
        ("## a\neach:\nx = 1\n", "line 3: 'expression ==> value' is needed"),
    ],
)
def test_an_error_in_a_case_file_is_reported_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(CaseProblem) as failure:
        read_cases(text)
    assert problem in str(failure.value)


GIVEN = "given:\nCREATE STREAM s (id STRING KEY, n INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');\n## a\n"
QUERY = 'CREATE STREAM o AS SELECT * FROM s EMIT CHANGES;\nin:\ns "k" {"n": 1} @5\n'


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (QUERY + 'out:\nO "k" {"N": 2}\n', "O, record 1 (line 8): expected"),
        (QUERY + 'out:\nO "k" {"N": 1} @6\n', "expected"),
        (QUERY + 'out:\nO "l" {"N": 1}\n', "expected"),
        (QUERY + "out:\n", "expected\n  nothing more\nbut it is\n  'k' {'N': 1} @5"),
        (QUERY + 'out:\nO "k" {"N": 1}\nO "k" {"N": 1}\n', "but it is\n  nothing more"),
        (QUERY + 'out:\nO "k" {"N": true}\n', "expected"),
        (QUERY + 'out:\nO "k" {"N": 1} headers={"x": "y"}\n', "expected"),
        (QUERY + 'out:\nO "k" {"N": 1} window=1\n', "expected"),
        (QUERY + "log:\n0 bad\n", "expected in the log"),
        (QUERY + "error:\nbad\n", "expected an error, and there was none"),
        (QUERY + "rows:\n[1]\n", "has no push query"),
        ('SELECT n FROM s EMIT CHANGES;\nin:\ns "k" {"n": 1}\nrows:\n[2]\n', "row 1: expected"),
        ('SELECT n FROM s EMIT CHANGES;\nin:\ns "k" {"n": 1}\nrows:\n', "row 1: expected"),
        ("SELECT x FROM s EMIT CHANGES;\nerror:\nanother\n", "expected an error with\n  another\nbut it is"),
        ('SELECT n FROM s EMIT CHANGES;\nin:\nnowhere "k" 1\nrows:\n', "no stream or table has the topic nowhere"),
    ],
)
def test_a_case_that_expects_something_else_fails(text: str, failure: str) -> None:
    (case,) = read_cases(GIVEN + text)
    with pytest.raises(CaseFailure) as raised:
        run_case(case)
    assert failure in str(raised.value)
