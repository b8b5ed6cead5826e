"""The client of the schema registry: URLs, logins, retries, caching, and the parsing of responses."""

from __future__ import annotations

import asyncio
import pickle
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import aclosing

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.client import registry_client
from pessoa.client.registry_client import (
    AsyncRegistryClient,
    Question,
    RegisteredSchema,
    RegistryClient,
    RegistryRefused,
    RegistryUnreachable,
    T,
    Verdict,
    by_id,
    by_version,
    check_compatibility,
    compatibility_level,
    delete_subject,
    look_up,
    register,
    resolved,
    set_compatibility_level,
    subjects,
    versions,
)
from pessoa.web.asgi_app import App, json_response, make_app
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint
from pessoa.web.serving import ThreadedServer

NOWHERE = "http://127.0.0.1:1"


class ScriptedRegistry:
    """A registry that returns the responses of the test, and records the headers of requests."""

    def __init__(self) -> None:
        self.answers: dict[str, object] = {}
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self.authorizations: list[str | None] = []
        self.url = ""

    async def make(self) -> App:
        subject = "/subjects/{subject}"
        paths = {
            "GET": ("/schemas/ids/{id}", "/subjects", f"{subject}/versions", f"{subject}/versions/{{version}}",
                    "/config", "/config/{subject}"),
            "POST": (subject, f"{subject}/versions", f"/compatibility{subject}/versions/{{version}}"),
            "PUT": ("/config/{subject}",),
            "DELETE": (subject,),
        }  # fmt: skip
        rows = [Endpoint(method, path, self._answer) for method in paths for path in paths[method]]
        return make_app("registry", rows, consumes=(registry_client.MEDIA_TYPE,))

    async def _answer(self, request: Request) -> Response:
        line = f"{request.method} {request.scope['raw_path'].decode()}"
        if request.url.query:
            line += f"?{request.url.query}"
        self.asked.append(line)
        self.bodies.append(await request.body())
        self.authorizations.append(request.headers.get("authorization"))
        answer = self.answers.get(line)
        if answer is None:
            raise HttpProblem(404, "Schema not found", 40403)
        return Response(answer) if isinstance(answer, bytes) else json_response(request, answer)


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    scripted = ScriptedRegistry()
    with ThreadedServer(scripted.make) as server:
        scripted.url = server.url
        yield scripted


def ask_blocking(settings: dict[str, str], question: Callable[[], Question[T]]) -> T:
    client = RegistryClient(settings)
    try:
        return client.ask(question())
    finally:
        client.close()


def ask_async(settings: dict[str, str], question: Callable[[], Question[T]]) -> T:
    async def scenario() -> T:
        async with aclosing(AsyncRegistryClient(settings)) as client:
            return await client.ask(question())

    return asyncio.run(scenario())


Ask = Callable[[dict[str, str], Callable[[], Question[RegisteredSchema]]], RegisteredSchema]
both = pytest.mark.parametrize("ask", [ask_blocking, ask_async])


@both
def test_a_schema_with_references_is_returned_with_the_texts_of_its_references_in_order(
    registry: ScriptedRegistry, ask: Callable[..., object]
) -> None:
    base = {"name": "base", "subject": "b/1", "version": 1}
    part = {"name": "part", "subject": "p", "version": 2}
    registry.answers = {
        "GET /schemas/ids/7": {"schema": "whole", "schemaType": "PROTOBUF", "references": [part, base]},
        "GET /subjects/p/versions/2": {"schema": "the part", "references": [base]},
        "GET /subjects/b%2F1/versions/1": {"schema": "the base"},
    }
    found = ask({"url": registry.url}, lambda: resolved(by_id(7)))
    assert found == (7, "PROTOBUF", "whole", {"base": "the base", "part": "the part"})
    assert isinstance(found, tuple)
    assert list(found[3]) == ["base", "part"], "what is needed stands before what needs it"


@both
@pytest.mark.parametrize(
    ("question", "line", "answer", "found"),
    [
        (subjects, "GET /subjects", ["a", "b/1"], ["a", "b/1"]),
        (lambda: versions("b/1"), "GET /subjects/b%2F1/versions", [1, 3], [1, 3]),
        (compatibility_level, "GET /config", {"compatibilityLevel": "FULL"}, "FULL"),
        (lambda: compatibility_level("b/1"), "GET /config/b%2F1?defaultToGlobal=true", {"compatibilityLevel": "NONE"},
         "NONE"),
    ],
)  # fmt: skip
def test_subjects_versions_and_compatibility_levels_are_read(
    registry: ScriptedRegistry, ask: Callable[..., object], question: Callable[[], Question[object]], line: str,
    answer: object, found: object,
) -> None:  # fmt: skip
    registry.answers = {line: answer}
    assert ask({"url": registry.url}, question) == found
    assert registry.asked == [line]


@both
def test_a_compatibility_level_is_set_for_one_subject(registry: ScriptedRegistry, ask: Callable[..., object]) -> None:
    registry.answers = {"PUT /config/b%2F1": {"compatibility": "FULL"}}
    ask({"url": registry.url}, lambda: set_compatibility_level("b/1", "FULL"))
    assert registry.bodies == [b'{"compatibility":"FULL"}']


@both
def test_a_subject_is_deleted_by_its_quoted_name_and_the_versions_are_told(
    registry: ScriptedRegistry, ask: Callable[..., object]
) -> None:
    registry.answers = {"DELETE /subjects/b%2F1": [1, 3]}
    assert ask({"url": registry.url}, lambda: delete_subject("b/1")) == [1, 3]
    with pytest.raises(RegistryRefused):
        ask({"url": registry.url}, lambda: delete_subject("c"))


@both
@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"is_compatible": True}, Verdict(True)),
        ({"is_compatible": False, "messages": ["why", "not"]}, Verdict(False, ("why", "not"))),
    ],
)
def test_a_compatibility_check_returns_the_reasons(
    registry: ScriptedRegistry, ask: Callable[..., object], answer: object, verdict: Verdict
) -> None:
    registry.answers = {"POST /compatibility/subjects/b%2F1/versions/latest?verbose=true": answer}
    schema = RegisteredSchema("text", schema_type="JSON")
    assert ask({"url": registry.url}, lambda: check_compatibility("b/1", schema)) == verdict
    assert registry.bodies == [b'{"schema":"text","schemaType":"JSON"}']


@both
def test_an_unreachable_or_foreign_registry_is_skipped_for_the_next_url(registry: ScriptedRegistry, ask: Ask) -> None:
    registry.answers = {"GET /subjects/s/versions/latest": {"schema": "text", "id": 4}}

    async def page() -> App:
        async def proxy_error(request: Request) -> Response:
            return Response(b"<html>Bad gateway</html>", 502)

        return make_app("balancer", [Endpoint("GET", "/subjects/{subject}/versions/{version}", proxy_error)])

    with ThreadedServer(page) as balancer:
        urls = f"{NOWHERE}, {balancer.url}/ ,{registry.url}"
        assert ask({"schema.registry.url": urls}, lambda: by_version("s")) == RegisteredSchema("text", 4)


@both
@pytest.mark.parametrize(
    ("settings", "credentials", "sent"),
    [
        ({}, "", None),
        ({"basic.auth.user.info": "ann:secret"}, "", f"Basic {b64encode(b'ann:secret').decode()}"),
        ({"schema.registry.basic.auth.user.info": "ann:a:b"}, "", f"Basic {b64encode(b'ann:a:b').decode()}"),
        ({"bearer.auth.token": "token"}, "", "Bearer token"),
        ({}, "ann:secret@", f"Basic {b64encode(b'ann:secret').decode()}"),
    ],
)
def test_the_registry_client_sends_a_user_agent(
    registry: ScriptedRegistry, ask: Ask, settings: dict[str, str], credentials: str, sent: str | None
) -> None:
    registry.answers = {"GET /schemas/ids/7": {"schema": "text"}}
    url = registry.url.replace("//", f"//{credentials}")
    assert ask({"url": url, **settings}, lambda: by_id(7)) == RegisteredSchema("text", 7)
    assert registry.authorizations == [sent]


def test_a_schema_id_is_requested_once_and_a_latest_version_each_time(registry: ScriptedRegistry) -> None:
    registry.answers = {"GET /schemas/ids/7": {"schema": "text"}, "GET /subjects/s/versions/1": {"schema": "text"}}
    client = RegistryClient({"url": registry.url})
    for _ in range(2):
        client.ask(by_id(7))
        client.ask(by_version("s", 1))
    assert registry.asked == ["GET /schemas/ids/7", "GET /subjects/s/versions/1", "GET /subjects/s/versions/1"]
    client.close()


def test_the_schema_cache_is_bounded_by_the_size_of_the_responses(
    registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "_CACHE_BYTES", 1000)
    registry.answers = {f"GET /schemas/ids/{number}": {"schema": "x" * 400} for number in range(3)}
    client = RegistryClient({"url": registry.url})
    for number in (0, 1, 2, 0):
        client.ask(by_id(number))
    assert registry.asked[-1] == "GET /schemas/ids/0", "it was asked again, having been evicted"
    assert len(registry.asked) == 4
    client.close()


@both
def test_a_registry_error_has_status_code_and_message(registry: ScriptedRegistry, ask: Ask) -> None:
    with pytest.raises(RegistryRefused, match="Schema not found") as refused:
        ask({"url": registry.url}, lambda: look_up("s", RegisteredSchema("text")))
    assert (refused.value.status, refused.value.code) == (404, 40403)


@both
def test_a_connection_failure_names_the_registry_without_its_credentials(ask: Ask) -> None:
    with pytest.raises(RegistryUnreachable, match=r"registry at http://127\.0\.0\.1:1 cannot be reached") as no:
        ask({"url": "http://ann:secret@127.0.0.1:1"}, lambda: by_id(1))
    assert "secret" not in str(no.value)
    with pytest.raises(RegistryUnreachable, match="no address"):
        ask({}, lambda: by_id(1))


@both
def test_json_of_another_shape_is_refused_as_a_registry_response(registry: ScriptedRegistry, ask: Ask) -> None:
    registry.answers = {"GET /schemas/ids/7": ["no schema"]}
    with pytest.raises(RegistryUnreachable, match="no schema registry"):
        ask({"url": registry.url}, lambda: by_id(7))


def test_an_unpickled_registry_client_uses_the_same_registry(registry: ScriptedRegistry) -> None:
    registry.answers = {"POST /subjects/s/versions": {"id": 12}}
    client = RegistryClient({"url": registry.url})
    assert client.ask(register("s", RegisteredSchema("text"))) == 12
    copy = pickle.loads(pickle.dumps(client))
    assert copy.ask(register("s", RegisteredSchema("text"))) == 12
    client.close()
    copy.close()


def test_a_registry_that_accepts_connections_and_does_not_respond_times_out() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryUnreachable, match="timed out"):
            ask_blocking({"url": url, "http.read.timeout.ms": "50"}, lambda: by_id(1))


def test_httpx_is_not_imported_before_the_first_request() -> None:
    """The console tools start in a tenth of a second."""
    assert RegistryClient({"url": NOWHERE})._http is None
    assert httpx.__name__ not in vars(registry_client)
