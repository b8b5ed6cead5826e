"""The registry's error codes, each with its sentence.

Clients match on the codes, and some on words of the sentences: those that begin each sentence here are the ones that
confluent-kafka, Karapace's tests and scripts in the field look for.
"""

from __future__ import annotations

from pessoa.web.problems import HttpProblem, Problem

INVALID_SCHEMA = 42201

# Subjects, versions, schemas.
subject_not_found = Problem(404, 40401, "Subject '{}' not found.")
version_not_found = Problem(404, 40402, "Version {} not found.")
subject_soft_deleted = Problem(404, 40404, "Subject '{}' was soft deleted already; permanent=true removes it for good")
subject_not_soft_deleted = Problem(
    404, 40405, "Subject '{}' was not deleted first before being permanently deleted: delete it softly first"
)
version_soft_deleted = Problem(
    404, 40406, "Subject '{}' Version {} was soft deleted already; permanent=true removes it for good"
)
version_not_soft_deleted = Problem(
    404, 40407, "Subject '{}' Version {} was not deleted first before being permanently deleted: delete it softly first"
)
no_subject_compatibility = Problem(
    404, 40408, "Subject '{}' does not have subject-level compatibility configured; ask defaultToGlobal=true"
)
no_subject_mode = Problem(
    404, 40409, "Subject '{}' does not have subject-level mode configured; ask defaultToGlobal=true"
)
incompatible = Problem(
    409, 40901, 'Schema being registered is incompatible with an earlier schema for subject "{}", details: [{}]'
)
invalid_schema = Problem(422, INVALID_SCHEMA, "Invalid schema: {}")
invalid_version = Problem(
    422, 42202, "The specified version '{}' is not a valid version id: write 1 to 2147483647, or latest"
)
invalid_level = Problem(
    422,
    42203,
    "Invalid compatibility level '{}': write NONE, or BACKWARD, FORWARD or FULL, each with or without _TRANSITIVE",
)
invalid_mode = Problem(422, 42204, "Invalid mode '{}': write READWRITE, READONLY, READONLY_OVERRIDE, IMPORT or FORWARD")
not_permitted = Problem(422, 42205, "{}")
# Scripts read the subject and the version out of the braces.
reference_exists = Problem(
    422,
    42206,
    "One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={},version={}}}: "
    "delete the versions that refer to it first",
)
id_mismatch = Problem(422, 42207, "{}")
invalid_subject = Problem(422, 42208, "'{}' cannot be the name of a subject")
invalid_rules = Problem(422, 42210, "Invalid rule set: {}")
context_not_empty = Problem(422, 42211, "There are subjects in the context '{}'")

# Associations.
invalid_association = Problem(422, 42212, "Invalid association: {} {}")
association_exists = Problem(409, 40903, "An association of type '{}' already exists for resource '{}'")
subject_associated = Problem(409, 40904, "An association already exists for subject '{}': a STRONG one must be alone")
strong_association_exists = Problem(409, 40905, "A strong association already exists for subject '{}'")
no_active_version = Problem(409, 40907, "No version exists for subject '{}' that is not deleted: register one first")
association_frozen = Problem(409, 40908, "The association of type '{}' with subject '{}' is frozen")

# Exporters, the topic and the leader.
exporter_not_found = Problem(404, 40450, "Exporter '{}' not found.")
store_failed = Problem(500, 50001, "The topic of schemas could not be written or read: {}")
forwarding_failed = Problem(500, 50003, "The leader could not be asked: {}")
unknown_leader = Problem(500, 50004, "No instance leads this cluster of registries at the moment")


def schema_not_found(identity: object = None) -> HttpProblem:
    return HttpProblem(404, "Schema not found" if identity is None else f"Schema {identity} not found", 40403)


def invalid_exporter(code: int, sentence: str) -> HttpProblem:
    return HttpProblem(409, sentence, code)
