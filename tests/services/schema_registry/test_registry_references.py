"""References: which versions a schema may refer to, deletions that they prevent, and schemas sent inlined."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.services.schema_registry.test_registry_api import refusal, register

INNER = '{"type":"record","name":"Inner","namespace":"n","fields":[{"name":"x","type":"int"}]}'


class Pair:
    """Two Avro schemas under unique subjects: `outer` refers to `inner`."""

    def __init__(self, http: httpx.Client, subject: str) -> None:
        self.http = http
        self.inner, self.outer = f"{subject}-inner", f"{subject}-outer"
        self.references = [{"name": "n.Inner", "subject": self.inner, "version": 1}]
        fields = '{"name":"i","type":"n.Inner"},{"name":"again","type":"n.Inner"}'
        self.text = f'{{"type":"record","name":"O{subject[2:]}","fields":[{fields}]}}'
        self.inlined = self.text.replace('"n.Inner"', INNER, 1)

    def register(self) -> int:
        register(self.http, self.inner, INNER)
        return register(self.http, self.outer, self.text, references=self.references)


@pytest.fixture
def pair(http: httpx.Client, subject: str) -> Pair:
    return Pair(http, subject)


def test_a_schema_sent_with_its_references_inlined_is_found_by_lookup(http: httpx.Client, pair: Pair) -> None:
    schema_id = pair.register()
    found = http.post(f"/subjects/{pair.outer}", json={"schema": pair.inlined}).json()
    assert (found["id"], found["version"]) == (schema_id, 1)
    assert found["references"] == pair.references


def test_registering_a_schema_with_its_references_inlined_creates_no_new_version(
    http: httpx.Client, pair: Pair
) -> None:
    schema_id = pair.register()
    assert register(http, pair.outer, pair.inlined) == schema_id
    assert http.get(f"/subjects/{pair.outer}/versions").json() == [1]


def test_an_inlined_schema_with_another_field_type_is_another_schema(http: httpx.Client, pair: Pair) -> None:
    schema_id = pair.register()
    longer = pair.inlined.replace('"type":"int"', '"type":"long"')
    assert refusal(http.post(f"/subjects/{pair.outer}", json={"schema": longer})) == (404, 40403)
    assert register(http, pair.outer, longer) != schema_id


def test_a_normalising_lookup_finds_an_inlined_schema_with_attributes_in_any_order(
    http: httpx.Client, pair: Pair
) -> None:
    schema_id = pair.register()
    shuffled = json.dumps(json.loads(pair.inlined), sort_keys=True, indent=1)
    found = http.post(f"/subjects/{pair.outer}?normalize=true", json={"schema": shuffled}).json()
    assert found["id"] == schema_id


def test_normalising_disregards_the_order_of_references(http: httpx.Client, subject: str) -> None:
    names = ("A", "B")
    references = []
    for name in names:
        register(http, f"{subject}-{name}", f'{{"type":"fixed","name":"n.{name}","size":4}}')
        references.append({"name": f"n.{name}", "subject": f"{subject}-{name}", "version": 1})
    fields = '{"name":"a","type":"n.A"},{"name":"b","type":"n.B"}'
    text = f'{{"type":"record","name":"R{subject[2:]}","fields":[{fields}]}}'
    path = f"/subjects/{subject}/versions?normalize=true"
    first = http.post(path, json={"schema": text, "references": references}).json()["id"]
    assert http.post(path, json={"schema": text, "references": references[::-1]}).json()["id"] == first


def test_a_softly_deleted_version_cannot_be_referred_to(http: httpx.Client, pair: Pair) -> None:
    register(http, pair.inner, INNER)
    http.delete(f"/subjects/{pair.inner}/versions/1")
    body = {"schema": pair.text, "references": pair.references}
    assert refusal(http.post(f"/subjects/{pair.outer}/versions", json=body)) == (422, 42201)


def test_a_softly_deleted_schema_cannot_be_registered_again_without_the_schema_that_it_refers_to(
    http: httpx.Client, pair: Pair
) -> None:
    pair.register()
    assert http.delete(f"/subjects/{pair.outer}/versions/1").json() == 1
    assert http.delete(f"/subjects/{pair.inner}/versions/1").json() == 1
    body = {"schema": pair.text, "references": pair.references}
    assert refusal(http.post(f"/subjects/{pair.outer}/versions", json=body)) == (422, 42201)
    # It can still be read, and looked up, for as long as both are only softly deleted.
    found = http.post(f"/subjects/{pair.outer}?deleted=true", json=body).json()
    assert (found["version"], found["deleted"]) == (1, True)


def test_a_permanent_deletion_is_refused_while_a_softly_deleted_schema_refers_to_the_version(
    http: httpx.Client, pair: Pair
) -> None:
    pair.register()
    for subject in (pair.outer, pair.inner):
        assert http.delete(f"/subjects/{subject}/versions/1").json() == 1
    for path in (f"/subjects/{pair.inner}/versions/1", f"/subjects/{pair.inner}"):
        assert refusal(http.delete(f"{path}?permanent=true")) == (422, 42206)
    assert http.delete(f"/subjects/{pair.outer}/versions/1?permanent=true").json() == 1
    assert http.delete(f"/subjects/{pair.inner}/versions/1?permanent=true").json() == 1


def test_the_refusal_to_delete_names_the_version_that_is_referred_to(http: httpx.Client, pair: Pair) -> None:
    pair.register()
    refused = http.delete(f"/subjects/{pair.inner}/versions/1")
    assert refusal(refused) == (422, 42206)
    message = refused.json()["message"]
    assert "One or more references exist to the schema" in message
    assert f"{{magic=1,keytype=SCHEMA,subject={pair.inner},version=1}}" in message
