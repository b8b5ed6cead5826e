"""The registry's error codes, each with its sentence. Clients match on the codes, and some on the sentences."""

from __future__ import annotations

from collections.abc import Sequence

from pessoa.web.problems import HttpProblem


def subject_not_found(subject: str) -> HttpProblem:
    return HttpProblem(404, f"Subject '{subject}' not found.", 40401)


def version_not_found(version: int | str) -> HttpProblem:
    return HttpProblem(404, f"Version {version} not found.", 40402)


def schema_not_found(identity: object = None) -> HttpProblem:
    return HttpProblem(404, "Schema not found" if identity is None else f"Schema {identity} not found", 40403)


def subject_soft_deleted(subject: str) -> HttpProblem:
    sentence = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    return HttpProblem(404, sentence, 40404)


def subject_not_soft_deleted(subject: str) -> HttpProblem:
    return HttpProblem(404, f"Subject '{subject}' was not deleted first before being permanently deleted", 40405)


def version_soft_deleted(subject: str, version: int) -> HttpProblem:
    sentence = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    return HttpProblem(404, sentence, 40406)


def version_not_soft_deleted(subject: str, version: int) -> HttpProblem:
    sentence = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return HttpProblem(404, sentence, 40407)


def no_subject_compatibility(subject: str) -> HttpProblem:
    return HttpProblem(404, f"Subject '{subject}' does not have subject-level compatibility configured", 40408)


def no_subject_mode(subject: str) -> HttpProblem:
    return HttpProblem(404, f"Subject '{subject}' does not have subject-level mode configured", 40409)


def incompatible(subject: str, findings: Sequence[str]) -> HttpProblem:
    sentence = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
    return HttpProblem(409, f"{sentence}, details: [{', '.join(findings)}]", 40901)


def invalid_schema(sentence: str) -> HttpProblem:
    return HttpProblem(422, f"Invalid schema: {sentence}", 42201)


def invalid_version(version: object) -> HttpProblem:
    sentence = (
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"'
    )
    return HttpProblem(422, sentence, 42202)


def invalid_level(level: object) -> HttpProblem:
    sentence = (
        f"Invalid compatibility level {level}. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive"
    )
    return HttpProblem(422, sentence, 42203)


def invalid_mode(mode: object) -> HttpProblem:
    sentence = f"Invalid mode {mode}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD"
    return HttpProblem(422, sentence, 42204)


def not_permitted(sentence: str) -> HttpProblem:
    return HttpProblem(422, sentence, 42205)


def reference_exists(subject: str, version: int) -> HttpProblem:
    sentence = f"One or more references exist to the schema {{subject={subject}, version={version}}}."
    return HttpProblem(422, sentence, 42206)


def id_mismatch(sentence: str) -> HttpProblem:
    return HttpProblem(422, sentence, 42207)


def invalid_subject(subject: str) -> HttpProblem:
    return HttpProblem(422, f"The specified subject '{subject}' is not a valid subject.", 42208)


def context_not_empty(context: str) -> HttpProblem:
    return HttpProblem(422, f"The specified context '{context}' is not empty.", 42211)


def store_failed(sentence: str) -> HttpProblem:
    return HttpProblem(500, f"Error in the backend data store: {sentence}", 50001)


def timed_out(sentence: str) -> HttpProblem:
    return HttpProblem(500, f"The operation timed out: {sentence}", 50002)


def forwarding_failed(sentence: str) -> HttpProblem:
    return HttpProblem(500, f"Error while forwarding the request to the leader: {sentence}", 50003)


def unknown_leader() -> HttpProblem:
    return HttpProblem(500, "The leader of the schema registry is not known", 50004)
