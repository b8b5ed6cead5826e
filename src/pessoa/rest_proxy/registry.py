"""The schema registry over HTTP: the few questions that the proxy has for it.

Settings are the JVM's: `schema.registry.url` may name several registries, tried in turn; `basic.auth.user.info` or
credentials within the URL say who we are; `schema.registry.ssl.*` whom we trust, as PEM files.

What an id stands for never changes, so it is asked once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

TIMEOUT_S = 10.0
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
PREFIX = "schema.registry."


class Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class StoredSchema(msgspec.Struct):
    """A schema as the registry describes it. `version` and `subject` are missing where it is asked for by id."""

    schema: str
    id: int = 0
    subject: str = ""
    version: int = 0
    # Avro goes without saying, in the registry's answers too.
    schema_type: str = msgspec.field(name="schemaType", default="AVRO")
    references: tuple[Reference, ...] = ()


class _Error(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class RegistryRefused(Exception):
    """The registry's answer was no: an unknown subject or id, a schema that is wrong or incompatible."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryUnreachable(Exception):
    """No registry answered, or none in a way that can be understood."""


class Registry:
    def __init__(self, urls: str, settings: Mapping[str, str]) -> None:
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._settings = {key.removeprefix(PREFIX): value for key, value in settings.items()}
        self._client: httpx.AsyncClient | None = None
        self._by_id: dict[int, StoredSchema] = {}

    def __repr__(self) -> str:
        return f"<Registry at {', '.join(self._urls)}, {len(self._by_id)} schemas known>"

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def by_id(self, schema_id: int) -> StoredSchema:
        found = self._by_id.get(schema_id)
        if found is None:
            found = await self._ask("GET", f"/schemas/ids/{schema_id}", StoredSchema)
            found.id = schema_id
            self._by_id[schema_id] = found
        return found

    async def by_version(self, subject: str, version: int | str) -> StoredSchema:
        return await self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}", StoredSchema)

    async def look_up(self, subject: str, schema: StoredSchema) -> StoredSchema:
        """The version under which this subject has this schema."""
        return await self._ask("POST", f"/subjects/{quote(subject, safe='')}", StoredSchema, _body(schema))

    async def register(self, subject: str, schema: StoredSchema) -> None:
        await self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", dict, _body(schema))

    async def _ask(self, method: str, path: str, answer: type[T], body: bytes | None = None) -> T:
        import httpx

        client = self._opened()
        failure: Exception | None = None
        for url in self._urls:
            try:
                response = await client.request(method, url + path, content=body)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = error
                continue
            try:
                if response.is_success:
                    return msgspec.json.decode(response.content, type=answer)
                refused = msgspec.json.decode(response.content, type=_Error)
            except msgspec.DecodeError as error:
                failure = error
                continue
            raise RegistryRefused(response.status_code, refused.error_code, refused.message)
        raise RegistryUnreachable(f"the schema registry at {', '.join(self._urls)} did not answer: {failure}")

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            user, colon, password = self._settings.get("basic.auth.user.info", "").partition(":")
            self._client = httpx.AsyncClient(
                timeout=TIMEOUT_S,
                headers={"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE},
                auth=(user, password) if colon else None,
                verify=self._trust(),
                # Whatever proxy the environment names is for the world outside, not for the registry next door.
                trust_env=False,
            )
        return self._client

    def _trust(self) -> Any:
        authority = self._settings.get("ssl.truststore.location")
        own = self._settings.get("ssl.keystore.location")
        if authority is None and own is None:
            return True
        from pessoa.web.trust import trusting

        return trusting(authority, own, self._settings.get("ssl.key.password"))


def _body(schema: StoredSchema) -> bytes:
    body: dict[str, Any] = {"schema": schema.schema}
    if schema.schema_type != "AVRO":
        body["schemaType"] = schema.schema_type
    if schema.references:
        body["references"] = schema.references
    return msgspec.json.encode(body)
