"""A schema registry and a REST proxy that live in this process, for a test that needs more than a broker.

    with Broker() as kafka, SchemaRegistry(kafka.bootstrap_servers) as registry:
        client = SchemaRegistryClient({"url": registry.url})

Each has a thread and an event loop of its own and listens on a port that the system chooses. They reach the cluster as
any client does, so it may as well be Apache's. `settings` are the keys of the files that Confluent's have,
`schema-registry.properties` and `kafka-rest.properties`.

Leaving the `with` block stops the service, and raises what went wrong inside it, if something did.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.web.asgi_app import App
    from pessoa.web.serving import ThreadedServer

_HOST = "127.0.0.1"


class _Service(ABC):
    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._server: ThreadedServer | None = None

    def __repr__(self) -> str:
        state = f"on {self.url}" if self._server is not None else "stopped"
        return f"<pessoa.testing.{type(self).__name__} {state}>"

    @property
    def url(self) -> str:
        """`http://127.0.0.1:port`."""
        assert self._server is not None, "the service is not running"
        return self._server.url

    def __enter__(self) -> Self:
        from pessoa.web.serving import ThreadedServer, bind

        # Bound before there is an app: a registry tells the others at which port it is found.
        listening = bind(_HOST, 0)
        port = listening.getsockname()[1]
        server = ThreadedServer(lambda: self._make(port), listening=listening)
        try:
            self._server = server.__enter__()
        except BaseException:
            listening.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        server, self._server = self._server, None
        server.__exit__()

    @abstractmethod
    async def _make(self, port: int) -> App: ...


class SchemaRegistry(_Service):
    """`with SchemaRegistry(kafka.bootstrap_servers) as registry: registry.url`."""

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(
            {
                "host.name": _HOST,
                # Sooner than the server's patience ends, or the test would not hear that it is Kafka which is away.
                "kafkastore.init.timeout.ms": "30000",
                **(settings or {}),
                "kafkastore.bootstrap.servers": bootstrap_servers,
            },
        )

    async def _make(self, port: int) -> App:
        from pessoa.schema_registry.registry_config import make_config
        from pessoa.schema_registry.registry_service import make_registry_app

        return await make_registry_app(make_config(self._settings), port)


class RestProxy(_Service):
    """`with RestProxy(kafka.bootstrap_servers, schema_registry=registry.url) as proxy: proxy.url`."""

    def __init__(
        self, bootstrap_servers: str, settings: Mapping[str, str] | None = None, *, schema_registry: str | None = None
    ) -> None:
        named = {} if schema_registry is None else {"schema.registry.url": schema_registry}
        super().__init__({**(settings or {}), **named, "bootstrap.servers": bootstrap_servers})

    async def _make(self, port: int) -> App:
        from pessoa.rest_proxy.proxy_app import rest_proxy_app
        from pessoa.rest_proxy.proxy_config import from_properties

        return rest_proxy_app(from_properties(self._settings))
