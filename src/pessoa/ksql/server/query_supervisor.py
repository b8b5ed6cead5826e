"""Persistent queries that run on this server: a thread starts and stops them so that they match the image.

Only the server that leads runs queries. The runner is made when there is a query to run, since it may start Spark, and
closed when the server ceases to lead: the state of its queries stays, and the next leader continues them.

    wanted (image, leads) ──▶ terminate what is not wanted ──▶ start what is missing ──▶ pause and resume
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.query_runner import PersistentQuery, QueryRunner, RunnerStatus
from pessoa.ksql.server.ksql_state import KsqlState

log = logging.getLogger("pessoa.ksql")

# A query that cannot be started is tried again, as Confluent's servers do (ksql.query.retry.backoff.*).
_FIRST_RETRY_S = 2.0
_LONGEST_RETRY_S = 60.0


@dataclass
class _Running:
    query: PersistentQuery
    # What ALTER SYSTEM had set when it was started.
    system: Mapping[str, str]
    is_paused: bool = False


@dataclass
class _Failed:
    message: str
    retry_at_s: float
    pause_s: float


class QuerySupervisor:
    def __init__(self, make_runner: Callable[[], QueryRunner]) -> None:
        self._make_runner = make_runner
        self._runner: QueryRunner | None = None
        self._changed = threading.Condition()
        self._wanted_state = KsqlState()
        self._leads = False
        self._is_dirty = False
        self._is_stopping = False
        self._running: dict[str, _Running] = {}
        self._failures: dict[str, _Failed] = {}
        self._thread = threading.Thread(target=self._run, name="ksql-queries", daemon=True)

    def __repr__(self) -> str:
        return f"<QuerySupervisor {'leads' if self._leads else 'follows'}, runs {sorted(self._running)}>"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._close_runner()

    def want(self, state: KsqlState) -> None:
        with self._changed:
            self._wanted_state = state
            self._is_dirty = True
            self._changed.notify_all()

    def lead(self, leads: bool) -> None:
        """Begin to run queries; or stop all of them, and return when this server runs none."""
        with self._changed:
            self._leads = leads
            self._is_dirty = True
            self._changed.notify_all()
            if not leads:
                # Until the runner is closed as well: the next leader takes its checkpoints.
                self._changed.wait_for(lambda: not self._is_dirty or self._is_stopping or not self._thread.is_alive())

    @property
    def leads(self) -> bool:
        return self._leads

    def wait_until_settled(self, timeout_s: float) -> bool:
        """Wait until every query that should run does or has failed to start, and no other runs. Return False after
        the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_dirty, timeout_s)

    def status(self, query_id: str) -> RunnerStatus:
        """Return the status of a query as far as this server knows it."""
        failed = self._failures.get(query_id)
        if failed is not None:
            return RunnerStatus("ERROR", failed.message)
        runner = self._runner
        if query_id in self._running and runner is not None:
            return runner.status(query_id)
        if query_id in self._wanted_state.paused:
            return RunnerStatus("PAUSED")
        return RunnerStatus("STARTING") if self._leads else RunnerStatus("RUNNING", why="it runs on another server")

    def explain(self, plan: LogicalPlan) -> list[str]:
        """Return the runner's explanation of a plan; a server that does not lead has no runner."""
        with self._changed:
            if self._runner is None:
                if not self._leads:
                    return ["The server that leads runs persistent queries, and this one does not."]
                self._runner = self._make_runner()
            runner = self._runner
        return runner.explain(plan)

    # The thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_dirty or self._is_stopping, self._next_retry_s())
                if self._is_stopping:
                    return
                wanted, leads = self._wanted_state, self._leads
            self._reconcile(wanted if leads else KsqlState(), delete_state=leads)
            if not leads:
                self._close_runner()
            with self._changed:
                self._is_dirty = self._wanted_state is not wanted or self._leads is not leads
                self._changed.notify_all()

    def _next_retry_s(self) -> float | None:
        if not self._failures:
            return None
        return max(0.05, min(one.retry_at_s for one in self._failures.values()) - time.monotonic())

    def _reconcile(self, wanted: KsqlState, *, delete_state: bool) -> None:
        for query_id, running in list(self._running.items()):
            now = wanted.queries.get(query_id)
            if now is None or now is not running.query or wanted.system != running.system:
                # A replaced query, and one that gets other properties, keep the place that they have read to.
                self._end(query_id, delete_state=delete_state and now is None)
        for query_id in [one for one in self._failures if one not in wanted.queries]:
            del self._failures[query_id]
        for query_id, query in wanted.queries.items():
            failed = self._failures.get(query_id)
            if query_id not in self._running and (failed is None or failed.retry_at_s <= time.monotonic()):
                self._begin(query, wanted.system)
        for query_id, running in self._running.items():
            pauses = query_id in wanted.paused
            if pauses != running.is_paused and self._runner is not None:
                try:
                    (self._runner.pause if pauses else self._runner.resume)(query_id)
                except KsqlError as refused:
                    log.warning("the query %s is not %s: %s", query_id, "paused" if pauses else "resumed", refused)
                running.is_paused = pauses

    def _begin(self, query: PersistentQuery, system: Mapping[str, str]) -> None:
        try:
            with self._changed:
                if self._runner is None:
                    self._runner = self._make_runner()
            self._runner.start(replace(query, properties={**system, **query.properties}))
        except Exception as failure:
            log.exception("the query %s cannot be started", query.id)
            before = self._failures.get(query.id)
            pause_s = _FIRST_RETRY_S if before is None else min(before.pause_s * 2, _LONGEST_RETRY_S)
            self._failures[query.id] = _Failed(str(failure), time.monotonic() + pause_s, pause_s)
        else:
            self._failures.pop(query.id, None)
            self._running[query.id] = _Running(query, system)

    def _end(self, query_id: str, *, delete_state: bool) -> None:
        assert self._runner is not None
        try:
            if delete_state or self._leads:
                self._runner.terminate(query_id, delete_state)
        except Exception:
            log.exception("the query %s did not stop in order", query_id)
        with self._changed:
            self._running.pop(query_id, None)
            self._changed.notify_all()

    def _close_runner(self) -> None:
        with self._changed:
            runner, self._runner = self._runner, None
            self._running.clear()
        if runner is not None:
            runner.close()
