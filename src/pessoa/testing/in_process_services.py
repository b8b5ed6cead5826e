"""A schema registry, a REST proxy and a ksql server in this process, for a test that needs more than a broker.

    with Broker() as kafka, SchemaRegistry(kafka.bootstrap_servers) as registry:
        client = SchemaRegistryClient({"url": registry.url})

Each has a thread and an event loop of its own and listens on a port that the system chooses. They reach the cluster as
any client does, so it may as well be Apache's. `settings` are the keys of the files that Confluent's have,
`schema-registry.properties` and `kafka-rest.properties`.

Leaving the `with` block stops the service, and raises what went wrong inside it, if something did.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pessoa.cli.ksql.server_client import KsqlClient
    from pessoa.web.asgi_app import App
    from pessoa.web.serving import ThreadedServer

T = TypeVar("T")
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
        """The service's address, `http://127.0.0.1:port`."""
        assert self._server is not None, "the service is not running"
        return self._server.url

    def __enter__(self) -> Self:
        from pessoa.web.serving import ThreadedServer, bind

        # Bound before the app is made: a registry announces its port to the others.
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
    """A schema registry in this process: `with SchemaRegistry(kafka.bootstrap_servers) as registry: registry.url`."""

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(
            {
                "host.name": _HOST,
                # Sooner than the server's own timeout, or the test would not learn that Kafka does not answer.
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
    """A REST proxy in this process: `with RestProxy(kafka.bootstrap_servers, schema_registry=registry.url) as proxy:
    proxy.url`."""

    def __init__(
        self, bootstrap_servers: str, settings: Mapping[str, str] | None = None, *, schema_registry: str | None = None
    ) -> None:
        named = {} if schema_registry is None else {"schema.registry.url": schema_registry}
        super().__init__({**(settings or {}), **named, "bootstrap.servers": bootstrap_servers})

    async def _make(self, port: int) -> App:
        from pessoa.rest_proxy.proxy_app import rest_proxy_app
        from pessoa.rest_proxy.proxy_config import from_properties

        return rest_proxy_app(from_properties(self._settings))


class KsqlServer(_Service):
    """A ksql server in this process: `with KsqlServer(kafka.bootstrap_servers) as ksql: ksql.run("CREATE STREAM
    …;")`. Persistent queries run on Spark, which starts with the first of them (`pessoa[spark]`); statements,
    INSERT, push and pull queries do not need it."""

    def __init__(
        self, bootstrap_servers: str, settings: Mapping[str, str] | None = None, *, schema_registry: str | None = None
    ) -> None:
        from tempfile import TemporaryDirectory

        named = {} if schema_registry is None else {"ksql.schema.registry.url": schema_registry}
        self._home = TemporaryDirectory(prefix="pessoa-ksql-", ignore_cleanup_errors=True)
        super().__init__(
            {"pessoa.home": self._home.name, **(settings or {}), **named, "bootstrap.servers": bootstrap_servers}
        )

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._home.cleanup()

    def run(self, statements: str, properties: Mapping[str, str] | None = None) -> list[dict[str, object]]:
        """Run statements and return their entities. Raises AssertionError with the server's message if one is
        refused."""
        return self._client(lambda client: client.statements(statements, properties or {}, {}))

    def rows(self, query: str, properties: Mapping[str, str] | None = None) -> list[list[object]]:
        """Return the rows of a query that ends (a pull query, or one with LIMIT), read from the first record of its
        topics."""
        import json

        def read(client: KsqlClient) -> list[list[object]]:
            found = client.rows(query, {"auto.offset.reset": "earliest", **(properties or {})}, {})
            try:
                values = [json.loads(line) for line in found]
            finally:
                found.close()
            wrong = [one for one in values[1:] if isinstance(one, dict)]
            assert not wrong, wrong[0].get("message")
            return values[1:]

        return self._client(read)

    def _client(self, ask: Callable[[KsqlClient], T]) -> T:
        from pessoa.cli.ksql.server_client import KsqlClient, ServerRefused

        try:
            return ask(KsqlClient(self.url))
        except ServerRefused as refused:
            raise AssertionError(str(refused)) from None

    async def _make(self, port: int) -> App:
        from pessoa.ksql.server.ksql_service import make_ksql_app
        from pessoa.ksql.server.server_config import make_config

        return await make_ksql_app(make_config(self._settings), port)
