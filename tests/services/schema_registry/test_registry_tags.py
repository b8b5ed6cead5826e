"""Tags: added and removed by registrations, written into the text of each schema type, and found again."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.services.schema_registry.test_registry_api import refusal, register


def avro(subject: str, *, tags: str = "", field_tags: str = "") -> str:
    return f'{{"type":"record","name":"T{subject[2:]}","fields":[{{"name":"f1","type":"string"{field_tags}}}]{tags}}}'


def tagged(path: str, *names: str, kind: str = "sr_record") -> list[dict[str, Any]]:
    return [{"schemaEntity": {"entityPath": path, "entityType": kind}, "tags": list(names)}]


def latest(http: httpx.Client, subject: str, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/subjects/{subject}/versions/latest", params=query).json()
    return found


def test_tags_are_added_and_removed_while_registering(http: httpx.Client, subject: str) -> None:
    register(http, subject, avro(subject))
    record = f"T{subject[2:]}"
    register(http, subject, avro(subject), schemaTagsToAdd=tagged(record, "A", "B"))
    found = latest(http, subject, findTags="*")
    assert found["schema"] == avro(subject, tags=',"confluent:tags":["A","B"]')
    assert found["metadata"]["properties"]["confluent:version"] == "2"
    assert found["schemaTags"] == tagged(record, "A", "B")
    register(http, subject, found["schema"], version=3, schemaTagsToRemove=tagged(record, "B"))
    found = latest(http, subject, findTags="A")
    assert (found["version"], found["schema"]) == (3, avro(subject, tags=',"confluent:tags":["A"]'))
    by_id = http.get(f"/schemas/ids/{found['id']}", params={"subject": subject, "findTags": "A"}).json()
    assert by_id["schemaTags"] == tagged(record, "A")
    assert "schemaTags" not in latest(http, subject)
    wrong = {"schema": avro(subject), "schemaTagsToAdd": tagged("does.not.exist", "A", kind="sr_field")}
    assert refusal(http.post(f"/subjects/{subject}/versions", json=wrong)) == (422, 42201)


def test_tags_are_propagated_to_the_next_version_on_request(http: httpx.Client, subject: str) -> None:
    register(http, subject, avro(subject, tags=',"confluent:tags":["A"]'))
    evolved = avro(subject, field_tags=',"default":"x","confluent:tags":["B"]')
    register(http, subject, evolved, propagateSchemaTags=True)
    found = latest(http, subject, findTags="*")
    record = f"T{subject[2:]}"
    assert found["schemaTags"] == tagged(record, "A") + tagged(f"{record}.f1", "B", kind="sr_field")


def test_tags_and_rules_of_a_version_are_changed_in_one_request(http: httpx.Client, subject: str) -> None:
    register(http, subject, avro(subject))
    path = f"/subjects/{subject}/versions/latest/tags"
    record = f"T{subject[2:]}"
    rules = {"domainRules": [{"name": "one", "type": "T"}, {"name": "two", "type": "T"}]}
    body = {"tagsToAdd": tagged(f"{record}.f1", "PII", kind="sr_field"), "rulesToMerge": rules}
    answer = http.post(path, json=body).json()
    assert (answer["version"], answer["ruleSet"]) == (2, rules)
    assert answer["schema"] == avro(subject, field_tags=',"confluent:tags":["PII"]')
    added = {"domainRules": [{"name": "three", "type": "T"}]}
    more = {"newVersion": 3, "rulesToMerge": added, "rulesToRemove": ["one"]}
    assert [each["name"] for each in http.post(path, json=more).json()["ruleSet"]["domainRules"]] == ["two", "three"]
    assert refusal(http.post(path, json={"newVersion": 3})) == (422, 42201)
    assert refusal(http.post("/subjects/none/versions/1/tags", json=body)) == (404, 40401)
    wrong = {"tagsToAdd": tagged("does.not.exist", "A", kind="sr_field")}
    assert refusal(http.post(path, json=wrong)) == (422, 42201)


JSON_TEXT = (
    '{"type":"object","properties":{'
    '"list":{"type":"array","items":{"type":"object","properties":{"x":{"type":"string"}}}},'
    '"one":{"oneOf":[{"type":"null"},{"type":"object","properties":{"y":{"type":"string"}}}]}}}'
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("object", "sr_record"),
        ("object.list", "sr_field"),
        ("object.list.array.object.x", "sr_field"),
        ("object.one.oneof.1.object.y", "sr_field"),
    ],
)
def test_parts_of_a_json_schema_are_tagged_by_their_path(
    http: httpx.Client, subject: str, path: str, kind: str
) -> None:
    tags = tagged(path, "PII", kind=kind)
    register(http, subject, JSON_TEXT, schemaType="JSON", schemaTagsToAdd=tags)
    found = latest(http, subject, findTags="*")
    assert found["schemaTags"] == tags
    assert found["schema"].count("confluent:tags") == 1


def test_a_protobuf_schema_is_tagged_with_options(http: httpx.Client, subject: str) -> None:
    text = 'syntax = "proto3";\npackage p;\nmessage M { string a = 1; message N { string b = 1; } }\n'
    tags = tagged("p.M", "X") + tagged("p.M.a", "PII", "Y", kind="sr_field") + tagged("p.M.N.b", "Z", kind="sr_field")
    register(http, subject, text, schemaType="PROTOBUF", schemaTagsToAdd=tags)
    found = latest(http, subject, findTags="*")
    assert found["schemaTags"] == tags
    assert '(confluent.field_meta).tags = "PII"' in found["schema"]
    gone = tagged("p.M.a", "Y", kind="sr_field")
    register(http, subject, found["schema"], schemaType="PROTOBUF", schemaTagsToRemove=gone)
    assert tagged("p.M.a", "PII", kind="sr_field")[0] in latest(http, subject, findTags="*")["schemaTags"]
