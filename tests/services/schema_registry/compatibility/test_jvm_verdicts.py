"""The verdicts of the JVM registry for each kind of change, from jvm_json_cases.py and jvm_protobuf_cases.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from pessoa.schema_registry.compatibility.json_schema_compatibility import check_json
from pessoa.schema_registry.compatibility.protobuf_compatibility import check_protobuf
from pessoa.schema_registry.schemas import JsonParsed, ProtobufParsed, parse_schema
from tests.services.schema_registry.compatibility import jvm_json_cases, jvm_protobuf_cases
from tests.services.schema_registry.compatibility.jvm_json_cases import Case, in_2020_12

JSON_ROWS = [
    *(pytest.param(*case[1:], id=f"draft 7: {case[0]}") for case in jvm_json_cases.CASES),
    *(pytest.param(*case[1:], id=f"draft 7: {case[0]}") for case in jvm_json_cases.OLD_DRAFT_CASES),
    *(
        pytest.param(in_2020_12(old), in_2020_12(new), findings, id=f"2020-12: {what}")
        for what, old, new, findings in (*jvm_json_cases.CASES, *jvm_json_cases.NEW_DRAFT_CASES)
    ),
]


def json_schema(tree: Any) -> JsonParsed:
    parsed = parse_schema("JSON", json.dumps(tree), {})
    assert isinstance(parsed, JsonParsed)
    return parsed


def proto_file(text: str, references: Mapping[str, str]) -> ProtobufParsed:
    parsed = parse_schema("PROTOBUF", text, references)
    assert isinstance(parsed, ProtobufParsed)
    return parsed


def judge_protobuf(old: ProtobufParsed, new: ProtobufParsed, wanted: tuple[str, ...]) -> None:
    found = {f"{each.kind} {each.path}" for each in check_protobuf(new.file, old.file)}
    assert set(wanted) <= found if wanted else not found, found


@pytest.mark.parametrize(("old", "new", "wanted"), JSON_ROWS)
def test_a_change_of_a_json_schema_gets_the_verdict_of_the_jvm_registry(
    old: Any, new: Any, wanted: tuple[str, ...]
) -> None:
    found = {f"{each.kind} {each.path}" for each in check_json(json_schema(new).schema, json_schema(old).schema)}
    assert set(wanted) <= found if wanted else not found, found


@pytest.mark.parametrize("case", [pytest.param(case, id=case[0]) for case in jvm_protobuf_cases.CASES])
def test_a_change_of_a_protobuf_schema_gets_the_verdict_of_the_jvm_registry(case: Case) -> None:
    _, old, new, wanted = case
    judge_protobuf(proto_file(old, {}), proto_file(new, {}), wanted)


@pytest.mark.parametrize(
    ("old", "new", "wanted"), [pytest.param(*case[1:], id=case[0]) for case in jvm_protobuf_cases.IMPORTS]
)
def test_types_of_imported_protobuf_files_are_compared_where_a_field_uses_them(
    old: tuple[str, str], new: tuple[str, str], wanted: tuple[str, ...]
) -> None:
    before, after = (proto_file(text, {"parts.proto": parts}) for text, parts in (old, new))
    judge_protobuf(before, after, wanted)
