"""A real Spark for tests: one server for the whole run, however many worker processes pytest has.

    spark_address   sc://… of the server, for an engine to use as its `spark_remote`
    spark           a session of it, for one module
    spark_log       the file that the server logs to

Starting Spark takes seconds of two cores, so the first process that needs it starts it and the others use it too. Each
user holds a shared lock on a file; the process that started the server stops it when it gets the exclusive lock.
PESSOA_TEST_SPARK=sc://… uses a server that runs already.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pessoa.pipelines.spark_server import SparkOptions, SparkServer, session_at

# Making a class data archive takes a minute of one core, which the tests need.
os.environ.setdefault("PESSOA_CLASS_ARCHIVE", "use")

# Quick to start rather than fast at full speed: C1 only, one collector thread, and Spark's classes are taken as they
# are, which is a fifth of the processor time until the first batch is done.
SMALL_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    # With C1 alone it is 48 MB, and the code of a few hundred expressions and of twenty queries fills them.
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
SMALL = SparkOptions(
    # Tasks in real-time mode hold their task slots, and several tests share this Spark.
    master="local[64]",
    memory="1g",
    settings={"spark.sql.shuffle.partitions": "2"},
    java_options=SMALL_JVM,
)


def _shared_folder(factory: pytest.TempPathFactory) -> Path:
    own = factory.getbasetemp()
    # Each worker of xdist has a folder of its own within the folder of the run.
    return own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own


@pytest.fixture(scope="session")
def spark_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if given := os.environ.get("PESSOA_TEST_SPARK"):
        yield given
        return
    folder = _shared_folder(tmp_path_factory)
    address = folder / "spark.address"
    server = None
    with (folder / "spark.users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with (folder / "spark.start").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            if not address.exists():
                server = SparkServer.start(folder / "spark", SMALL)
                address.write_text(server.address, encoding="ascii")
        yield address.read_text(encoding="ascii")
        if server is not None:
            fcntl.flock(users, fcntl.LOCK_EX)
            server.stop()


@pytest.fixture
def spark_log(spark_address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("PESSOA_TEST_SPARK"):
        pytest.skip("the log of a Spark that was there before is not known")
    return _shared_folder(tmp_path_factory) / "spark" / "spark.log"


@pytest.fixture(scope="module")
def spark(spark_address: str) -> Iterator[Any]:
    session: Any = session_at(spark_address)
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()
