"""Run a broker with Connect, ksql and pipelines on one Spark, and a control centre that is configured with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from pessoa.pipelines.api import pipelines_app
from pessoa.pipelines.engine import Engine
from pessoa.testing import Broker, Cluster
from pessoa.testing.in_process_services import KsqlServer, SchemaRegistry
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer
from tests.browser.center_process import ControlCenter
from tests.connect.serving import connect_worker

STRING = "org.apache.kafka.connect.storage.StringConverter"


class LiveServices(NamedTuple):
    servers: str
    url: str
    registry: str
    connect: httpx.Client
    ksql: KsqlServer
    pipelines: str
    folder: Path


@contextmanager
def live_services(folder: Path, spark: str, cluster: Cluster | None = None, *overrides: str) -> Iterator[LiveServices]:
    """Start the services and yield their addresses.

    `spark` is the address of a Spark Connect server, `overrides` are further settings of the control centre, whose
    home is the folder.
    """
    with ExitStack() as stack:
        servers = (cluster or stack.enter_context(Broker())).bootstrap_servers
        registry = stack.enter_context(SchemaRegistry(servers))
        settings = {"pessoa.spark.remote": spark, "key.converter": STRING, "value.converter": STRING}
        connect = stack.enter_context(connect_worker(servers, folder / "connect", settings))
        ksql = stack.enter_context(KsqlServer(servers, {"pessoa.spark.remote": spark}, schema_registry=registry.url))

        async def make() -> App:
            return pipelines_app(Engine(servers, home=folder / "pipelines", spark_remote=spark))

        pipelines = stack.enter_context(ThreadedServer(make)).url
        center = ControlCenter(
            folder / "center.log", servers, registry.url, f"pessoa.control.center.home={folder}", *overrides,
            connect=str(connect.base_url), ksql=ksql.url, pipelines=pipelines,
        )  # fmt: skip
        stack.enter_context(center)
        yield LiveServices(servers, center.url, registry.url, connect, ksql, pipelines, folder)
