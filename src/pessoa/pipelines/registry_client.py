"""The schema registry as pipelines ask it: by id when reading, by subject when planning, to register when writing.

Spark's Python workers ask it too, so the client is small, keeps what it has learnt (an id means the same forever), and
can be pickled: a worker opens its own connections.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

TIMEOUT_S = 10.0
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryFailed(Exception):
    """The registry did not answer, or said no."""


class Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _Stored(msgspec.Struct):
    schema: str
    id: int = 0
    schema_type: str = msgspec.field(name="schemaType", default="AVRO")
    references: tuple[Reference, ...] = ()


class Schema(NamedTuple):
    id: int
    kind: str
    text: str
    # The texts of what it refers to, by the names that it uses; what is needed stands before what needs it.
    references: dict[str, str]


class RegistryClient:
    def __init__(self, urls: str) -> None:
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._by_id: dict[int, Schema] = {}

    def __repr__(self) -> str:
        return f"<RegistryClient of {', '.join(self._urls)}, {len(self._by_id)} schemas known>"

    def by_id(self, schema_id: int) -> Schema:
        if schema_id not in self._by_id:
            stored = self._ask("GET", f"/schemas/ids/{schema_id}", _Stored)
            self._by_id[schema_id] = self._whole(stored, schema_id)
        return self._by_id[schema_id]

    def latest(self, subject: str) -> Schema:
        stored = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest", _Stored)
        return self._whole(stored, stored.id)

    def register(self, subject: str, kind: str, text: str) -> int:
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", dict[str, Any], body)
        return int(answer["id"])

    def _whole(self, stored: _Stored, schema_id: int) -> Schema:
        references: dict[str, str] = {}
        self._gather(stored.references, references)
        return Schema(schema_id, stored.schema_type, stored.schema, references)

    def _gather(self, wanted: tuple[Reference, ...], found: dict[str, str]) -> None:
        for reference in wanted:
            if reference.name in found:
                continue
            path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
            stored = self._ask("GET", path, _Stored)
            self._gather(stored.references, found)
            found[reference.name] = stored.schema

    def _ask(self, method: str, path: str, answer: Any, body: Any = None) -> Any:
        import httpx

        failure = "no address was given"
        for url in self._urls:
            try:
                # Whatever proxy the environment names is for the world outside, not for the registry next door.
                with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client:
                    content = None if body is None else msgspec.json.encode(body)
                    response = client.request(method, url + path, content=content, headers={"Content-Type": MEDIA_TYPE})
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = f"{url} did not answer: {error}"
                continue
            if response.is_success:
                return msgspec.json.decode(response.content, type=answer)
            raise RegistryFailed(f"the schema registry said no to {method} {path}: {response.text[:300]}")
        raise RegistryFailed(f"the schema registry cannot be asked: {failure}")
