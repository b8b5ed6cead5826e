"""An engine's link to Spark: a server of its own, started when it is first needed, or one that is run elsewhere.

A Spark that does not start is tried again after a pause that doubles, however often it is asked for meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.pipelines.slow_steps import saying
from pessoa.pipelines.spark_server import SparkOptions, SparkServer, SparkUnavailable, forget, import_client_aside
from pessoa.pipelines.task_slots import slots_of_master, slots_of_session, with_room

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

log = logging.getLogger(__name__)


class SparkLink:
    def __init__(self, home: Path, remote: str | None, options: SparkOptions, say: Callable[[str], None]) -> None:
        self._home = home
        self._remote = remote
        self._options = options
        self._say = say
        # Our own, while there is one; and the session with whichever server.
        self.server: SparkServer | None = None
        self.session: SparkSession | None = None
        # How many task slots Spark has. Of a cluster it is known when it was asked.
        self.task_slots = slots_of_master(options.master) if remote is None else None
        self._attempts = 0
        self._next_start_s = 0.0

    def __repr__(self) -> str:
        # An address may hold a token behind its slash.
        where = self.server or (self._remote or "no Spark").partition("/;")[0]
        return f"<SparkLink to {where}>"

    @property
    def has_ended(self) -> bool:
        return self.server is not None and not self.server.is_running

    def connect(self) -> SparkSession:
        """Return the session; starts Spark if it does not run. Raises SparkUnavailable, NoJava or JarsUnavailable."""
        if self.session is not None:
            return self.session
        if time.monotonic() < self._next_start_s:
            raise SparkUnavailable("Spark did not start, and is tried again soon")
        try:
            self.session = self._connect()
        except SparkUnavailable:
            self._attempts += 1
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._attempts - 1))
            self._next_start_s = time.monotonic() + pause_s
            raise
        self._attempts = 0
        return self.session

    def _connect(self) -> SparkSession:
        if self._remote is not None:
            from pessoa.pipelines.remote_sessions import connect_remote

            address, began_s = self._remote.partition("/;")[0], time.monotonic()
            self._say(f"Connecting to Spark at {address}")
            with saying(self._say, "Waiting for Spark to answer"):
                session = connect_remote(self._remote, self._home)
                self.task_slots = slots_of_session(session)
            self._say(f"Spark is ready after {time.monotonic() - began_s:.1f} s ({address})")
            return session
        if self.server is None or not self.server.is_running:
            master = with_room(self._options.master)
            self._say(f"Starting Spark ({master}); this takes some seconds")
            # Beside Java, which is waited for anyway.
            import_client_aside()
            with saying(self._say, "Starting Spark"):
                self.server = SparkServer.start(self._home / "spark", self._options, self._say_progress)
            self._say(f"Spark is ready after {self.server.ready_after_s:.1f} s ({master})")
        with saying(self._say, "Opening a session with Spark"):
            session = self.server.session()
        if self.task_slots is None:
            self.task_slots = slots_of_session(session)
        return session

    def _say_progress(self, count: int, total: int, size: int) -> None:
        self._say(f"Fetching Spark's jars for Kafka: {count} of {total} ({size / 1e6:.1f} MB)")

    def drop(self) -> None:
        session, self.session = self.session, None
        server, self.server = self.server, None
        if session is not None:
            # A session that is not closed asks for its server again when it is collected, and waits for it.
            try:
                if server is not None and not server.is_running:
                    forget(session)
                else:
                    session.stop()
            except Exception as silent:  # noqa: BLE001
                log.info("the session with Spark could not be closed: %s", silent)
        if server is not None:
            server.stop()
