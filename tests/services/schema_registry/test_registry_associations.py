"""Associations of topics with subjects: created, changed, found and deleted, over HTTP and with confluent-kafka."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.common.schema_registry_client import (
    AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest,
)

from pessoa.web.serving import ThreadedServer
from tests.services.schema_registry.test_registry_api import refusal, register, unique


def request(subject: str, *associations: dict[str, Any], name: str = "") -> dict[str, Any]:
    return {
        "resourceName": name or f"topic-{subject}",
        "resourceNamespace": "cluster",
        "resourceId": f"id-{name or subject}",
        "resourceType": "topic",
        "associations": list(associations),
    }


def one(subject: str, kind: str = "value", lifecycle: str = "WEAK", **more: Any) -> dict[str, Any]:
    return {"subject": subject, "associationType": kind, "lifecycle": lifecycle, **more}


def list_associations(http: httpx.Client, path: str, **query: Any) -> list[tuple[str, str]]:
    found = http.get(f"/associations/{path}", params=query).json()
    return [(each["subject"], each["lifecycle"]) for each in found]


def test_associations_are_created_found_changed_and_deleted(http: httpx.Client, subject: str) -> None:
    register(http, subject, unique(subject))
    register(http, f"{subject}-k", unique(subject))
    body = request(subject, one(f"{subject}-k", "key"), one(subject, "value", "STRONG"))
    dry = http.post("/associations?dryRun=true", json={**body, "resourceId": None}).json()
    assert "associations" not in dry
    answer = http.post("/associations", json=body).json()
    assert [(each["associationType"], each["lifecycle"]) for each in answer["associations"]] == [
        ("key", "WEAK"),
        ("value", "STRONG"),
    ]
    both = [(f"{subject}-k", "WEAK"), (subject, "STRONG")]
    assert list_associations(http, f"resources/id-{subject}") == both
    assert list_associations(http, f"resources/cluster/topic-{subject}") == both
    assert list_associations(http, f"resources/-/topic-{subject}", associationType="key") == both[:1]
    assert list_associations(http, f"resources/other/topic-{subject}") == []
    assert list_associations(http, f"subjects/{subject}", lifecycle="STRONG") == both[1:]
    (made,) = http.get(f"/associations/subjects/{subject}-k").json()
    changed = http.put("/associations", json=request(subject, one(f"{subject}-k", "key", "STRONG"))).json()
    assert changed["associations"][0]["lifecycle"] == "STRONG"
    (after,) = http.get(f"/associations/subjects/{subject}-k").json()
    assert (after["createTs"], after["guid"]) == (made["createTs"], made["guid"])
    path = f"/associations/resources/id-{subject}"
    assert http.delete(path, params={"associationType": "key"}).status_code == 204
    assert subject in http.get("/subjects").json()
    assert http.delete(path, params={"cascadeLifecycle": "true"}).status_code == 204
    assert list_associations(http, f"resources/id-{subject}") == []
    assert subject not in http.get("/subjects").json()
    assert f"{subject}-k" in http.get("/subjects").json()


def test_invalid_and_conflicting_associations_are_refused_with_their_error_codes(
    http: httpx.Client, subject: str
) -> None:
    register(http, subject, unique(subject))
    strong, weak = f"{subject}-strong", f"{subject}-weak"
    for name in (strong, weak):
        register(http, name, unique(subject))
    http.post("/associations", json=request(subject, one(weak), name="a" + subject))
    http.post("/associations", json=request(subject, one(strong, "value", "STRONG"), name="b" + subject))

    def refused(*associations: dict[str, Any], name: str = "", method: str = "POST") -> tuple[int, int]:
        return refusal(http.request(method, "/associations", json=request(subject, *associations, name=name)))

    assert refused(one(subject), one(subject)) == (422, 42212)
    assert refused() == (422, 42212)
    assert refused({"associationType": "value"}) == (422, 42212)
    assert refused(one(subject, frozen=True)) == (422, 42212)
    assert refused(one(subject, "value", "SOME")) == (422, 42212)
    assert refused(one("none")) == (409, 40907)
    assert refused(one(weak, "value", "STRONG"), name="a" + subject) == (409, 40903)
    assert refused(one(weak, "value", "STRONG")) == (409, 40904)
    assert refused(one(strong)) == (409, 40905)
    assert refused(one(subject), name="a" + subject, method="PUT") == (422, 42212)
    body = request(subject, one(subject))
    assert refusal(http.post("/associations", json={**body, "resourceId": None})) == (422, 42212)


def test_a_frozen_association_registers_its_schema_and_is_only_deleted_with_cascade(
    http: httpx.Client, subject: str
) -> None:
    frozen = one(subject, "value", "STRONG", frozen=True, schema={"schema": unique(subject)})
    without_schema = {**frozen, "schema": None}
    assert refusal(http.post("/associations", json=request(subject, without_schema))) == (422, 42212)
    assert http.post("/associations", json=request(subject, frozen)).status_code == 200
    assert http.get(f"/subjects/{subject}/versions").json() == [1]
    weaker = {**without_schema, "lifecycle": "WEAK", "frozen": None}
    assert refusal(http.put("/associations", json=request(subject, weaker))) == (409, 40908)
    path = f"/associations/resources/id-{subject}"
    assert refusal(http.delete(path)) == (409, 40908)
    assert http.delete(path, params={"cascadeLifecycle": "true"}).status_code == 204


@pytest.mark.parametrize("namespace", ["cluster", "-"])
def test_confluent_kafka_creates_finds_and_deletes_associations(
    http: httpx.Client, server: ThreadedServer, subject: str, namespace: str
) -> None:
    register(http, subject, unique(subject))
    wanted = AssociationCreateOrUpdateRequest(
        f"topic-{subject}", "cluster", f"id-{subject}", "topic",
        [AssociationCreateOrUpdateInfo(subject=subject, association_type="value", lifecycle="WEAK")],
    )  # fmt: skip
    with SchemaRegistryClient({"url": server.url}) as client:
        made = client.create_association(wanted)
        assert [each.subject for each in made.associations or []] == [subject]
        (found,) = client.get_associations_by_resource_name(f"topic-{subject}", namespace, "topic", ["value"])
        assert (found.subject, found.resource_id) == (subject, f"id-{subject}")
        client.delete_associations(f"id-{subject}", "topic")
        assert client.get_associations_by_resource_name(f"topic-{subject}", namespace) == []
