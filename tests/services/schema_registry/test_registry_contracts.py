"""Data contracts: metadata and rules of versions, defaults and overrides of the config, groups and reserved fields."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.services.schema_registry.test_registry_api import refusal, register, unique

NEW_FIELD = ',{"name":"y","type":"int","default":0}'
# Not backward compatible with the schema that `unique` returns.
REQUIRED_FIELD = ',{"name":"y","type":"int"}'


def rule(name: str, mode: str = "UPGRADE", **more: Any) -> dict[str, Any]:
    return {"name": name, "mode": mode, "type": "JSONATA", **more}


def latest(http: httpx.Client, subject: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/subjects/{subject}/versions/latest").json()
    return found


def names(rule_set: dict[str, Any]) -> list[str]:
    return [each["name"] for each in rule_set["migrationRules"]]


def test_a_registered_schema_sent_without_its_metadata_has_the_same_id(http: httpx.Client, subject: str) -> None:
    first = register(http, subject, unique(subject), metadata={"properties": {"owner": "a"}})
    assert register(http, subject, unique(subject)) == first
    assert http.post(f"/subjects/{subject}", json={"schema": unique(subject)}).json()["id"] == first
    other = {"schema": unique(subject), "metadata": {"properties": {"owner": "b"}}}
    assert refusal(http.post(f"/subjects/{subject}", json=other)) == (404, 40403)


def test_empty_metadata_and_rules_count_as_absent(http: httpx.Client, subject: str) -> None:
    first = register(http, subject, unique(subject), metadata={"properties": {}}, ruleSet={"domainRules": []})
    assert "metadata" not in latest(http, subject)
    assert "ruleSet" not in latest(http, subject)
    assert register(http, f"{subject}-b", unique(subject)) == first


def test_registering_only_metadata_or_rules_keeps_the_latest_schema(http: httpx.Client, subject: str) -> None:
    first = register(http, subject, unique(subject))
    body = {"metadata": {"properties": {"owner": "a"}}}
    second = http.post(f"/subjects/{subject}/versions", json=body).json()
    assert (second["version"], second["id"]) == (2, first + 1)
    found = latest(http, subject)
    assert (found["schema"], found["metadata"]) == (unique(subject), body["metadata"])
    rules = {"migrationRules": [rule("up")]}
    assert http.post(f"/subjects/{subject}/versions", json={"ruleSet": rules}).json()["version"] == 3
    found = latest(http, subject)
    # Parts that the request does not have are kept.
    assert (found["schema"], found["metadata"], found["ruleSet"]) == (unique(subject), body["metadata"], rules)


def test_the_next_schema_keeps_metadata_and_rules_that_the_request_does_not_name(
    http: httpx.Client, subject: str
) -> None:
    contract = {"metadata": {"properties": {"owner": "a"}}, "ruleSet": {"migrationRules": [rule("up")]}}
    register(http, subject, unique(subject), **contract)
    register(http, subject, unique(subject, NEW_FIELD))
    found = latest(http, subject)
    assert found["version"] == 2
    assert {key: found[key] for key in contract} == contract
    # A lookup with this schema, metadata and rules finds the version.
    assert http.post(f"/subjects/{subject}", json={"schema": found["schema"], **contract}).json()["version"] == 2


def test_the_config_adds_default_and_override_metadata_to_those_of_the_request(
    http: httpx.Client, subject: str
) -> None:
    config = {
        "defaultMetadata": {"properties": {"team": "core", "owner": "unknown"}, "tags": {"R.x": ["PII"]}},
        "overrideMetadata": {"properties": {"region": "eu"}, "sensitive": ["owner"]},
    }
    assert http.put(f"/config/{subject}", json=config).json() == config
    said = {"properties": {"owner": "a", "region": "us"}, "tags": {"R.x": ["GDPR"]}}
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": unique(subject), "metadata": said}).json()
    wanted = {
        "tags": {"R.x": ["PII", "GDPR"]},
        "properties": {"team": "core", "owner": "a", "region": "eu"},
        "sensitive": ["owner"],
    }
    assert answer["metadata"] == wanted
    assert latest(http, subject)["metadata"] == wanted


def test_the_config_adds_default_and_override_rules_by_their_names(http: httpx.Client, subject: str) -> None:
    config = {
        "defaultRuleSet": {"migrationRules": [rule("foo"), rule("own", doc="a default")]},
        "overrideRuleSet": {"migrationRules": [rule("last")]},
    }
    assert http.put(f"/config/{subject}", json=config).json() == config
    register(http, subject, unique(subject), ruleSet={"migrationRules": [rule("own", doc="mine"), rule("bar")]})
    found = latest(http, subject)["ruleSet"]
    assert names(found) == ["foo", "own", "bar", "last"]
    assert found["migrationRules"][1]["doc"] == "mine"


@pytest.mark.parametrize(
    "rules",
    [
        {"migrationRules": [rule("r", "READ")]},
        {"migrationRules": [{"name": "r", "type": "T"}]},
        {"domainRules": [rule("r", "UPGRADE")]},
        {"domainRules": [rule("r", "READ"), rule("r", "WRITE")]},
        {"domainRules": [{"name": "r", "mode": "READ"}]},
        {"domainRules": [rule("", "READ")]},
        {"domainRules": [rule("1st", "READ")]},
        {"domainRules": [rule("r", "READ", kind="OTHER")]},
    ],
)
def test_rules_that_cannot_be_used_are_refused(http: httpx.Client, subject: str, rules: dict[str, Any]) -> None:
    body = {"schema": unique(subject), "ruleSet": rules}
    assert refusal(http.post(f"/subjects/{subject}/versions", json=body)) == (422, 42210)
    assert refusal(http.put(f"/config/{subject}", json={"defaultRuleSet": rules})) == (422, 42210)
    assert refusal(http.put(f"/config/{subject}", json={"overrideRuleSet": rules})) == (422, 42210)


def test_schemas_are_listed_by_the_type_of_their_rules(http: httpx.Client, subject: str) -> None:
    register(http, subject, unique(subject), ruleSet={"domainRules": [{"name": "r", "type": "CEL", "mode": "READ"}]})
    register(http, f"{subject}-b", unique(subject))
    query = {"subjectPrefix": subject, "ruleType": "CEL"}
    assert [each["subject"] for each in http.get("/schemas", params=query).json()] == [subject]
    assert http.get("/schemas", params={**query, "ruleType": "OTHER"}).json() == []


def test_compatibility_is_checked_only_within_the_compatibility_group(http: httpx.Client, subject: str) -> None:
    http.put(f"/config/{subject}", json={"compatibilityGroup": "major"})
    register(http, subject, unique(subject), metadata={"properties": {"major": "1"}})
    path = f"/subjects/{subject}/versions"
    # A version without metadata belongs to the group of the version before it.
    assert refusal(http.post(path, json={"schema": unique(subject, REQUIRED_FIELD)})) == (409, 40901)
    moved = {"schema": unique(subject, REQUIRED_FIELD), "metadata": {"properties": {"major": "2"}}}
    assert http.post(f"/compatibility{path}", json=moved).json() == {"is_compatible": True}
    assert http.post(path, json=moved).json()["version"] == 2
    # The next version of the first group is compared with that group only.
    first = {"schema": unique(subject, NEW_FIELD), "metadata": {"properties": {"major": "1"}}}
    assert http.post(path, json=first).json()["version"] == 3
    other = {"schema": '"string"', "metadata": {"properties": {"major": "1"}}}
    assert refusal(http.post(path, json=other)) == (409, 40901)


def test_a_config_setting_is_cleared_by_null_and_the_response_has_all_remaining_settings(
    http: httpx.Client, subject: str
) -> None:
    path = f"/config/{subject}"
    assert http.put(path, json={"compatibilityGroup": "major", "validateFields": True}).status_code == 200
    assert http.put(path, json={"compatibilityGroup": None}).json() == {"validateFields": True}
    assert http.put(path, json={"compatibility": "full"}).json() == {"compatibility": "FULL", "validateFields": True}
    assert http.get(path).json() == {"compatibilityLevel": "FULL", "validateFields": True}


def test_reserved_fields_cannot_be_used_or_released_while_fields_are_validated(
    http: httpx.Client, subject: str
) -> None:
    path = f"/subjects/{subject}/versions"
    http.put(f"/config/{subject}", json={"validateFields": True})
    taken = {"schema": unique(subject), "metadata": {"properties": {"confluent:reserved": "x, z"}}}
    assert refusal(http.post(path, json=taken)) == (422, 42201)
    free = {"schema": unique(subject), "metadata": {"properties": {"confluent:reserved": "y,z"}}}
    assert http.post(path, json=free).json()["version"] == 1
    assert refusal(http.post(path, json={"schema": unique(subject, NEW_FIELD)})) == (422, 42201)
    fewer = {"schema": unique(subject), "metadata": {"properties": {"confluent:reserved": "z"}}}
    refused = http.post(path, json=fewer)
    assert refusal(refused) == (409, 40901)
    assert "RESERVED_FIELDS_REMOVED" in refused.json()["message"]
    http.put(f"/config/{subject}", json={"validateFields": False})
    assert http.post(path, json=fewer).json()["version"] == 2


def test_registering_a_known_schema_with_the_next_version_number_creates_a_version_with_a_new_id(
    http: httpx.Client, subject: str
) -> None:
    path = f"/subjects/{subject}/versions"

    def ask(**more: Any) -> httpx.Response:
        return http.post(path, json={"schema": unique(subject), **more})

    first = ask().json()["id"]
    assert ask(version=-1).json()["id"] == first
    second = ask(version=2).json()["id"]
    assert second != first
    assert latest(http, subject)["metadata"] == {"properties": {"confluent:version": "2"}}
    assert ask(version=-1).json()["id"] == second
    assert refusal(ask(version=2)) == (422, 42201)
    assert refusal(ask(version=4)) == (422, 42201)
    asked = {"properties": {"confluent:version": "2"}}
    assert ask(metadata=asked).json()["version"] == 2
    assert ask(metadata={"properties": {"confluent:version": "-1"}}).json()["version"] == 3
    assert refusal(ask(metadata={"properties": {"confluent:version": "9"}})) == (422, 42201)
    lookup = f"/subjects/{subject}"
    assert http.post(lookup, json={"schema": unique(subject)}).json()["version"] == 1
    assert http.post(lookup, json={"schema": unique(subject), "metadata": asked}).json()["version"] == 2
    http.delete(f"{path}/1")
    assert http.post(lookup, json={"schema": unique(subject)}).json()["version"] == 3
