"""A session with a Spark Connect server that is not ours to start, and what an engine left there when it died.

A server of one's own dies with its engine, and its queries with it. A server elsewhere goes on, so the queries of an
engine that was killed are still running there, in its session. The engine writes the id of its session down; the next
one in the same home takes that session up once more, to stop what is running, before it opens its own.
"""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.pipelines.spark_server import STATE_SETTINGS, session_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def connect_remote(address: str, home: Path) -> SparkSession:
    path = home / "session"
    if path.exists():
        stop_leftovers(address, path.read_text(encoding="ascii").strip())
    session_id = str(uuid.uuid4())
    session = session_at(with_session(address, session_id))
    for name, value in STATE_SETTINGS.items():
        session.conf.set(name, value)
    path.write_text(session_id, encoding="ascii")
    return session


def with_session(address: str, session_id: str) -> str:
    """Return the address `sc://host:port/;token=…` with the id of a session among its parameters."""
    base, slash, parameters = address.removeprefix("sc://").partition("/")
    parameters = parameters if slash else ""
    return f"sc://{base}/{parameters or ''};session_id={session_id}".replace("/;;", "/;")


def stop_leftovers(address: str, session_id: str) -> None:
    try:
        session = session_at(with_session(address, session_id))
        for query in session.streams.active:
            query.stop()
        session.stop()
    except Exception as gone:  # noqa: BLE001
        # The session has ended, and its queries with it; a server that does not answer shows itself right away.
        log.info("the session %s was not there any more: %s", session_id, gone)
