"""Where codecs get the schemas of a registry from: values, so that a codec stays without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


class KnownSchema(NamedTuple):
    """A schema of the registry; `references` are the texts of what it refers to, what is needed first."""

    id: int
    # AVRO, JSON or PROTOBUF
    type: str
    text: str
    references: Mapping[str, str] = {}


class SchemaSource(Protocol):
    """A registry as codecs ask it. An answer about an id is final; callers keep it."""

    def by_id(self, schema_id: int) -> KnownSchema | None: ...

    def latest_of_subject(self, subject: str) -> KnownSchema | None: ...

    def register(self, subject: str, schema_type: str, text: str) -> int:
        """Return the id of the schema, which the subject has from then on."""


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
