"""Pipelines with a schema registry that demands a login: client settings have the credentials, Spark never gets
them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.pipelines.kafka_options import spark_settings
from pessoa.pipelines.launching import client_settings
from pessoa.pipelines.plan import Format, KafkaSettings, PlanRefused, Source
from pessoa.pipelines.registry_formats import resolve_schemas
from pessoa.pipelines.registry_values import RegistryFailed, registry_values
from pessoa.serde.framing import frame
from pessoa.streams import App as StreamsApp
from pessoa.web.asgi_app import App, json_response, make_app
from pessoa.web.auth import BasicAuth, parse_users
from pessoa.web.routing import Endpoint
from pessoa.web.serving import ThreadedServer

SCHEMA = '{"type":"record","name":"Venda","fields":[{"name":"valor","type":"int"}]}'
LOGIN = {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "ada:secret"}


async def answer(request: Request) -> Response:
    return json_response(request, {"id": 7, "subject": "vendas-value", "version": 1, "schema": SCHEMA})


async def make_registry() -> App:
    rows = [
        Endpoint("GET", "/schemas/ids/{id}", answer),
        Endpoint("GET", "/subjects/{subject}/versions/{version}", answer),
    ]
    return make_app("registry", rows, auth=BasicAuth(parse_users("ada: secret")))


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    with ThreadedServer(make_registry) as server:
        yield server.url


def test_plan_gets_its_schema_from_a_registry_with_a_login(registry_url: str) -> None:
    plan = Source("vendas", value=Format("avro"))
    found = resolve_schemas(plan, KafkaSettings("h:1", LOGIN, registry_url))
    assert isinstance(found, Source)
    assert found.value.columns == "valor INT"
    with pytest.raises(PlanRefused, match="not to be had"):
        resolve_schemas(plan, KafkaSettings("h:1", {}, registry_url))


def test_rows_of_a_table_are_decoded_by_a_registry_with_a_login(registry_url: str) -> None:
    data = frame(7, b"\x04")
    values = registry_values(KafkaSettings("h:1", LOGIN, registry_url))
    assert values is not None
    assert values.decode(data) == {"valor": 2}
    without = registry_values(KafkaSettings("h:1", {}, registry_url))
    assert without is not None
    with pytest.raises(RegistryFailed):
        without.decode(data)


def test_registry_url_of_the_client_settings_holds_where_no_other_is_given(registry_url: str) -> None:
    """The client files of `pessoa up --secure` name the registry, its authority and the login."""
    app = StreamsApp("vendas", "h:1", config={**LOGIN, "schema.registry.url": registry_url})
    values = registry_values(app.kafka)
    assert values is not None
    assert values.decode(frame(7, b"\x04")) == {"valor": 2}
    assert registry_values(KafkaSettings("h:1", LOGIN)) is None


def test_login_at_the_registry_is_given_neither_to_spark_nor_to_librdkafka() -> None:
    bearer = {"schema.registry.ssl.truststore.location": "/ca.pem", "bearer.auth.token": "t"}
    kafka = KafkaSettings("h:1", {"acks": "all", **LOGIN, **bearer}, "http://r:1")
    assert spark_settings(kafka) == {"kafka.bootstrap.servers": "h:1", "kafka.acks": "all"}
    assert client_settings(kafka) == {"bootstrap.servers": "h:1", "acks": "all"}
