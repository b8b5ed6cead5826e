"""The cost of observability: the access log as JSON and as text, and metrics, compared with a broker without them.

All variants run at the same time and get the same requests in turn (`bench/bursts.py`). Apache Kafka's request log
(`kafka.request.logger` at DEBUG, written with the rest of its output) is measured the same way; its metrics cannot be
turned off. Scraping metrics is not in these figures: it happens once in some seconds.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import APACHE, HOST, NO_SETTINGS, running_apache, running_pessoa, sides
from bench.bursts import ONE_RECORD, PRODUCE_1000, Variant, alternate
from bench.report import OURS
from pessoa.client.blocking_connection import Connection
from pessoa.metadata.image import ConfigResource
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.apache.broker import reserve_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from bench.apache import Side
    from bench.report import Report

OFF, JSON, TEXT, METRICS, ALL = "nothing", "access log, JSON", "access log, text", "metrics", "access log and metrics"
TIMEOUT_S = 60.0
SET = 0


def run(report: Report) -> None:
    with_metrics = {"pessoa.metrics.port": str(reserve_port())}
    with_log = {"pessoa.logs": "access"}
    with_all = with_log | {"pessoa.metrics.port": str(reserve_port())}
    variants = {
        OFF: NO_SETTINGS,
        JSON: with_log,
        TEXT: with_log | {"pessoa.logs.format": "text"},
        METRICS: with_metrics,
        ALL: with_all,
    }
    measure(report, OURS, {name: partial(running_pessoa, more=settings) for name, settings in variants.items()})
    if APACHE in sides():
        measure(report, APACHE, {OFF: running_apache, TEXT: running_apache})


def measure(report: Report, name: str, starters: dict[str, Callable[[Path], AbstractContextManager[Side]]]) -> None:
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="pessoa-bench-")))
        variants = {}
        for number, (variant, start) in enumerate(starters.items()):
            side = running.enter_context(start(folder / str(number)))
            variants[variant] = Variant(side, NO_SETTINGS)
            if name == APACHE and variant == TEXT:
                turn_on_request_log(side)
        for shape in (PRODUCE_1000, ONE_RECORD):
            for variant, measured in alternate(variants, shape, f"bench-{shape.records}").items():
                case = f"{shape.name}: {variant}"
                if shape is ONE_RECORD:
                    report.add(case, name, measured.rate, "req/s")
                    report.add(case, name, measured.cpu_of_burst_s / shape.burst * 1e6, "CPU µs")
                else:
                    report.add(case, name, measured.cpu_of_burst_s / shape.gigabytes, "CPU s/GB")


def turn_on_request_log(side: Side) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    connection = Connection(HOST, side.port, "bench", NO_SETTINGS, deadline)
    change = AlterableConfig(name="kafka.request.logger", config_operation=SET, value="DEBUG")
    resource = AlterConfigsResource(resource_type=ConfigResource.BROKER_LOGGER, resource_name="1", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (response,) = connection.send(request, IncrementalAlterConfigsResponse, deadline).responses
    connection.close()
    if response.error_code:
        raise SystemExit(f"the log of requests could not be turned on: {response.error_message}")
