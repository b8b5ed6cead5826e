"""Media types: the response type for an Accept header, and the accepted types of request bodies."""

from __future__ import annotations

import pytest

from pessoa.web.negotiation import choose_media_type, consumes

REGISTRY = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
RECORDS = (
    "application/vnd.kafka.binary.v2+json",
    "application/vnd.kafka.json.v2+json; qs=0.1",
    "application/vnd.kafka.v2+json; qs=0.9",
)


@pytest.mark.parametrize(
    ("accept", "produced", "chosen"),
    [
        (None, REGISTRY, REGISTRY[0]),
        ("", REGISTRY, REGISTRY[0]),
        ("*/*", REGISTRY, REGISTRY[0]),
        ("*", REGISTRY, REGISTRY[0]),
        ("application/*", REGISTRY, REGISTRY[0]),
        ("application/json", REGISTRY, "application/json"),
        ("APPLICATION/JSON; charset=utf-8", REGISTRY, "application/json"),
        ("text/html", REGISTRY, None),
        ("text/html, application/json;q=0.1", REGISTRY, "application/json"),
        ("application/json;q=0.2, application/vnd.schemaregistry+json;q=0.3", REGISTRY, REGISTRY[1]),
        ("*/*, application/vnd.schemaregistry.v1+json;q=0", REGISTRY, REGISTRY[1]),
        ("application/json;q=0", REGISTRY, None),
        ("nonsense", REGISTRY, REGISTRY[0]),
        ("application/json;q=abc", REGISTRY, "application/json"),
        (None, RECORDS, RECORDS[0]),
        ("application/vnd.kafka.v2+json, application/vnd.kafka.json.v2+json", RECORDS, "application/vnd.kafka.v2+json"),
        ("application/vnd.kafka.json.v2+json", RECORDS, "application/vnd.kafka.json.v2+json"),
    ],
)
def test_content_negotiation_follows_the_preference_of_the_client_and_then_of_the_server(
    accept: str | None, produced: tuple[str, ...], chosen: str | None
) -> None:
    assert choose_media_type(accept, produced) == chosen


def test_a_body_without_a_content_type_is_octet_stream() -> None:
    assert consumes(None, ("application/octet-stream",))
    assert not consumes(None, ("application/json",))


def test_parameters_of_a_content_type_are_ignored() -> None:
    assert consumes("application/JSON;charset=utf-8", ("application/json",))
