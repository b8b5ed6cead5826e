"""A client of the schema registry over HTTP, for everything that writes or reads with schemas.

What is asked is written once, without I/O: a *question* is a generator that yields requests, gets the bytes of answers
and returns what they say. Two clients put questions to a registry: `RegistryClient` blocks (tools, Connect's
converters, Spark's workers, which pickle it), `AsyncRegistryClient` does not (the REST proxy, exporters, the pages of
the control centre).

    client.ask(by_id(7))                    a schema by its id
    client.ask(resolved(by_id(7)))          the same, with the texts of what it refers to
    client.ask(by_version("orders-value"))  the latest version of a subject
    client.ask(register("orders-value", RegisteredSchema(text)))

Settings are those of the JVM's clients, with or without the prefix `schema.registry.`:

    url                                           several with commas: each is tried in turn until one answers
    basic.auth.user.info, bearer.auth.token       who we are; or user:password@ within a URL
    ssl.truststore.location, ssl.keystore.location, ssl.key.password    PEM files: trusted certificates, and our own
    http.connect.timeout.ms, http.read.timeout.ms

What an id stands for never changes, so it is asked once; the cache is bounded by the size of the texts.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from pessoa.base.weighted_cache import WeightedCache

if TYPE_CHECKING:
    import ssl

    import httpx

T = TypeVar("T")

URL = "schema.registry.url"
PREFIX = "schema.registry."
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
CONNECT_TIMEOUT_MS = 10_000
# A registry without a leader waits half a minute for one before it refuses a write.
READ_TIMEOUT_MS = 30_000
AVRO = "AVRO"
_CACHE_BYTES = 16 * 1024 * 1024
# The most characters of a response that is not JSON in a message.
_SHOWN_CHARACTERS = 200


class RegistryFailed(Exception):
    """The registry did not answer, or refused."""


class RegistryRefused(RegistryFailed):
    """The registry refused: an unknown subject or id, an invalid or incompatible schema."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryUnreachable(RegistryFailed):
    """No registry answered with a valid response.

    `reason` is the failure of the last registry that was tried; `status` its HTTP status if it refused without a
    message, or 0.
    """

    def __init__(self, message: str, reason: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status


class Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema as the registry describes it. A look-up by id returns no `version` and no `subject`."""

    schema: str
    id: int = 0
    subject: str = ""
    version: int = 0
    # Avro is the default, which the registry's responses leave out too.
    schema_type: str = msgspec.field(name="schemaType", default=AVRO)
    references: tuple[Reference, ...] = ()


class ResolvedSchema(NamedTuple):
    id: int
    type: str
    text: str
    # The texts of what it refers to, by the names that it uses; what is needed stands before what needs it.
    references: dict[str, str]


class Verdict(msgspec.Struct, frozen=True):
    """Whether a schema is compatible with a version of a subject, and why not."""

    is_compatible: bool
    messages: tuple[str, ...] = ()


class _Registered(msgspec.Struct):
    id: int


class _Level(msgspec.Struct):
    level: str = msgspec.field(name="compatibilityLevel")


class _Error(msgspec.Struct):
    error_code: int = 0
    message: str = ""


# Questions.


class Request(NamedTuple):
    method: str
    path: str
    body: bytes | None = None
    # Whether the answer will always be this one.
    is_final: bool = False


Question = Generator[Request, bytes, T]


def by_id(schema_id: int) -> Question[RegisteredSchema]:
    answer = yield Request("GET", f"/schemas/ids/{schema_id}", is_final=True)
    return msgspec.structs.replace(msgspec.json.decode(answer, type=RegisteredSchema), id=schema_id)


def by_version(subject: str, version: int | str = "latest") -> Question[RegisteredSchema]:
    answer = yield Request("GET", f"{_path(subject)}/versions/{version}")
    return msgspec.json.decode(answer, type=RegisteredSchema)


def look_up(subject: str, schema: RegisteredSchema, *, is_final: bool = False) -> Question[RegisteredSchema]:
    """Return the registered version of this schema under the subject."""
    answer = yield Request("POST", _path(subject), _body(schema), is_final)
    return msgspec.json.decode(answer, type=RegisteredSchema)


def register(subject: str, schema: RegisteredSchema, *, is_final: bool = False) -> Question[int]:
    """Register the schema under the subject, and return its id."""
    answer = yield Request("POST", f"{_path(subject)}/versions", _body(schema), is_final)
    return msgspec.json.decode(answer, type=_Registered).id


def subjects() -> Question[list[str]]:
    answer = yield Request("GET", "/subjects")
    return msgspec.json.decode(answer, type=list[str])


def versions(subject: str) -> Question[list[int]]:
    answer = yield Request("GET", f"{_path(subject)}/versions")
    return msgspec.json.decode(answer, type=list[int])


def delete_subject(subject: str) -> Question[list[int]]:
    """Return the versions that were deleted. The subject may be registered again; its ids stay."""
    answer = yield Request("DELETE", _path(subject))
    return msgspec.json.decode(answer, type=list[int])


def compatibility_level(subject: str | None = None) -> Question[str]:
    """Return the compatibility level of the subject, which is the global one if it has none of its own."""
    path = "/config" if subject is None else f"/config/{quote(subject, safe='')}?defaultToGlobal=true"
    answer = yield Request("GET", path)
    return msgspec.json.decode(answer, type=_Level).level


def set_compatibility_level(subject: str, level: str) -> Question[None]:
    return do("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": level})


def check_compatibility(subject: str, schema: RegisteredSchema) -> Question[Verdict]:
    """Return whether the schema is compatible with the latest version of the subject."""
    path = f"/compatibility{_path(subject)}/versions/latest?verbose=true"
    answer = yield Request("POST", path, _body(schema))
    return msgspec.json.decode(answer, type=Verdict)


def resolved(schema: Question[RegisteredSchema]) -> Question[ResolvedSchema]:
    found = yield from schema
    return ResolvedSchema(found.id, found.schema_type, found.schema, (yield from texts_of(found.references)))


def texts_of(references: tuple[Reference, ...]) -> Question[dict[str, str]]:
    """Return the schema texts by the names that the schema refers to, dependencies first."""
    texts: dict[str, str] = {}
    yield from _resolve(references, texts)
    return texts


def _resolve(references: tuple[Reference, ...], texts: dict[str, str]) -> Question[None]:
    for each in references:
        if each.name not in texts:
            found = yield from by_version(each.subject, each.version)
            yield from _resolve(found.references, texts)
            texts[each.name] = found.schema


def do(method: str, path: str, body: object = None) -> Question[None]:
    """Return the question that sends any other request to the registry."""
    yield Request(method, path, None if body is None else msgspec.json.encode(body))


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _body(schema: RegisteredSchema) -> bytes:
    body: dict[str, object] = {"schema": schema.schema}
    if schema.schema_type != AVRO:
        body["schemaType"] = schema.schema_type
    if schema.references:
        body["references"] = schema.references
    return msgspec.json.encode(body)


# Clients.


class _Client:
    """What both clients share: registry URLs, credentials and the reading of responses."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = {key.removeprefix(PREFIX): value for key, value in settings.items()}
        self._urls = [url.strip().rstrip("/") for url in self._settings.get("url", "").split(",") if url.strip()]
        self._answers: WeightedCache[bytes] = WeightedCache(_CACHE_BYTES)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._shown_urls()}>"

    def _shown_urls(self) -> str:
        """Return the addresses, without the credentials that may be in them."""
        return ", ".join(url.replace(f"{urlsplit(url).netloc.rpartition('@')[0]}@", "", 1) for url in self._urls)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": MEDIA_TYPE, "Accept": f"{MEDIA_TYPE}, application/json"}
        if token := self._settings.get("bearer.auth.token"):
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _auth(self) -> tuple[str, str] | None:
        user, colon, password = self._settings.get("basic.auth.user.info", "").partition(":")
        return (user, password) if colon else None

    def _timeout(self) -> httpx.Timeout:
        import httpx

        connect_ms = float(self._settings.get("http.connect.timeout.ms", CONNECT_TIMEOUT_MS))
        read_ms = float(self._settings.get("http.read.timeout.ms", READ_TIMEOUT_MS))
        return httpx.Timeout(read_ms / 1000, connect=connect_ms / 1000)

    def _trust(self) -> ssl.SSLContext | bool:
        from pessoa.web.trust import tls_context, trust_for

        authority, own = (self._settings.get(f"ssl.{store}.location") for store in ("truststore", "keystore"))
        if authority is None and own is None:
            return trust_for(self._urls)
        return tls_context(authority, own, self._settings.get("ssl.key.password"))

    def _steps(self, question: Question[T]) -> Generator[tuple[str, Request], httpx.Response, T]:
        """Yield the requests that answer a question, each with its URL; a request's failure is thrown in."""
        try:
            request = next(question)
            while True:
                answer = self._answers.get(request)
                if answer is None:
                    answer = yield from self._attempts(request)
                    if request.is_final:
                        self._answers.put(request, answer, len(answer) + len(request.body or b""))
                request = question.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found
        except msgspec.DecodeError as wrong:
            sentence = f"{self._shown_urls()} is no schema registry: {wrong}"
            raise RegistryUnreachable(sentence, str(wrong)) from None

    def _attempts(self, request: Request) -> Generator[tuple[str, Request], httpx.Response, bytes]:
        import httpx

        failure, status = "no address was given", 0
        for url in self._urls:
            try:
                response = yield url + request.path, request
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure, status = str(error) or type(error).__name__, 0
                continue
            try:
                if response.is_success:
                    msgspec.json.decode(response.content)
                    return response.content
                refused = msgspec.json.decode(response.content, type=_Error)
            except msgspec.DecodeError:
                # The status is that of a proxy before the registry, not of the registry itself.
                failure = f"HTTP {response.status_code} {response.text[:_SHOWN_CHARACTERS]}"
                status = 0 if response.is_success else response.status_code
                continue
            raise RegistryRefused(response.status_code, refused.error_code, refused.message)
        sentence = f"the schema registry at {self._shown_urls()} cannot be reached: {failure}"
        raise RegistryUnreachable(sentence, failure, status)


class RegistryClient(_Client):
    """A blocking client of schema registries. It may be pickled; the copy opens connections of its own."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._http: httpx.Client | None = None

    def __reduce__(self) -> tuple[type[RegistryClient], tuple[dict[str, str]]]:
        return RegistryClient, (self._settings,)

    def ask(self, question: Question[T]) -> T:
        import httpx

        if self._http is None:
            # A proxy that the environment names is for the world outside, not for the registry next door.
            self._http = httpx.Client(
                timeout=self._timeout(), headers=self._headers(), auth=self._auth(), verify=self._trust(),
                trust_env=False,
            )  # fmt: skip
        steps = self._steps(question)
        try:
            url, request = next(steps)
            while True:
                try:
                    response = self._http.request(request.method, url, content=request.body)
                except (httpx.HTTPError, httpx.InvalidURL) as failure:
                    url, request = steps.throw(failure)
                else:
                    url, request = steps.send(response)
        except StopIteration as end:
            found: T = end.value
            return found

    def close(self) -> None:
        if self._http is not None:
            self._http.close()


class AsyncRegistryClient(_Client):
    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._http: httpx.AsyncClient | None = None

    async def ask(self, question: Question[T]) -> T:
        import httpx

        if self._http is None:
            self._http = httpx.AsyncClient(
                timeout=self._timeout(), headers=self._headers(), auth=self._auth(), verify=self._trust(),
                trust_env=False,
            )  # fmt: skip
        steps = self._steps(question)
        try:
            url, request = next(steps)
            while True:
                try:
                    response = await self._http.request(request.method, url, content=request.body)
                except (httpx.HTTPError, httpx.InvalidURL) as failure:
                    url, request = steps.throw(failure)
                else:
                    url, request = steps.send(response)
        except StopIteration as end:
            found: T = end.value
            return found

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()
