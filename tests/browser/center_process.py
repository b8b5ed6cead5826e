"""The control centre as a process, and what the tests of its pages look at."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

from pessoa.testing import Cluster

START_S = 60


class Platform(NamedTuple):
    cluster: Cluster
    registry: str
    # Without logins, and with them.
    url: str
    guarded: str


class ControlCenter:
    """`pessoa control-center` as a process; `url` is where it says that it listens."""

    def __init__(
        self, servers: str, registry: str, *overrides: str, connect: str = "", ksql: str = "", pipelines: str = ""
    ) -> None:
        """Services without a URL are not configured."""
        settings = (
            f"confluent.controlcenter.connect.cluster={connect}", f"confluent.controlcenter.ksql.url={ksql}",
            f"pessoa.control.center.pipelines.url={pipelines}", *overrides,
        )  # fmt: skip
        command = [
            sys.executable, "-m", "pessoa", "control-center", "--port", "0", "--bootstrap-server", servers,
            "--schema-registry", registry, *(word for one in settings for word in ("--override", one)),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "is listening on " in line, f"the control centre said {line!r}"
        self.url = line.rpartition("is listening on ")[2].strip().replace("127.0.0.1", "localhost")

    def stop(self) -> int:
        assert self.process.stdout is not None
        self.process.terminate()
        with self.process.stdout:
            return self.process.wait(START_S)
