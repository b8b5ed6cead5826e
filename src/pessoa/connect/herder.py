"""The herder: starts and stops the tasks of a worker's connectors, until they agree with the cluster's state.

    requests ──► records in the config topic ──► ClusterState ──► `reconcile` ──► Runner
                                  status topic ◄── the runner's reports ◄─────────┘

A request writes a record to the config topic, and is answered. A thread compares the configurations and target states
with the tasks that run, starts and stops tasks, and writes their states and offsets. So it makes no difference whether
a change came by a request, by another worker, or by a restart after a crash.

A connector whose configuration has changed starts with a new run: its tasks begin at the offsets in the offset topic,
not at the checkpoint of the old run.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from pessoa.connect.cluster_state import (
    COMMIT,
    CONNECTOR,
    PAUSED,
    STARTED,
    STATUS_CONNECTOR,
    STATUS_TASK,
    STATUS_TOPIC,
    STOPPED,
    TARGET,
    TASK,
    Status,
    offset_key,
    target_value,
)
from pessoa.connect.config_providers import Providers
from pessoa.connect.connector import SourceConnector
from pessoa.connect.plugins import Plugins
from pessoa.connect.runner import FAILED, RUNNING, UNASSIGNED, Runner, TaskReport, TaskSpec
from pessoa.connect.worker_config import WorkerConfig
from pessoa.connect.worker_store import CONFIG, OFFSET, STATUS, Store

log = logging.getLogger("pessoa.connect")

TICK_S = 0.25
STOP_TIMEOUT_S = 60.0


@dataclass(slots=True)
class ConnectorRun:
    """A connector that was started: its tasks, and the state of each that was last written."""

    settings: dict[str, str]
    kind: str
    version: str
    specs: list[TaskSpec] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)
    # The tasks that have a query: not those that were paused or have failed.
    live: set[int] = field(default_factory=set)
    # Why there are no tasks, if there cannot be any.
    failure: str | None = None


class Herder:
    def __init__(self, config: WorkerConfig, store: Store, runner: Runner, plugins: Plugins) -> None:
        self.config = config
        self.store = store
        self.plugins = plugins
        self._runner = runner
        self._runs: dict[str, ConnectorRun] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="connect-herder", daemon=True)
        self._generation = int(time.time())
        # Held while tasks are started or stopped.
        self._work = threading.RLock()
        self.worker_id = ""
        self.leads = False
        self.is_ready = False

    def __repr__(self) -> str:
        return f"<Herder of {', '.join(self._runs) or 'nothing'}{', leads' if self.leads else ''}>"

    # Start and stop.

    def start(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.store.changed = self._wake.set
        self._thread.start()

    def lead(self, leads: bool) -> None:
        """Begin to run the connectors if this worker leads, else stop all of them before returning.

        A task that is being started cannot be stopped, and may take a while: the first task starts Spark. This waits
        for such a task as long as Kafka waits for a task to stop; the herder stops a slower one as soon as it runs.
        """
        self.leads = leads
        self.is_ready = False
        if not leads:
            patience_s = self.config.shutdown_timeout_ms / 1000
            if self._work.acquire(timeout=patience_s):
                try:
                    self._stop_all()
                finally:
                    self._work.release()
            else:
                log.warning("a task is still being started; it is stopped as soon as it runs")
        self._wake.set()

    def close(self) -> None:
        """Stop every task and keep its offsets and checkpoint, from which the next worker continues."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._work:
            self._stop_all()
        self._runner.close()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(TICK_S)
            self._wake.clear()
            if self._stopping.is_set():
                return
            try:
                self.reconcile()
            except Exception:
                # The next round begins with the state of that moment.
                log.exception("a round of the herder failed")
                self._stopping.wait(1.0)

    # Configurations and target states.

    def reconcile(self) -> None:
        with self._work:
            with self.store.lock:
                state = self.store.state
                wanted = {name: (dict(config), state.target(name)) for name, config in state.configs.items()}
            if not self.leads:
                self._stop_all()
                return
            for name in [name for name in self._runs if name not in wanted]:
                self._remove_connector(name)
            self._erase_orphans()
            for name, (settings, target) in wanted.items():
                if self._has_lost_the_lead():
                    self._stop_all()
                    return
                self._apply_target(name, settings, target)
            for name, run in list(self._runs.items()):
                self._update_statuses(name, run)
            self.is_ready = self.leads

    def _has_lost_the_lead(self) -> bool:
        """Whether another thread has called `lead(False)` while a task was being started."""
        return not self.leads

    def _erase_orphans(self) -> None:
        """Delete the statuses of connectors that were deleted while no worker led.

        Configurations and statuses are read under one lock: a connector may have been created, with its status, since
        the round began.
        """
        with self.store.lock:
            state = self.store.state
            orphans = [name for name in state.connector_status if name not in state.configs]
        for name in orphans:
            self._erase_status(name)

    def _apply_target(self, name: str, settings: dict[str, str], target: str) -> None:
        """Run, pause or stop a connector with these settings, as its target state says."""
        if target == STOPPED:
            self._apply_stopped(name)
            return
        run = self._run_of(name, settings)
        if run.failure is not None:
            if self._state_of(name) != FAILED:
                self._write_status(name, FAILED, run.failure)
        elif target == PAUSED:
            for spec in run.specs:
                self._pause_task(run, spec)
            self._write_status(name, PAUSED)
        else:
            self._write_status(name, RUNNING)
            for spec in run.specs:
                if run.states.get(spec.number) in (None, PAUSED):
                    self._start_task(run, spec)

    def _apply_stopped(self, name: str) -> None:
        was_running = name in self._runs
        if was_running:
            self._stop_connector(name)
        if was_running or self._state_of(name) != STOPPED:
            self._write_tasks(name, [])
            self._erase_tasks(name, 0)
            self._write_status(name, STOPPED)

    def _run_of(self, name: str, settings: dict[str, str]) -> ConnectorRun:
        """Return the run of a connector with these settings; a run with other settings is stopped first."""
        run = self._runs.get(name)
        if run is not None and run.settings == settings:
            return run
        if run is not None:
            # The offsets of the old run are written; its checkpoints must not be found by a later run of the same
            # settings.
            self._stop_connector(name)
            for spec in run.specs:
                self._runner.forget(spec)
        return self._make_tasks(name, settings)

    def _make_tasks(self, name: str, settings: dict[str, str]) -> ConnectorRun:
        """Make the tasks of a configuration; if that fails, the connector's state is FAILED."""
        run = ConnectorRun(settings, "unknown", "")
        self._runs[name] = run
        try:
            kind = self.plugins.connector(settings["connector.class"])
            run.kind, run.version = kind.TYPE, kind.VERSION
            tasks: list[Mapping[str, str]] = [settings]
            if issubclass(kind, SourceConnector):
                resolved = Providers(self.config.settings).resolve(settings)
                count = int(resolved.get("tasks.max", "1"))
                # Secrets are resolved where the task runs: the tasks' settings keep the references to them.
                tasks = [
                    {key: settings.get(key, text) if resolved.get(key) == text else text for key, text in task.items()}
                    for task in kind.tasks(resolved, count)
                ]
            run_id = _run_id(settings)
            run.specs = [TaskSpec(name, number, run.kind, run_id, dict(task)) for number, task in enumerate(tasks)]
        except Exception:
            log.exception("%s could not be started", name)
            run.failure = traceback.format_exc()
            self._write_status(name, FAILED, run.failure)
            return run
        self._write_tasks(name, run.specs)
        self._erase_tasks(name, len(run.specs))
        return run

    def _start_task(self, run: ConnectorRun, spec: TaskSpec) -> None:
        if spec.number not in run.states:
            self._write_task_status(run, spec, UNASSIGNED)
        try:
            self._runner.start(self._with_offsets(spec))
        except Exception:
            log.exception("%s-%d could not be started", spec.connector, spec.number)
            self._write_task_status(run, spec, FAILED, traceback.format_exc())
            return
        run.live.add(spec.number)
        self._write_task_status(run, spec, RUNNING)

    def _with_offsets(self, spec: TaskSpec) -> TaskSpec:
        with self.store.lock:
            known = {place: dict(one) for place, one in self.store.state.offsets.get(spec.connector, {}).items()}
        return TaskSpec(spec.connector, spec.number, spec.kind, spec.run_id, spec.settings, known)

    def _pause_task(self, run: ConnectorRun, spec: TaskSpec) -> None:
        if run.states.get(spec.number) == FAILED:
            return
        if spec.number in run.live:
            self._stop_task(run, spec)
        if run.states.get(spec.number) != PAUSED:
            self._write_task_status(run, spec, PAUSED)

    def _stop_task(self, run: ConnectorRun, spec: TaskSpec) -> None:
        """Stop a task, and write the offsets that it has reached."""
        self._runner.stop(spec)
        run.live.discard(spec.number)
        self._write_offsets(spec, self._runner.report(spec))

    def _stop_all(self) -> None:
        for name in list(self._runs):
            try:
                self._stop_connector(name)
            except Exception:
                # The others are stopped all the same; the next round tries this one again.
                log.exception("%s could not be stopped", name)

    def _stop_connector(self, name: str) -> None:
        run = self._runs[name]
        for spec in run.specs:
            if spec.number in run.live:
                self._stop_task(run, spec)
        del self._runs[name]

    def _remove_connector(self, name: str) -> None:
        run = self._runs[name]
        self._stop_connector(name)
        for spec in run.specs:
            self._runner.forget(spec)
        self._erase_status(name)
        log.info("%s is gone", name)

    # Reports of the runner.

    def _update_statuses(self, name: str, run: ConnectorRun) -> None:
        for spec in run.specs:
            if spec.number not in run.live:
                continue
            report = self._runner.report(spec)
            self._write_offsets(spec, report)
            if report.state == FAILED:
                run.live.discard(spec.number)
                self._runner.stop(spec)
                # The reason comes first (pipelines/failures.py), and where it was raised after it.
                log.error("%s-%d has failed: %s", name, spec.number, (report.trace or "").strip().partition("\n")[0])
            if report.state != run.states.get(spec.number):
                self._write_task_status(run, spec, report.state, report.trace)

    def _write_offsets(self, spec: TaskSpec, report: TaskReport) -> None:
        if spec.kind != "source" or report.offsets is None:
            return
        with self.store.lock:
            known = dict(self.store.state.offsets.get(spec.connector, {}))
        for place, offset in report.offsets.items():
            if known.get(place) != offset:
                self.store.write(OFFSET, offset_key(spec.connector, json.loads(place)), dict(offset))

    # Statuses and tasks in the topics.

    def _state_of(self, name: str) -> str | None:
        with self.store.lock:
            status = self.store.state.connector_status.get(name)
        return status.state if status is not None and status.worker_id == self.worker_id else None

    def _write_status(self, name: str, state: str, trace: str | None = None) -> None:
        run = self._runs.get(name)
        if self._state_of(name) == state and trace is None:
            return
        status = Status(state, self.worker_id, trace, self._generation, run.version if run else self._version(name))
        self.store.write(STATUS, STATUS_CONNECTOR + name, status.to_json())

    def _version(self, name: str) -> str | None:
        with self.store.lock:
            config = self.store.state.configs.get(name, {})
        try:
            return self.plugins.connector(config.get("connector.class", "")).VERSION
        except LookupError:
            return None

    def _write_task_status(self, run: ConnectorRun, spec: TaskSpec, state: str, trace: str | None = None) -> None:
        run.states[spec.number] = state
        status = Status(state, self.worker_id, trace, self._generation, run.version)
        self.store.write(STATUS, f"{STATUS_TASK}{spec.connector}-{spec.number}", status.to_json())

    def _write_tasks(self, name: str, specs: list[TaskSpec]) -> None:
        tasks = [{**spec.settings, "task.class": _task_class(spec.settings)} for spec in specs]
        with self.store.lock:
            known = self.store.state.tasks.get(name)
        if known == tasks:
            return
        for number, settings in enumerate(tasks):
            self.store.write(CONFIG, f"{TASK}{name}-{number}", {"properties": settings})
        self.store.write(CONFIG, COMMIT + name, {"tasks": len(tasks)})

    def _erase_tasks(self, name: str, kept: int) -> None:
        with self.store.lock:
            gone = [
                number for connector, number in self.store.state.task_status if connector == name and number >= kept
            ]
        for number in gone:
            self.store.write(STATUS, f"{STATUS_TASK}{name}-{number}", None)

    def _erase_status(self, name: str) -> None:
        self._erase_tasks(name, 0)
        with self.store.lock:
            topics = list(self.store.state.topics.get(name, {}))
        for topic in topics:
            self.store.write(STATUS, f"{STATUS_TOPIC}{topic}:connector-{name}", None)
        self.store.write(STATUS, STATUS_CONNECTOR + name, None)

    # Requests. They write to the config topic, and leave the rest to the thread.

    def put(self, name: str, settings: Mapping[str, str], target: str | None = None) -> None:
        if target is not None:
            self.store.write(CONFIG, TARGET + name, target_value(target))
        self.store.write(CONFIG, CONNECTOR + name, {"properties": dict(settings)})
        with self.store.lock:
            is_new = name not in self.store.state.connector_status
        if is_new:
            # A request for the status may follow right away, and must find one. If the thread was quicker than this, it
            # writes the status again in its next round.
            self._write_status(name, UNASSIGNED)

    def delete(self, name: str) -> None:
        self.store.write(CONFIG, CONNECTOR + name, None)
        self.store.write(CONFIG, TARGET + name, None)

    def set_target(self, name: str, target: str) -> None:
        with self.store.lock:
            known = self.store.state.target(name)
        if known != target:
            self.store.write(CONFIG, TARGET + name, target_value(target))

    def restart(self, name: str, *, tasks: bool, only_failed: bool) -> None:
        """Start the connector again, and its tasks if `tasks` is set."""
        with self._work:
            run = self._runs.get(name)
            if run is None:
                self._wake.set()
                return
            if run.failure is not None:
                del self._runs[name]
            elif tasks:
                for spec in run.specs:
                    if not only_failed or run.states.get(spec.number) == FAILED:
                        self._restart_task(run, spec)
        self._wake.set()

    def restart_task(self, name: str, number: int) -> None:
        with self._work:
            run = self._runs.get(name)
            if run is not None:
                for spec in run.specs:
                    if spec.number == number:
                        self._restart_task(run, spec)
        self._wake.set()

    def _restart_task(self, run: ConnectorRun, spec: TaskSpec) -> None:
        if spec.number in run.live:
            self._stop_task(run, spec)
        with self.store.lock:
            target = self.store.state.target(spec.connector)
        if target == STARTED:
            self._start_task(run, spec)

    def wait_until_stopped(self, name: str) -> bool:
        """Wait for the tasks of a connector to stop; False if they have not in time."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            with self._work:
                if name not in self._runs:
                    return True
            self._wake.set()
            time.sleep(0.05)
        return False

    def forget_checkpoints(self, name: str) -> None:
        """Delete the checkpoints of a connector whose offsets were changed by a request."""
        with self.store.lock:
            settings = dict(self.store.state.configs.get(name, {}))
        count = max(1, int(settings.get("tasks.max", "1")))
        with self._work:
            for number in range(count):
                self._runner.forget(TaskSpec(name, number, "", _run_id(settings), settings))


def _run_id(settings: Mapping[str, str]) -> str:
    return sha256(json.dumps(sorted(settings.items())).encode()).hexdigest()[:10]


def _task_class(settings: Mapping[str, str]) -> str:
    name = settings.get("connector.class", "")
    return f"{name.removesuffix('Connector')}Task"
