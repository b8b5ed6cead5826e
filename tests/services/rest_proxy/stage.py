"""A REST proxy over real sockets, and an HTTP client for it.

The proxy runs in a thread of the test's process. Topics and groups get unique names, so that all tests can share one
cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.rest_proxy.proxy_app import rest_proxy_app
from pessoa.rest_proxy.proxy_config import from_properties
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer

V2 = "application/vnd.kafka.v2+json"
V2_JSON = "application/vnd.kafka.json.v2+json"
V2_BINARY = "application/vnd.kafka.binary.v2+json"
# Enough for a first join of a group on a busy machine.
PATIENCE = 60


class Rest:
    """An HTTP client of a proxy, and the cluster behind it."""

    def __init__(self, url: str, bootstrap_servers: str) -> None:
        self.url = url
        self.bootstrap_servers = bootstrap_servers
        self.http = httpx.Client(base_url=url, timeout=60, trust_env=False)
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def topic(self, partitions: int = 1, **configs: str) -> str:
        name = f"rest-{uuid4().hex[:12]}"
        new = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in configs.items()})
        self._admin.create_topics([new])[name].result()
        self.wait_for_topic(name)
        return name

    def wait_for_topic(self, name: str) -> None:
        """Wait until the proxy shows the topic: brokers learn of a new topic after it was created."""
        self.until(lambda: self.http.get(f"/topics/{name}").status_code == 200, f"{name} appears")

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Call `holds` until it is true; there is no pause, because each call waits for an answer of the proxy."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.http.get(path, headers={key.replace("_", "-"): value for key, value in headers.items()})

    def send(self, method: str, path: str, body: Any = None, content_type: str = V2, **headers: str) -> httpx.Response:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        if isinstance(body, bytes):
            return self.http.request(method, path, content=body, headers={"content-type": content_type, **sent})
        if body is None:
            return self.http.request(method, path, headers=sent)
        return self.http.request(method, path, json=body, headers={"content-type": content_type, **sent})

    def produce(self, topic: str, *values: Any, content_type: str = V2_JSON) -> list[dict[str, Any]]:
        records = [{"value": value} for value in values]
        answer = self.send("POST", f"/topics/{topic}", {"records": records}, content_type)
        assert answer.status_code == 200, answer.text
        offsets: list[dict[str, Any]] = answer.json()["offsets"]
        return offsets

    def consumer(self, **body: Any) -> Consumer:
        group = f"group-{uuid4().hex[:12]}"
        given = {"format": "json", "auto.offset.reset": "earliest", "fetch.min.bytes": 0}
        answer = self.send("POST", f"/consumers/{group}", {**given, **body})
        assert answer.status_code == 200, answer.text
        return Consumer(self, group, answer.json())

    @property
    def cluster(self) -> str:
        """Return the v3 path of the only cluster."""
        [found] = self.get("/v3/clusters").json()["data"]
        return f"/v3/clusters/{found['cluster_id']}"


class Consumer:
    """One consumer instance; its paths start with the `base_uri` that the proxy gave."""

    def __init__(self, rest: Rest, group: str, created: dict[str, str]) -> None:
        self.rest = rest
        self.group = group
        self.name = created["instance_id"]
        self.uri = created["base_uri"]

    def post(self, path: str, body: Any = None) -> httpx.Response:
        return self.rest.send("POST", f"{self.uri}{path}", body)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.rest.get(f"{self.uri}{path}", **headers)

    def delete(self, path: str = "") -> httpx.Response:
        return self.rest.send("DELETE", f"{self.uri}{path}")

    def read(self, count: int, accept: str = V2_JSON, query: str = "") -> list[dict[str, Any]]:
        """Read until there are `count` records and return them; the first reads often only join the group."""
        records: list[dict[str, Any]] = []

        def are_enough() -> bool:
            answer = self.get(f"/records{query}", accept=accept)
            assert answer.status_code == 200, answer.text
            records.extend(answer.json())
            return len(records) >= count

        self.rest.until(are_enough, f"{count} records come")
        return records


class proxy_in_front_of:  # noqa: N801 - reads as a sentence after `with`
    """Serve a REST proxy in front of a cluster; `settings` are those of the proxy, with underscores for dots."""

    def __init__(self, bootstrap_servers: str, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        # No registry unless the settings name one: another program may listen on the default port.
        nowhere = {"schema.registry.url": "http://127.0.0.1:1"}
        self._config = from_properties({"bootstrap.servers": bootstrap_servers, **nowhere, **given})
        self._server = ThreadedServer(self._make)

    async def _make(self) -> App:
        return rest_proxy_app(self._config)

    def __enter__(self) -> Rest:
        self._server.__enter__()
        self.rest = Rest(self._server.url, self._config.bootstrap_servers)
        return self.rest

    def __exit__(self, *_: object) -> None:
        self.rest.http.close()
        self._server.__exit__()
