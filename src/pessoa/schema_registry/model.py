"""What the registry keeps: the values that stand in `_schemas` and come back in answers.

Field names are those of the JSON, so msgspec turns one into the other. Everything is immutable: a change is a new value
in the state.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pessoa.base.json_value import JsonObject

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
SCHEMA_TYPES = (JSON, PROTOBUF, AVRO)


class Mode(StrEnum):
    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @property
    def allows_import(self) -> bool:
        """Whether a registration may set ids and versions, and compatibility is not checked."""
        return self in (Mode.IMPORT, Mode.FORWARD)


class Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    tags: dict[str, list[str]] | None = None
    properties: dict[str, str] | None = None
    sensitive: list[str] | None = None


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    doc: str | None = None
    kind: str | None = None
    mode: str | None = None
    type: str | None = None
    tags: list[str] | None = None
    params: dict[str, str] | None = None
    expr: str | None = None
    onSuccess: str | None = None  # noqa: N815 - the name in the JSON
    onFailure: str | None = None  # noqa: N815
    disabled: bool = False


class RuleSet(msgspec.Struct, frozen=True, omit_defaults=True):
    migrationRules: list[Rule] | None = None  # noqa: N815
    domainRules: list[Rule] | None = None  # noqa: N815
    encodingRules: list[Rule] | None = None  # noqa: N815
    enableAt: str | None = None  # noqa: N815


class SchemaEntity(msgspec.Struct, frozen=True):
    """A part of a schema that can have tags: tags.py says how its path is written."""

    entityPath: str = ""  # noqa: N815
    entityType: str = "sr_field"  # noqa: N815


class SchemaTags(msgspec.Struct, frozen=True):
    schemaEntity: SchemaEntity  # noqa: N815
    tags: list[str] = []


class SchemaValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of one subject, as it is stored."""

    subject: str
    version: int
    id: int
    schema: str
    schemaType: str = AVRO  # noqa: N815
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    ruleSet: RuleSet | None = None  # noqa: N815
    deleted: bool = False


class ConfigValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The configuration of a subject, a context, or of everything. What is None is left to the next wider scope."""

    subject: str | None = None
    compatibilityLevel: str | None = None  # noqa: N815
    compatibilityGroup: str | None = None  # noqa: N815
    compatibilityPolicy: str | None = None  # noqa: N815
    alias: str | None = None
    aliasForDeks: bool | None = None  # noqa: N815
    normalize: bool | None = None
    validateFields: bool | None = None  # noqa: N815
    validateNewSchemas: bool | None = None  # noqa: N815
    validateRules: bool | None = None  # noqa: N815
    defaultMetadata: Metadata | None = None  # noqa: N815
    overrideMetadata: Metadata | None = None  # noqa: N815
    defaultRuleSet: RuleSet | None = None  # noqa: N815
    overrideRuleSet: RuleSet | None = None  # noqa: N815


class ModeValue(msgspec.Struct, frozen=True, omit_defaults=True):
    subject: str | None = None
    mode: str = Mode.READWRITE


class DeleteSubjectValue(msgspec.Struct, frozen=True):
    subject: str
    # Every version up to this one is deleted.
    version: int


def as_json(value: msgspec.Struct) -> JsonObject:
    """Return a struct as a dictionary, without the fields that are not set."""
    built = msgspec.to_builtins(value)
    assert isinstance(built, dict)
    return built
