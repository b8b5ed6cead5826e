"""Over two hundred pairs of schemas under all seven compatibility levels, with the expected verdict and the reason.

A row has for both directions whether one schema reads the data of the other. The verdict of each level follows: NONE
accepts everything, BACKWARD needs the first direction, FORWARD the second, FULL both; the transitive levels compare
with every version, and the history here is chosen so that only the oldest version decides.
"""

from __future__ import annotations

import pytest

from pessoa.schema_registry.compatibility.levels import Earlier, Level, check_level
from pessoa.schema_registry.schemas import parse_schema
from tests.services.schema_registry.compatibility import avro_pairs, json_pairs, protobuf_pairs

ROWS = [
    pytest.param(kind, old, new, backward, forward, id=f"{kind}-{number}: {why}")
    for kind, pairs in (("AVRO", avro_pairs.PAIRS), ("JSON", json_pairs.PAIRS), ("PROTOBUF", protobuf_pairs.PAIRS))
    for number, (old, new, backward, forward, why) in enumerate(pairs)
]


def test_the_compatibility_table_has_at_least_200_rows() -> None:
    assert len(ROWS) >= 200


@pytest.mark.parametrize(("kind", "old", "new", "backward", "forward"), ROWS)
def test_the_verdict_of_every_level_follows_from_backward_and_forward_compatibility(
    kind: str, old: str, new: str, backward: bool, forward: bool
) -> None:
    before, after = parse_schema(kind, old, {}), parse_schema(kind, new, {})
    verdicts = {level: check_level(level, after, [Earlier(1, before)]) for level in Level}
    allowed = {level for level, findings in verdicts.items() if not findings}
    wanted = {Level.NONE}
    if backward:
        wanted |= {Level.BACKWARD, Level.BACKWARD_TRANSITIVE}
    if forward:
        wanted |= {Level.FORWARD, Level.FORWARD_TRANSITIVE}
    if backward and forward:
        wanted |= {Level.FULL, Level.FULL_TRANSITIVE}
    assert allowed == wanted, verdicts[Level.FULL]


@pytest.mark.parametrize(("kind", "old", "new", "backward", "forward"), ROWS)
def test_only_the_transitive_levels_check_versions_before_the_latest(
    kind: str, old: str, new: str, backward: bool, forward: bool
) -> None:
    before, after = parse_schema(kind, old, {}), parse_schema(kind, new, {})
    # The latest version is the new schema itself, which every level accepts; the old schema is the version before.
    history = [Earlier(2, after), Earlier(1, before)]
    for level in Level:
        direct = not check_level(level, after, [Earlier(1, before)])
        assert (not check_level(level, after, history)) == (direct if level.is_transitive else True)


@pytest.mark.parametrize(
    ("old", "new", "strict", "lenient"), [pytest.param(*row[:4], id=row[4]) for row in json_pairs.POLICY]
)
def test_the_lenient_policy_accepts_changes_of_content_models_and_nothing_else(
    old: str, new: str, strict: bool, lenient: bool
) -> None:
    before, after = parse_schema("JSON", old, {}), parse_schema("JSON", new, {})
    assert (not check_level(Level.BACKWARD, after, [Earlier(1, before)])) == strict
    assert (not check_level(Level.BACKWARD, after, [Earlier(1, before)], is_lenient=True)) == lenient


def test_another_type_of_schema_is_incompatible_at_every_level_but_none() -> None:
    avro, protobuf = parse_schema("AVRO", '"string"', {}), parse_schema("PROTOBUF", "message M { }", {})
    allowed = {level for level in Level if not check_level(level, protobuf, [Earlier(1, avro)])}
    assert allowed == {Level.NONE}


@pytest.mark.parametrize(
    ("kind", "old", "new", "says"),
    [
        ("AVRO", '{"type":"record","name":"R","fields":[]}',
         '{"type":"record","name":"R","fields":[{"name":"f","type":"int"}]}',
         ("{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The new schema wants the field 'f' at "
         "'/fields/0', without a default; the old schema has no such field', additionalInfo:'f'}")),
        ("AVRO", '"int"', '"string"', "additionalInfo:'reader: STRING, writer: INT'"),
        ("AVRO", '{"type":"enum","name":"E","symbols":["A","B"]}', '{"type":"enum","name":"E","symbols":["A"]}',
         "additionalInfo:'[B]'"),
        ("JSON", '{"properties":{"a":{"type":"string"}}}', '{"properties":{"a":{"type":"integer"}}}',
         "'#/properties/a'"),
        ("PROTOBUF", 'syntax="proto3"; message M { int32 a = 1; }', 'syntax="proto3"; message M { string a = 1; }',
         "FIELD_SCALAR_KIND_CHANGED"),
    ],
)  # fmt: skip
def test_an_incompatibility_is_reported_with_its_type_place_and_both_schema_versions(
    kind: str, old: str, new: str, says: str
) -> None:
    before, after = parse_schema(kind, old, {}), parse_schema(kind, new, {})
    findings = check_level(Level.BACKWARD, after, [Earlier(3, before)])
    assert says in findings[0]
    assert findings[-3:-1] == ("{oldSchemaVersion: 3}", f"{{oldSchema: '{before.text}'}}")
    assert findings[-1] == "{validateFields: 'false', compatibility: 'BACKWARD'}"
