"""Run a real PostgreSQL in a temporary folder on a free port, for as long as a `with` block lasts."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.apache.broker import reserve_port

TIMEOUT_S = 120


def binaries() -> Path | None:
    """Return the folder of initdb and pg_ctl; None if PostgreSQL is not installed."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class Postgres:
    """A PostgreSQL server that can be stopped and started again with its data."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.port = reserve_port()
        self._folder = folder
        self._programs = programs
        # PostgreSQL refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        self._run("initdb", "-D", self._data, "-U", "pessoa", "--auth=trust", "--no-sync", "-E", "UTF8")

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [str(self._programs / program), *words], check=True, timeout=TIMEOUT_S, user=self._user, cwd=self._folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        # The change-data source reads the log.
        options += " -c wal_level=logical"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", self._data, "-w", "-t", str(TIMEOUT_S), "-o", options, "-l", log, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def url(self, database: str = "postgres") -> str:
        """Return the JDBC URL of a database."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}?user=pessoa"

    def create(self, database: str) -> str:
        """Create a database and return its JDBC URL."""
        with psycopg.connect(self.url().removeprefix("jdbc:"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database}".encode())
        return self.url(database)


@contextmanager
def postgres() -> Iterator[Postgres]:
    programs = binaries()
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="pessoa-postgres-") as temporary:
        server = Postgres(Path(temporary), programs)
        server.start()
        try:
            yield server
        finally:
            server.stop()
