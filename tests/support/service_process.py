"""A service with a Spark of its own, as a process that a test can kill: `pessoa pipelines serve` or `pessoa connect`.

engine = engine_process(servers, home)
engine.start()                              returns when it is healthy
engine.ask("GET", "/queries")
engine.kill()                               SIGKILL; `start` starts it again, with the same home directory
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.support import spark
from tests.support.logged_process import LoggedProcess, pessoa
from tests.support.topics import eventually

DEADLINE_S = 240.0


def engine_process(servers: str, home: Path) -> ServiceProcess:
    return ServiceProcess(
        home,
        *("pipelines", "serve", "--bootstrap-server", servers, "--home", str(home), "--port", "0"),
        *("--spark-master", "local[32]", "--spark-set", "spark.sql.shuffle.partitions=2"),
    )


def worker_process(servers: str, home: Path, **settings: str) -> ServiceProcess:
    """Return the process of a Connect worker, not started; `settings` have underscores for dots."""
    settings["pessoa_home"] = str(home)
    overrides = [f"{name.replace('_', '.')}={text}" for name, text in settings.items()]
    return ServiceProcess(
        home,
        *("connect", "--bootstrap-server", servers, "--host", "127.0.0.1", "--port", "0"),
        *(word for override in overrides for word in ("--override", override)),
    )


class ServiceProcess(LoggedProcess):
    def __init__(self, home: Path, *words: str) -> None:
        java = {"JAVA_TOOL_OPTIONS": " ".join(spark.SMALL_JVM)}
        super().__init__(pessoa(*words), home.with_suffix(".output"), name=words[0], env=java)
        self.url = ""

    def start(self, *wrapper: str) -> None:
        """Start it, and return when it is healthy."""
        super().start(*wrapper)
        self.url = self.wait_for(r"is listening on (\S+)", DEADLINE_S)[1]
        eventually(lambda: httpx.get(f"{self.url}/health", timeout=DEADLINE_S).is_success, DEADLINE_S, pause_s=0.05)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = httpx.request(method, self.url + path, json=body, timeout=DEADLINE_S)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def spark_pid(self) -> int | None:
        """Return the process id of Spark's Java: a child of the guardian process, which is a child of the service."""
        return next((java for guardian in children(self.pid) for java in children(guardian)), None)


def children(pid: int) -> list[int]:
    """Return the child processes of a process. Linux lists them by thread, and threads may end meanwhile."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, path.read_text().split())
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
