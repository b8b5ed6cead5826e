"""User functions are part of what is sent to Spark's workers, which do not read ksql.extension.dir."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from pessoa.ksql.server.function_loading import load_directory
from pessoa.ksql.spark.ordered_program import StageArgument
from pessoa.ksql.spark.ordered_queries import make_topology
from tests.ksql.statements import catalogue_of, plan_of

FUNCTIONS = """
from pessoa.ksql.functions.user_functions import udaf, udf, udtf

MARK = "!"


def marked(text):
    return text + MARK


@udf("PACKED_SHOUT", "(STRING) STRING")
def shout(text):
    return marked(text.upper())


@udtf("PACKED_LETTERS", "(STRING) STRING")
def letters(text):
    return list(text)


@udaf("PACKED_LONGEST", "(STRING) STRING")
class Longest:
    def initial(self):
        return ""

    def add(self, state, text):
        return max(state, text, key=len)

    def merge(self, one, other):
        return max(one, other, key=len)

    def result(self, state):
        return state
"""
WORKER = """
import json, sys
from pessoa.ksql.operators.state_store import MemoryState
from pessoa.ksql.spark.ordered_program import load
from pessoa.pipelines.ordered_state import ReadRecord

program = load(open(sys.argv[1], "rb").read())
rows = []
for offset, word in enumerate(["ab", "c"]):
    record = ReadRecord("s", 0, offset, 0, b"k", json.dumps({"v": word}).encode(), ())
    rows += [packed for _, packed in program.prepare(record)]
print(json.dumps([one.value.decode() for one in program.run(0, rows, MemoryState())]))
"""
SOURCE = "CREATE STREAM s (k STRING KEY, v STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);"


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("CREATE STREAM o AS SELECT k, PACKED_SHOUT(v) AS x FROM s;", [{"X": "AB!"}, {"X": "C!"}]),
        ("CREATE STREAM o AS SELECT k, PACKED_LETTERS(v) AS x FROM s;", [{"X": "a"}, {"X": "b"}, {"X": "c"}]),
        ("CREATE TABLE o AS SELECT k, PACKED_LONGEST(v) AS x FROM s GROUP BY k;", [{"X": "ab"}, {"X": "ab"}]),
    ],
)
def test_user_defined_functions_are_sent_to_workers_with_the_query(
    tmp_path: Path, statement: str, written: list[dict[str, str]]
) -> None:
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "packed.py").write_text(FUNCTIONS)
    assert load_directory(tmp_path / "ext") == ["packed"]
    plan = plan_of(statement, catalogue_of(SOURCE))
    argument = StageArgument(partial(make_topology, plan, {}, {}), 0, ("s",), 1, "o", 1)
    (tmp_path / "argument").write_bytes(argument.to_bytes())
    command = [sys.executable, "-c", WORKER, str(tmp_path / "argument")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(value) for value in json.loads(done.stdout)] == written
