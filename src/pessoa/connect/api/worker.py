"""/ and /admin/loggers: the worker's version, and the levels of its loggers."""

from __future__ import annotations

import logging
import time

from starlette.requests import Request
from starlette.responses import Response

from pessoa.connect.api.json_messages import answer, in_thread, json_body, nothing
from pessoa.connect.cluster_state import LOGGER
from pessoa.connect.herder import Herder
from pessoa.connect.worker_store import CONFIG
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint, Query

# Kafka 4.3.1: the version whose interface this is, which tools ask for.
KAFKA_VERSION = "4.3.1"
KAFKA_COMMIT = "26b251a451ce941d"
LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}
_NAMES = {number: name for name, number in LEVELS.items()} | {logging.NOTSET: "TRACE"}
ROOT = "root"


class WorkerApi:
    def __init__(self, herder: Herder, cluster_id: str) -> None:
        self._herder = herder
        self._cluster_id = cluster_id
        self._modified_ms: dict[str, int] = {}

    def endpoints(self) -> list[Endpoint]:
        scope = (Query("scope", help="worker or cluster"),)
        return [
            Endpoint("GET", "/", self.root, "Version and cluster.", is_public=True),
            Endpoint("GET", "/admin/loggers", self.loggers, "The loggers whose level was set."),
            Endpoint("GET", "/admin/loggers/{logger}", self.logger, "The level of one logger."),
            Endpoint("PUT", "/admin/loggers/{logger}", self.set_level, "Another level.", scope),
        ]

    async def root(self, _: Request) -> Response:
        return answer({"version": KAFKA_VERSION, "commit": KAFKA_COMMIT, "kafka_cluster_id": self._cluster_id})

    def _level_of(self, name: str) -> dict[str, object]:
        number = _logger(name).getEffectiveLevel()
        level = _NAMES.get(number) or min(_NAMES.items(), key=lambda pair: abs(pair[0] - number))[1]
        return {"level": level, "last_modified": self._modified_ms.get(name)}

    async def loggers(self, _: Request) -> Response:
        known = [name for name, one in logging.root.manager.loggerDict.items()
                 if isinstance(one, logging.Logger) and one.level != logging.NOTSET]  # fmt: skip
        return answer({name: self._level_of(name) for name in [*sorted(known), ROOT]})

    async def logger(self, request: Request) -> Response:
        return answer(self._level_of(request.path_params["logger"]))

    async def set_level(self, request: Request) -> Response:
        name = request.path_params["logger"]
        body = await json_body(request, dict[str, str | None])
        level = body.get("level")
        if level is None:
            raise HttpProblem(400, "Desired 'level' parameter was not specified in request.")
        if level.upper() not in LEVELS:
            raise HttpProblem(404, f"invalid log level '{level}'.")
        if request.query_params.get("scope", "worker").lower() == "cluster":
            await in_thread(self._herder.store.write, CONFIG, LOGGER + name, {"level": level.upper()})
            self.apply(name, level)
            return nothing(204)
        return answer(self.apply(name, level))

    def apply(self, name: str, level: str) -> list[str]:
        """Set the level of a logger in this worker, and return the loggers that it changes."""
        below = [one for one in logging.root.manager.loggerDict if one.startswith(f"{name}.")]
        _logger(name).setLevel(LEVELS[level.upper()])
        self._modified_ms[name] = int(time.time() * 1000)
        return sorted({name, *below}) if name != ROOT else [ROOT]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)
