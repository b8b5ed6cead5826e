"""The source of a registry's schemas for codecs: an interface, so that a codec stays without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


class KnownSchema(NamedTuple):
    """A schema of the registry; `references` are the texts of the schemas that it refers to, in the order in which
    they must be loaded."""

    id: int
    # AVRO, JSON or PROTOBUF
    type: str
    text: str
    references: Mapping[str, str] = {}


class SchemaSource(Protocol):
    """The operations of a schema registry that codecs use. The schema of an id never changes; callers cache it."""

    def by_id(self, schema_id: int) -> KnownSchema | None: ...

    def latest_of_subject(self, subject: str) -> KnownSchema | None: ...

    def register(self, subject: str, schema_type: str, text: str) -> int:
        """Register the schema under the subject, and return its id."""


class MemorySchemas:
    """A registry in memory: for cases, and for queries whose formats need none."""

    def __init__(self) -> None:
        self._schemas: list[KnownSchema] = []
        self._subjects: dict[str, list[int]] = {}

    def by_id(self, schema_id: int) -> KnownSchema | None:
        return self._schemas[schema_id - 1] if 0 < schema_id <= len(self._schemas) else None

    def latest_of_subject(self, subject: str) -> KnownSchema | None:
        ids = self._subjects.get(subject)
        return None if not ids else self.by_id(ids[-1])

    def register(self, subject: str, schema_type: str, text: str) -> int:
        found = next((one.id for one in self._schemas if (one.type, one.text) == (schema_type, text)), None)
        if found is None:
            found = len(self._schemas) + 1
            self._schemas.append(KnownSchema(found, schema_type, text))
        ids = self._subjects.setdefault(subject, [])
        if found not in ids:
            ids.append(found)
        return found
