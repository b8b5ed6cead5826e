"""Responses and error codes of every endpoint of the schema registry, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

RECORD = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"y","type":"int","default":0}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"z","type":"int"}]}'
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def unique(subject: str, extra: str = "") -> str:
    """Return a schema that only this subject's test registers."""
    return f'{{"type":"record","name":"U{subject.replace("-", "_")}","fields":[{{"name":"x","type":"int"}}{extra}]}}'


def register(http: httpx.Client, subject: str, schema: str, **more: Any) -> int:
    response = http.post(f"/subjects/{subject}/versions", json={"schema": schema, **more})
    assert response.status_code == 200, response.text
    schema_id: int = response.json()["id"]
    return schema_id


def refusal(response: httpx.Response) -> tuple[int, int]:
    body = response.json()
    assert set(body) == {"error_code", "message"}
    assert body["message"]
    return response.status_code, body["error_code"]


def test_the_root_path_of_the_registry_answers_with_an_empty_object(http: httpx.Client) -> None:
    response = http.get("/")
    assert (response.status_code, response.json()) == (200, {})
    assert response.headers["content-type"] == MEDIA_TYPE


def test_registering_again_gives_the_same_id_and_no_new_version(http: httpx.Client, subject: str) -> None:
    first = register(http, subject, unique(subject))
    assert register(http, subject, json.dumps(json.loads(unique(subject)), indent=4)) == first
    assert http.get(f"/subjects/{subject}/versions").json() == [1]


def test_the_same_schema_under_another_subject_has_the_same_id(http: httpx.Client, subject: str) -> None:
    first = register(http, subject, unique(subject))
    assert register(http, f"{subject}-b", unique(subject)) == first
    assert http.get(f"/schemas/ids/{first}/subjects").json() == [subject, f"{subject}-b"]
    assert http.get(f"/schemas/ids/{first}/versions").json() == [
        {"subject": subject, "version": 1},
        {"subject": f"{subject}-b", "version": 1},
    ]


def test_a_schema_is_found_by_id_guid_version_and_text(http: httpx.Client, subject: str) -> None:
    schema_id = register(http, subject, unique(subject))
    by_version = http.get(f"/subjects/{subject}/versions/latest").json()
    assert by_version == {
        "subject": subject, "version": 1, "id": schema_id, "guid": by_version["guid"], "schema": unique(subject),
        "ts": by_version["ts"],
    }  # fmt: skip
    assert http.get(f"/subjects/{subject}/versions/-1").json() == by_version
    assert http.post(f"/subjects/{subject}", json={"schema": unique(subject)}).json() == by_version
    assert http.get(f"/schemas/ids/{schema_id}").json()["schema"] == unique(subject)
    assert http.get(f"/schemas/ids/{schema_id}?fetchMaxId=true").json()["maxId"] >= schema_id
    assert http.get(f"/schemas/guids/{by_version['guid']}").json()["schema"] == unique(subject)
    assert http.get(f"/schemas/guids/{by_version['guid']}/ids").json() == [{"context": ".", "id": schema_id}]
    assert http.get(f"/schemas/ids/{schema_id}/schema").text == unique(subject)
    assert http.get(f"/subjects/{subject}/versions/1/schema").text == unique(subject)
    listed = http.get("/schemas", params={"subjectPrefix": subject}).json()
    assert listed == [by_version]


def test_a_subject_may_contain_slashes_and_colons(http: httpx.Client, subject: str) -> None:
    path = f"a%2Fb%3A{subject}%20%C3%A9"
    register(http, path, unique(subject))
    assert f"a/b:{subject} é" in http.get("/subjects").json()
    assert http.get(f"/subjects/{path}/versions").json() == [1]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/subjects/none/versions", (404, 40401)),
        ("/subjects/none/versions/1", (404, 40401)),
        ("/subjects/none/versions/0", (422, 42202)),
        ("/subjects/none/versions/x", (422, 42202)),
        ("/subjects/none/versions/2147483648", (422, 42202)),
        ("/subjects/none/versions/-2", (422, 42202)),
        ("/subjects/none/metadata", (404, 40401)),
        ("/schemas/ids/999999", (404, 40403)),
        ("/schemas/ids/999999/subjects", (404, 40403)),
        ("/schemas/ids/x", (404, 404)),
        ("/schemas/guids/x", (404, 40403)),
        ("/schemas/guids/01234567-89ab-cdef-0123-456789abcdef", (404, 40403)),
        ("/config/none", (404, 40408)),
        ("/mode/none", (404, 40409)),
        ("/nowhere", (404, 404)),
    ],
)
def test_a_request_for_an_unknown_or_invalid_path_gets_its_error_code(
    http: httpx.Client, path: str, code: tuple[int, int]
) -> None:
    assert refusal(http.get(path)) == code


def test_an_unknown_version_of_a_known_subject_gets_40402(http: httpx.Client, subject: str) -> None:
    register(http, subject, unique(subject))
    response = http.get(f"/subjects/{subject}/versions/7")
    assert refusal(response) == (404, 40402)
    assert response.json()["message"] == "Version 7 not found."


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", (400, 400)),
        (b"{", (400, 400)),
        (b"[]", (422, 422)),
        (b'{"schema": 3}', (422, 422)),
        (b"{}", (422, 42201)),
        (b'{"schema": ""}', (422, 42201)),
        (b'{"schema": "nonsense"}', (422, 42201)),
        (b'{"schema": "\\"string\\"", "schemaType": "XML"}', (422, 42201)),
        (b'{"schema": "{", "schemaType": "JSON"}', (422, 42201)),
        (b'{"schema": "message {", "schemaType": "PROTOBUF"}', (422, 42201)),
        (b'{"schema": "\\"x.Y\\"", "references": [{"name":"x.Y","subject":"none","version":1}]}', (422, 42201)),
        (b'{"schema": "\\"string\\"", "id": 5}', (422, 42205)),
        (b'{"schema": "\\"string\\"", "version": 5}', (422, 42201)),
    ],
)
def test_an_invalid_registration_is_refused_and_creates_no_subject(
    http: httpx.Client, subject: str, body: bytes, code: tuple[int, int]
) -> None:
    headers = {"Content-Type": MEDIA_TYPE}
    assert refusal(http.post(f"/subjects/{subject}/versions", content=body, headers=headers)) == code
    assert refusal(http.get(f"/subjects/{subject}/versions")) == (404, 40401)


def test_wrong_content_types_and_bodies_or_schemas_above_the_size_limit_are_refused(
    http: httpx.Client, subject: str
) -> None:
    path = f"/subjects/{subject}/versions"
    body = json.dumps({"schema": '"string"'}).encode()
    assert refusal(http.post(path, content=body, headers={"Content-Type": "text/xml"})) == (415, 415)
    assert refusal(http.post(path, content=body, headers={"Accept": "text/html"})) == (406, 406)
    assert refusal(http.post(path, content=b" " * (11 * 1024 * 1024))) == (413, 413)
    big = json.dumps({"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(150_000)]})
    assert refusal(http.post(path, json={"schema": big})) == (422, 42209)
    assert http.post(path, content=body).status_code == 200


@pytest.mark.parametrize("name", ["", "%00", ":.ctx:", ":*:x"])
def test_an_invalid_subject_name_is_refused(http: httpx.Client, name: str) -> None:
    response = http.post(f"/subjects/{name}/versions", json={"schema": '"string"'})
    assert refusal(response) in ((422, 42208), (404, 404), (405, 405))


def test_an_incompatible_schema_is_refused_with_the_reason_and_the_place(http: httpx.Client, subject: str) -> None:
    register(http, subject, RECORD)
    response = http.post(f"/subjects/{subject}/versions", json={"schema": OTHER})
    assert refusal(response) == (409, 40901)
    message = response.json()["message"]
    assert message.startswith(
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: ['
    )
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    assert "/fields/0" in message
    assert message.endswith("{validateFields: 'false', compatibility: 'BACKWARD'}]")
    assert http.post(f"/subjects/{subject}/versions?force=true", json={"schema": OTHER}).status_code == 200


def test_compatibility_is_tested_against_one_version_and_against_all(http: httpx.Client, subject: str) -> None:
    path = f"/compatibility/subjects/{subject}/versions"
    assert http.post(path, json={"schema": OTHER}).json() == {"is_compatible": True}
    assert http.post(f"{path}/latest", json={"schema": OTHER}).json() == {"is_compatible": True}
    assert refusal(http.post(f"{path}/1", json={"schema": OTHER})) == (404, 40402)
    assert refusal(http.post(f"{path}/latest", json={"schema": "x"})) == (422, 42201)
    register(http, subject, RECORD)
    register(http, subject, WIDER)
    for place in (path, f"{path}/1", f"{path}/latest"):
        assert http.post(place, json={"schema": WIDER}).json() == {"is_compatible": True}
        verdict = http.post(f"{place}?verbose=true", json={"schema": OTHER}).json()
        assert verdict["is_compatible"] is False
        assert "'z'" in verdict["messages"][0]
    assert refusal(http.post(f"{path}/9", json={"schema": OTHER})) == (404, 40402)
    assert refusal(http.post(f"{path}/latest", json={"schema": "x"})) == (422, 42201)


def test_versions_and_subjects_are_deleted_softly_before_permanently(http: httpx.Client, subject: str) -> None:
    schema_id = register(http, subject, unique(subject))
    register(http, subject, unique(subject, ',{"name":"y","type":"int","default":0}'))
    version = f"/subjects/{subject}/versions/1"
    assert refusal(http.delete(f"{version}?permanent=true")) == (404, 40407)
    assert http.delete(version).json() == 1
    assert refusal(http.delete(version)) == (404, 40406)
    assert http.get(f"/subjects/{subject}/versions").json() == [2]
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json() == [1, 2]
    assert http.get(f"/subjects/{subject}/versions?deletedAsNegative=true").json() == [-1, 2]
    assert http.get(f"/subjects/{subject}/versions?deletedOnly=true").json() == [1]
    assert refusal(http.get(version)) == (404, 40402)
    assert http.get(f"{version}?deleted=true").json()["deleted"] is True
    assert http.get(f"/schemas/ids/{schema_id}").status_code == 200
    assert http.delete(f"{version}?permanent=true").json() == 1
    assert refusal(http.get(f"/schemas/ids/{schema_id}")) == (404, 40403)
    assert refusal(http.delete(f"/subjects/{subject}?permanent=true")) == (404, 40405)
    assert http.delete(f"/subjects/{subject}").json() == [2]
    assert refusal(http.delete(f"/subjects/{subject}")) == (404, 40404)
    assert subject not in http.get("/subjects").json()
    assert subject in http.get("/subjects?deleted=true").json()
    assert http.delete(f"/subjects/{subject}?permanent=true").json() == [2]
    assert refusal(http.delete(f"/subjects/{subject}")) == (404, 40401)


def test_the_only_version_cannot_be_deleted_softly_twice(http: httpx.Client, subject: str) -> None:
    register(http, subject, unique(subject))
    version = f"/subjects/{subject}/versions/1"
    assert http.delete(version).json() == 1
    assert refusal(http.delete(version)) == (404, 40406)
    assert refusal(http.delete(f"/subjects/{subject}/versions/2")) == (404, 40402)
    assert refusal(http.delete(f"/subjects/{subject}/versions/latest")) == (404, 40401)


def test_looking_up_an_invalid_schema_in_an_unknown_subject_gets_the_error_of_the_schema(http: httpx.Client) -> None:
    for body in ({"schema": '{"type":"nothing"}'}, {"schema": ""}, {"schema": '"int"', "schemaType": "XML"}):
        assert refusal(http.post("/subjects/none", json=body)) == (422, 42201)
    assert refusal(http.post("/subjects/none", json={"schema": '"int"'})) == (404, 40401)


def test_a_verbose_compatibility_check_of_an_invalid_schema_returns_its_error_as_a_message(
    http: httpx.Client, subject: str
) -> None:
    register(http, subject, RECORD)
    path = f"/compatibility/subjects/{subject}/versions"
    for place in (path, f"{path}/latest"):
        verdict = http.post(f"{place}?verbose=true", json={"schema": '{"type":"nothing"}'}).json()
        assert verdict["is_compatible"] is False
        assert "Invalid schema" in verdict["messages"][0]


def test_error_messages_contain_the_words_that_known_clients_look_for(http: httpx.Client, subject: str) -> None:
    def message(response: httpx.Response) -> str:
        assert response.status_code in (404, 422)
        text: str = response.json()["message"]
        return text

    assert f"Subject '{subject}' does not have subject-level compatibility configured" in message(
        http.get(f"/config/{subject}")
    )
    assert f"Subject '{subject}' does not have subject-level mode configured" in message(http.get(f"/mode/{subject}"))
    assert "Invalid compatibility level" in message(http.put("/config", json={"compatibility": "SIDEWAYS"}))
    assert "Invalid mode" in message(http.put("/mode", json={"mode": "SLEEP"}))
    assert "Empty schema" in message(http.post(f"/subjects/{subject}/versions", json={}))
    register(http, subject, unique(subject))
    version = f"/subjects/{subject}/versions/1"
    invalid = message(http.get(f"/subjects/{subject}/versions/0"))
    assert invalid.startswith("The specified version '0' is not a valid version id")
    assert "latest" in invalid
    was_not_deleted = "was not deleted first before being permanently deleted"
    assert message(http.delete(f"{version}?permanent=true")).startswith(
        f"Subject '{subject}' Version 1 {was_not_deleted}"
    )
    refused = message(http.delete(f"/subjects/{subject}?permanent=true"))
    assert refused.startswith(f"Subject '{subject}' {was_not_deleted}")
    assert http.delete(version).status_code == 200
    again = message(http.delete(version))
    assert again.startswith(f"Subject '{subject}' Version 1 was soft deleted")
    assert "permanent=true" in again
    assert message(http.delete(f"/subjects/{subject}")).startswith(f"Subject '{subject}' was soft deleted")


def test_version_numbers_continue_after_a_soft_deletion(http: httpx.Client, subject: str) -> None:
    first = register(http, subject, unique(subject))
    http.delete(f"/subjects/{subject}")
    assert register(http, subject, unique(subject)) == first
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json() == [2]


def test_the_id_of_a_permanently_deleted_schema_is_not_reused(http: httpx.Client, subject: str) -> None:
    first = register(http, subject, unique(subject))
    http.delete(f"/subjects/{subject}")
    http.delete(f"/subjects/{subject}?permanent=true")
    assert register(http, subject, unique(subject + "b")) > first


def test_a_schema_that_other_schemas_refer_to_cannot_be_deleted(http: httpx.Client, subject: str) -> None:
    register(http, subject, '{"type":"record","name":"n.Inner","fields":[]}')
    outer = f'{{"type":"record","name":"n.O{subject[2:]}","fields":[{{"name":"i","type":"n.Inner"}}]}}'
    outer_id = register(
        http, f"{subject}-o", outer, references=[{"name": "n.Inner", "subject": subject, "version": -1}]
    )
    stored = http.get(f"/subjects/{subject}-o/versions/1").json()
    assert stored["references"] == [{"name": "n.Inner", "subject": subject, "version": 1}]
    assert http.get(f"/subjects/{subject}/versions/1/referencedby").json() == [outer_id]
    assert refusal(http.delete(f"/subjects/{subject}/versions/1")) == (422, 42206)
    assert refusal(http.delete(f"/subjects/{subject}")) == (422, 42206)
    resolved = http.get(f"/subjects/{subject}-o/versions/1?format=resolved").json()["schema"]
    assert json.loads(resolved)["fields"][0]["type"]["name"] == "Inner"
    http.delete(f"/subjects/{subject}-o")
    assert http.delete(f"/subjects/{subject}").json() == [1]


def test_the_config_of_a_subject_is_set_changed_and_deleted_apart_from_the_global_one(
    http: httpx.Client, subject: str
) -> None:
    path = f"/config/{subject}"
    assert http.get(f"{path}?defaultToGlobal=true").json() == {"compatibilityLevel": "BACKWARD"}
    assert http.put(path, json={"compatibility": "full_transitive"}).json() == {"compatibility": "FULL_TRANSITIVE"}
    assert http.get(path).json() == {"compatibilityLevel": "FULL_TRANSITIVE"}
    assert refusal(http.put(path, json={"compatibility": "SIDEWAYS"})) == (422, 42203)
    changed = http.put(path, json={"normalize": True}).json()
    assert changed == {"compatibility": "FULL_TRANSITIVE", "normalize": True}
    assert http.get(path).json() == {"compatibilityLevel": "FULL_TRANSITIVE", "normalize": True}
    assert http.delete(path).json() == {"compatibilityLevel": "FULL_TRANSITIVE", "normalize": True}
    assert refusal(http.delete(path)) == (404, 40401)
    assert http.get("/config").json() == {"compatibilityLevel": "BACKWARD"}


def test_the_mode_of_a_subject_restricts_what_can_be_registered(http: httpx.Client, subject: str) -> None:
    path = f"/mode/{subject}"
    assert http.put(path, json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    assert refusal(http.post(f"/subjects/{subject}/versions", json={"schema": RECORD})) == (422, 42205)
    assert refusal(http.put(path, json={"mode": "SLEEP"})) == (422, 42204)
    assert http.delete(path).json() == {"mode": "READONLY"}
    assert http.get(f"{path}?defaultToGlobal=true").json() == {"mode": "READWRITE"}
    register(http, subject, unique(subject))
    assert refusal(http.put(path, json={"mode": "IMPORT"})) == (422, 42205)
    assert http.put(f"{path}?force=true", json={"mode": "IMPORT"}).json() == {"mode": "IMPORT"}
    body = {"schema": unique(subject + "i"), "id": 100_000, "version": 40}
    assert http.post(f"/subjects/{subject}/versions", json=body).json()["id"] == 100_000
    assert http.get(f"/subjects/{subject}/versions").json() == [1, 40]
    taken = {"schema": unique(subject + "j"), "id": 100_000, "version": 41}
    assert refusal(http.post(f"/subjects/{subject}/versions", json=taken)) == (422, 42205)


def test_each_context_has_its_own_schema_ids_subjects_and_config(http: httpx.Client, subject: str) -> None:
    context = f".{subject}"
    qualified = f":{context}:{subject}"
    assert register(http, qualified, unique(subject)) == 1
    assert context in http.get("/contexts").json()
    assert qualified in http.get("/subjects").json()
    assert http.get("/subjects", params={"subjectPrefix": f":{context}:"}).json() == [qualified]
    assert http.get("/schemas/ids/1", params={"subject": qualified}).json()["schema"] == unique(subject)
    inside = f"/contexts/:{context}:"
    assert http.get(f"{inside}/subjects").json() == [qualified]
    assert http.get(f"{inside}/subjects/{subject}/versions/1").json()["id"] == 1
    assert http.get(f"{inside}/schemas/ids/1").json()["schema"] == unique(subject)
    assert http.put(f"{inside}/config", json={"compatibility": "NONE"}).status_code == 200
    assert http.get(f"/config/{qualified}?defaultToGlobal=true").json() == {"compatibilityLevel": "NONE"}
    assert refusal(http.delete(f"/contexts/{context}")) == (422, 42211)


def test_normalising_finds_a_json_schema_whose_properties_are_in_another_order(
    http: httpx.Client, subject: str
) -> None:
    one = '{"type":"object","title":"N","properties":{"a":{"type":"string"},"b":{"type":"string"}}}'
    two = '{"properties":{"b":{"type":"string"},"a":{"type":"string"}},"title":"N","type":"object"}'
    path = f"/subjects/{subject}/versions?normalize=true"
    first = http.post(path, json={"schema": one, "schemaType": "JSON"}).json()["id"]
    assert http.post(path, json={"schema": two, "schemaType": "JSON"}).json()["id"] == first
    assert refusal(http.post(f"/subjects/{subject}", json={"schema": two, "schemaType": "JSON"})) == (404, 40403)


def test_a_protobuf_schema_is_returned_as_sent_and_as_a_serialized_descriptor(http: httpx.Client, subject: str) -> None:
    text = f'syntax = "proto3";\n// what it is\nmessage M{subject[2:]} {{ int32 a = 1; }}\n'
    schema_id = register(http, subject, text, schemaType="PROTOBUF")
    assert register(http, subject, text.replace("// what it is\n", ""), schemaType="PROTOBUF") == schema_id
    found = http.get(f"/schemas/ids/{schema_id}").json()
    assert (found["schema"], found["schemaType"]) == (text, "PROTOBUF")
    serialized = http.get(f"/schemas/ids/{schema_id}?format=serialized").json()["schema"]
    assert register(http, f"{subject}-2", serialized, schemaType="PROTOBUF") == schema_id


def test_a_version_is_found_by_its_metadata(http: httpx.Client, subject: str) -> None:
    register(http, subject, unique(subject), metadata={"properties": {"owner": "a"}})
    register(http, subject, unique(subject), metadata={"properties": {"owner": "b"}})
    found = http.get(f"/subjects/{subject}/metadata", params={"key": "owner", "value": "a"}).json()
    assert found["version"] == 1


def test_subjects_are_listed_by_prefix_offset_and_limit(http: httpx.Client, subject: str) -> None:
    for number in range(4):
        register(http, f"{subject}-{number}", unique(subject))
    page = http.get("/subjects", params={"subjectPrefix": subject, "offset": 1, "limit": 2}).json()
    assert page == [f"{subject}-1", f"{subject}-2"]


def test_cluster_id_version_schema_types_health_metrics_and_docs_of_the_registry_are_served(http: httpx.Client) -> None:
    assert set(http.get("/v1/metadata/id").json()["scope"]["clusters"]) == {"kafka-cluster", "schema-registry-cluster"}
    assert http.get("/v1/metadata/version").json()["version"]
    assert set(http.get("/schemas/types").json()) == {"AVRO", "JSON", "PROTOBUF"}
    assert http.get("/health").json() == {"status": "ok"}
    assert "registry_is_leader 1.0" in http.get("/metrics").text
    assert "/subjects/{subject}/versions" in http.get("/docs").text
