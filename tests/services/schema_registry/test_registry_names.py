"""Aliases of subjects, subjects and references in contexts, timestamps of schemas, and modes by scope."""

from __future__ import annotations

import time

import httpx

from tests.services.schema_registry.test_registry_api import refusal, register, unique


def test_an_alias_resolves_to_the_versions_of_another_subject(http: httpx.Client, subject: str) -> None:
    schema_id = register(http, subject, unique(subject))
    alias = f"{subject}%2Falias"
    assert http.put(f"/config/{alias}", json={"alias": subject}).json() == {"alias": subject}
    assert http.get(f"/subjects/{alias}/versions").json() == [1]
    assert http.get(f"/subjects/{alias}/versions/1").json()["subject"] == subject
    assert http.post(f"/subjects/{alias}", json={"schema": unique(subject)}).json()["id"] == schema_id
    assert register(http, alias, unique(subject)) == schema_id
    verdict = http.post(f"/compatibility/subjects/{alias}/versions/latest", json={"schema": '"int"'}).json()
    assert verdict == {"is_compatible": False}
    # The config is that of the alias itself.
    assert http.get(f"/config/{alias}").json() == {"alias": subject}
    assert refusal(http.get(f"/config/{subject}")) == (404, 40408)


def test_an_alias_refers_to_a_subject_of_its_own_context(http: httpx.Client, subject: str) -> None:
    context = f":.{subject}:"
    register(http, f"{context}{subject}", unique(subject))
    http.put(f"/config/{context}alias", json={"alias": subject})
    assert http.get(f"/subjects/{context}alias/versions/1").json()["subject"] == f"{context}{subject}"


def test_schemas_are_listed_with_their_aliases(http: httpx.Client, subject: str) -> None:
    register(http, subject, unique(subject))
    for number in (1, 2):
        http.put(f"/config/alias-{subject}-{number}", json={"alias": subject})
    assert http.get("/schemas", params={"subjectPrefix": f"alias-{subject}"}).json() == []
    (found,) = http.get("/schemas", params={"subjectPrefix": f"alias-{subject}", "aliases": "true"}).json()
    assert (found["subject"], found["aliases"]) == (subject, [f"alias-{subject}-1", f"alias-{subject}-2"])


def test_a_subject_without_context_is_searched_in_every_context(http: httpx.Client, subject: str) -> None:
    qualified = f":.{subject}:{subject}"
    register(http, qualified, unique(subject))
    assert http.get(f"/subjects/{subject}/versions/1").json()["subject"] == qualified
    assert http.post(f"/subjects/{subject}", json={"schema": unique(subject)}).json()["subject"] == qualified
    assert http.get("/schemas/ids/1", params={"subject": subject}).json()["schema"] == unique(subject)
    # A registration goes to the context of the given name.
    register(http, subject, unique(subject))
    assert http.get(f"/subjects/{subject}/versions/1").json()["subject"] == subject
    assert http.get(f"/contexts/.{subject}/contexts").json() == http.get("/contexts").json()


def test_a_response_has_the_subject_the_version_and_the_timestamp_of_a_schema(http: httpx.Client, subject: str) -> None:
    started_ms = int(time.time() * 1000)
    schema_id = register(http, subject, unique(subject))
    register(http, f"{subject}-b", unique(subject))
    found = http.get(f"/schemas/ids/{schema_id}", params={"subject": f"{subject}-b"}).json()
    assert (found["subject"], found["version"], found["deleted"]) == (f"{subject}-b", 1, False)
    assert started_ms - 1000 <= found["ts"] <= time.time() * 1000 + 1000
    assert http.get(f"/subjects/{subject}/versions/1").json()["ts"] >= started_ms - 1000


def test_references_are_returned_with_their_context_when_the_qualified_format_is_requested(
    http: httpx.Client, subject: str
) -> None:
    context = f":.{subject}:"
    register(http, f"{context}inner", '{"type":"fixed","name":"n.F","size":4}')
    references = [{"name": "n.F", "subject": "inner", "version": 1}]
    outer = '{"type":"record","name":"O","fields":[{"name":"f","type":"n.F"}]}'
    register(http, f"{context}outer", outer, references=references)
    path = f"/subjects/{context}outer/versions/1"
    assert http.get(path).json()["references"] == references
    qualified = http.get(path, params={"referenceFormat": "qualified"}).json()["references"]
    assert qualified == [{"name": "n.F", "subject": f"{context}inner", "version": 1}]
    by_id = {"subject": f"{context}outer", "referenceFormat": "qualified"}
    assert http.get("/schemas/ids/2", params=by_id).json()["references"] == qualified


def test_a_subject_mode_is_cleared_by_null_or_recursively_and_overridden_by_the_global_mode(
    http: httpx.Client, subject: str
) -> None:
    path = f"/mode/{subject}"
    assert http.put(path, json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    assert http.put(path, json={"mode": None}).json() == {"mode": None}
    assert refusal(http.get(path)) == (404, 40409)
    context = f":.{subject}:"
    assert http.put(f"/mode/{context}x", json={"mode": "READONLY"}).status_code == 200
    assert http.delete(f"/mode/{context}?recursive=true").json() == {"mode": None}
    assert refusal(http.get(f"/mode/{context}x")) == (404, 40409)
    try:
        http.put(path, json={"mode": "READWRITE"})
        http.put("/mode", json={"mode": "READONLY_OVERRIDE"})
        assert http.get(path).json() == {"mode": "READONLY_OVERRIDE"}
        body = {"schema": unique(subject)}
        assert refusal(http.post(f"/subjects/{subject}/versions", json=body)) == (422, 42205)
    finally:
        assert http.delete("/mode").json() == {"mode": "READONLY_OVERRIDE"}
