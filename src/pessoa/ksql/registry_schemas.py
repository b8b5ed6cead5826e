"""The schema registry as codecs use it, in Spark's workers and in the server: `operators/schema_source.py` over HTTP.

The client is made where it is needed: the settings travel to workers, a connection cannot. What an id means stays so,
and is asked for once; the latest schema of a subject does not. A text is registered once by a query; a server, which
deletes subjects as well, forgets what it registered (`server/registry_access.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pessoa.client.registry_client import (
    RegisteredSchema,
    RegistryClient,
    RegistryRefused,
    by_id,
    by_version,
    register,
    resolved,
)
from pessoa.ksql.operators.schema_source import KnownSchema

_NOT_FOUND = 404


class RegistrySchemas:
    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are those of the registry's client: schema.registry.url and others."""
        self._settings = dict(settings)
        self._client: RegistryClient | None = None
        # A cache without a bound: it has at most as many entries as the registry has schemas.
        self._known: dict[int, KnownSchema] = {}
        self._registered: dict[tuple[str, str, str], int] = {}

    def __reduce__(self) -> tuple[type[RegistrySchemas], tuple[dict[str, str]]]:
        return RegistrySchemas, (self._settings,)

    def __repr__(self) -> str:
        return f"<RegistrySchemas, {len(self._known)} known>"

    @property
    def client(self) -> RegistryClient:
        if self._client is None:
            self._client = RegistryClient(self._settings)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def by_id(self, schema_id: int) -> KnownSchema | None:
        if schema_id not in self._known:
            try:
                found = self.client.ask(resolved(by_id(schema_id)))
            except RegistryRefused as refused:
                if refused.status == _NOT_FOUND:
                    return None
                raise
            self._known[schema_id] = KnownSchema(*found)
        return self._known[schema_id]

    def latest_of_subject(self, subject: str) -> KnownSchema | None:
        try:
            return KnownSchema(*self.client.ask(resolved(by_version(subject))))
        except RegistryRefused as refused:
            if refused.status == _NOT_FOUND:
                return None
            raise

    def register(self, subject: str, schema_type: str, text: str) -> int:
        place = (subject, schema_type, text)
        if place not in self._registered:
            schema = RegisteredSchema(text, schema_type=schema_type)
            self._registered[place] = self.client.ask(register(subject, schema))
        return self._registered[place]

    def forget_registered(self) -> None:
        """Clear the cached ids of registered schemas: a subject was deleted, and its schemas must be registered
        again."""
        self._registered.clear()
