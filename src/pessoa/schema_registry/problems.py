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
    sentence = f"The subject '{subject}' is softly deleted already; permanent=true removes it for good"
    return HttpProblem(404, sentence, 40404)


def subject_not_soft_deleted(subject: str) -> HttpProblem:
    return HttpProblem(404, f"The subject '{subject}' has to be deleted softly before it can go for good", 40405)


def version_soft_deleted(subject: str, version: int) -> HttpProblem:
    sentence = f"Version {version} of '{subject}' is softly deleted already; permanent=true removes it for good"
    return HttpProblem(404, sentence, 40406)


def version_not_soft_deleted(subject: str, version: int) -> HttpProblem:
    sentence = f"Version {version} of '{subject}' has to be deleted softly before it can go for good"
    return HttpProblem(404, sentence, 40407)


def no_subject_compatibility(subject: str) -> HttpProblem:
    return HttpProblem(404, f"The subject '{subject}' has no compatibility level of its own", 40408)


def no_subject_mode(subject: str) -> HttpProblem:
    return HttpProblem(404, f"The subject '{subject}' has no mode of its own", 40409)


def incompatible(subject: str, findings: Sequence[str]) -> HttpProblem:
    sentence = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
    return HttpProblem(409, f"{sentence}, details: [{', '.join(findings)}]", 40901)


def invalid_schema(sentence: str) -> HttpProblem:
    return HttpProblem(422, f"Invalid schema: {sentence}", 42201)


def invalid_version(version: object) -> HttpProblem:
    return HttpProblem(422, f"'{version}' is no version: write a number from 1 to 2147483647, or latest", 42202)


def invalid_level(level: object) -> HttpProblem:
    every = "NONE, or BACKWARD, FORWARD or FULL, each with or without _TRANSITIVE"
    return HttpProblem(422, f"'{level}' is no compatibility level: write {every}", 42203)


def invalid_mode(mode: object) -> HttpProblem:
    sentence = f"'{mode}' is no mode: write READWRITE, READONLY, READONLY_OVERRIDE, IMPORT or FORWARD"
    return HttpProblem(422, sentence, 42204)


def not_permitted(sentence: str) -> HttpProblem:
    return HttpProblem(422, sentence, 42205)


def reference_exists(subject: str, version: int) -> HttpProblem:
    sentence = f"Other schemas refer to version {version} of '{subject}'"
    return HttpProblem(422, sentence, 42206)


def id_mismatch(sentence: str) -> HttpProblem:
    return HttpProblem(422, sentence, 42207)


def invalid_subject(subject: str) -> HttpProblem:
    return HttpProblem(422, f"'{subject}' cannot be the name of a subject", 42208)


def context_not_empty(context: str) -> HttpProblem:
    return HttpProblem(422, f"There are subjects in the context '{context}'", 42211)


def store_failed(sentence: str) -> HttpProblem:
    return HttpProblem(500, f"The topic of schemas could not be written or read: {sentence}", 50001)


def forwarding_failed(sentence: str) -> HttpProblem:
    return HttpProblem(500, f"The leader could not be asked: {sentence}", 50003)


def unknown_leader() -> HttpProblem:
    return HttpProblem(500, "Nobody leads this cluster of registries at the moment", 50004)
