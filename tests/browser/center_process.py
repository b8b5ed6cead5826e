"""Start the control centre as a process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pessoa.testing import Cluster
from tests.support.logged_process import LoggedProcess, pessoa

START_S = 60


class Platform(NamedTuple):
    cluster: Cluster
    registry: str
    # The control centres without logins (url) and with logins (guarded).
    url: str
    guarded: str


class ControlCenter(LoggedProcess):
    """`pessoa control-center` as a process. `url` is the address that it prints; it must stop cleanly at the end."""

    def __init__(
        self,
        log: Path,
        servers: str,
        registry: str,
        *overrides: str,
        connect: str = "",
        ksql: str = "",
        pipelines: str = "",
    ) -> None:
        """Services without a URL are not configured."""
        settings = (
            f"confluent.controlcenter.connect.cluster={connect}", f"confluent.controlcenter.ksql.url={ksql}",
            f"pessoa.control.center.pipelines.url={pipelines}", *overrides,
        )  # fmt: skip
        words = ["--port", "0", "--bootstrap-server", servers, "--schema-registry", registry]
        words += [word for one in settings for word in ("--override", one)]
        super().__init__(pessoa("control-center", *words), log, name="the control centre")
        self.url = ""

    def start(self, *wrapper: str) -> None:
        super().start(*wrapper)
        self.url = self.wait_for(r"is listening on (\S+)\n", START_S)[1].replace("127.0.0.1", "localhost")

    def __exit__(self, *_: object) -> None:
        assert self.stop(timeout_s=START_S) == 0, self.said[-5000:]
