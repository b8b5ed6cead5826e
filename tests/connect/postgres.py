"""A real PostgreSQL for as long as a `with` block lasts, in a temporary folder, on a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.apache.broker import reserve_port

TIMEOUT_S = 120


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl; None where there is no PostgreSQL."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a database, as JDBC writes it."""
    folder = binaries()
    assert folder is not None
    # It refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pessoa-postgres-") as temporary:
        if user is not None:
            owner = pwd.getpwnam(user)
            os.chown(temporary, owner.pw_uid, owner.pw_gid)
        data, port = Path(temporary) / "data", reserve_port()

        def run(program: str, *words: str) -> None:
            subprocess.run(
                [str(folder / program), *words], check=True, timeout=TIMEOUT_S, user=user, cwd=temporary,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

        run("initdb", "-D", str(data), "-U", "pessoa", "--auth=trust", "--no-sync", "-E", "UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        run("pg_ctl", "-D", str(data), "-w", "-t", str(TIMEOUT_S), "-o", options, "-l", f"{temporary}/log", "start")
        try:
            yield f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=pessoa"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
