"""What should run and what does: the connectors of a worker, brought in line with the state over and over.

    requests ──► records in the config topic ──► ClusterState ──► `_reconcile` ──► Runner
                                    status topic ◄── what the runner reports ◄──┘

A request changes what should be: it writes a record, and is answered. A thread compares what should be with what is,
starts and stops tasks, looks at their reports, and writes down states and offsets. So it makes no difference whether
a change came by a request, by another worker, or by a restart after a crash.

A connector whose configuration has changed starts with a new run: its tasks begin at the offsets that were written
down, not at the checkpoint of the old run.
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

from pessoa.connect.connector import SourceConnector
from pessoa.connect.plugins import Plugins
from pessoa.connect.providers import Providers
from pessoa.connect.runner import FAILED, RUNNING, UNASSIGNED, Runner, TaskReport, TaskSpec
from pessoa.connect.state import (
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
from pessoa.connect.store import CONFIG, OFFSET, STATUS, Store
from pessoa.connect.worker_config import WorkerConfig

log = logging.getLogger("pessoa.connect")

TICK_S = 0.25
STOP_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Run:
    """A connector at work: its tasks, and what was last said about each."""

    settings: dict[str, str]
    kind: str
    version: str
    specs: list[TaskSpec] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)
    # Tasks that were paused or have failed hold no query.
    live: set[int] = field(default_factory=set)
    # Why there are no tasks, if there cannot be any.
    failure: str | None = None


class Herder:
    def __init__(self, config: WorkerConfig, store: Store, runner: Runner, plugins: Plugins) -> None:
        self.config = config
        self.store = store
        self.plugins = plugins
        self._runner = runner
        self._runs: dict[str, Run] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="connect-herder", daemon=True)
        self._generation = int(time.time())
        # Held while tasks are started or stopped, and by whoever must not be disturbed by that.
        self._work = threading.RLock()
        self.worker_id = ""
        self.leads = False
        self.is_ready = False

    def __repr__(self) -> str:
        return f"<Herder of {', '.join(self._runs) or 'nothing'}{', leads' if self.leads else ''}>"

    # Life.

    def start(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.store.changed = self._wake.set
        self._thread.start()

    def lead(self, leads: bool) -> None:
        self.leads = leads
        self._wake.set()

    def close(self) -> None:
        """Stop every task and keep where it is; the next worker goes on from there."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        with self._work:
            for name in list(self._runs):
                self._halt(name)
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
                # The next round begins with what is true by then.
                log.exception("a round of the herder failed")
                self._stopping.wait(1.0)

    # What should be.

    def reconcile(self) -> None:
        with self._work:
            with self.store.lock:
                state = self.store.state
                wanted = {name: (dict(config), state.target(name)) for name, config in state.configs.items()}
            if not self.leads:
                for name in list(self._runs):
                    self._halt(name)
                return
            for name in [name for name in self._runs if name not in wanted]:
                self._remove(name)
            self._bury(set(wanted))
            for name, (settings, target) in wanted.items():
                self._bring(name, settings, target)
            for name, run in list(self._runs.items()):
                self._look_at(name, run)
            self.is_ready = True

    def _bury(self, names: set[str]) -> None:
        """Statuses of connectors that were deleted while nobody led."""
        with self.store.lock:
            left = [name for name in self.store.state.connector_status if name not in names]
        for name in left:
            self._erase_status(name)

    def _bring(self, name: str, settings: dict[str, str], target: str) -> None:
        run = self._runs.get(name)
        if target == STOPPED:
            if run is not None:
                self._halt(name)
            if run is not None or self._state_of(name) != STOPPED:
                self._write_tasks(name, [])
                self._erase_tasks(name, 0)
                self._say(name, STOPPED)
            return
        if run is None or run.settings != settings:
            if run is not None:
                # What the old run knew is written down; its checkpoints must not be found by a later run of the same
                # settings.
                self._halt(name)
                for spec in run.specs:
                    self._runner.forget(spec)
            run = self._begin(name, settings)
        if run.failure is not None:
            if self._state_of(name) != FAILED:
                self._say(name, FAILED, run.failure)
            return
        if target == PAUSED:
            for spec in run.specs:
                self._pause(run, spec)
            self._say(name, PAUSED)
        else:
            self._say(name, RUNNING)
            for spec in run.specs:
                if run.states.get(spec.number) in (None, PAUSED):
                    self._start(run, spec)

    def _begin(self, name: str, settings: dict[str, str]) -> Run:
        """Make the tasks of a configuration; a failure is the connector's state."""
        run = Run(settings, "unknown", "")
        self._runs[name] = run
        try:
            kind = self.plugins.connector(settings["connector.class"])
            run.kind, run.version = kind.TYPE, kind.VERSION
            tasks: list[Mapping[str, str]] = [settings]
            if issubclass(kind, SourceConnector):
                resolved = Providers(self.config.settings).resolve(settings)
                count = int(settings.get("tasks.max", "1"))
                # Secrets are resolved where the task runs; what is dealt out here keeps its references.
                tasks = [
                    {key: settings.get(key, text) if resolved.get(key) == text else text for key, text in task.items()}
                    for task in kind.tasks(resolved, count)
                ]
            run_id = _run_id(settings)
            run.specs = [TaskSpec(name, number, run.kind, run_id, dict(task)) for number, task in enumerate(tasks)]
        except Exception:
            log.exception("%s could not be started", name)
            run.failure = traceback.format_exc()
            self._say(name, FAILED, run.failure)
            return run
        self._write_tasks(name, run.specs)
        self._erase_tasks(name, len(run.specs))
        return run

    def _start(self, run: Run, spec: TaskSpec) -> None:
        if spec.number not in run.states:
            self._say_task(run, spec, UNASSIGNED)
        try:
            self._runner.start(self._with_offsets(spec))
        except Exception:
            log.exception("%s-%d could not be started", spec.connector, spec.number)
            self._say_task(run, spec, FAILED, traceback.format_exc())
            return
        run.live.add(spec.number)
        self._say_task(run, spec, RUNNING)

    def _with_offsets(self, spec: TaskSpec) -> TaskSpec:
        with self.store.lock:
            known = {place: dict(one) for place, one in self.store.state.offsets.get(spec.connector, {}).items()}
        return TaskSpec(spec.connector, spec.number, spec.kind, spec.run_id, spec.settings, known)

    def _pause(self, run: Run, spec: TaskSpec) -> None:
        if run.states.get(spec.number) == FAILED:
            return
        if spec.number in run.live:
            self._finish(run, spec)
        if run.states.get(spec.number) != PAUSED:
            self._say_task(run, spec, PAUSED)

    def _finish(self, run: Run, spec: TaskSpec) -> None:
        """Stop a task, and write down how far it came."""
        self._runner.stop(spec)
        run.live.discard(spec.number)
        self._note_offsets(spec, self._runner.report(spec))

    def _halt(self, name: str) -> None:
        run = self._runs.pop(name)
        for spec in run.specs:
            if spec.number in run.live:
                self._finish(run, spec)

    def _remove(self, name: str) -> None:
        run = self._runs[name]
        self._halt(name)
        for spec in run.specs:
            self._runner.forget(spec)
        self._erase_status(name)
        log.info("%s is gone", name)

    # What is.

    def _look_at(self, name: str, run: Run) -> None:
        for spec in run.specs:
            if spec.number not in run.live:
                continue
            report = self._runner.report(spec)
            self._note_offsets(spec, report)
            if report.state == FAILED:
                run.live.discard(spec.number)
                self._runner.stop(spec)
                # The reason comes first (pipelines/failures.py), and where it was raised after it.
                log.error("%s-%d has failed: %s", name, spec.number, (report.trace or "").strip().partition("\n")[0])
            if report.state != run.states.get(spec.number):
                self._say_task(run, spec, report.state, report.trace)

    def _note_offsets(self, spec: TaskSpec, report: TaskReport) -> None:
        if spec.kind != "source" or report.offsets is None:
            return
        with self.store.lock:
            known = dict(self.store.state.offsets.get(spec.connector, {}))
        for place, offset in report.offsets.items():
            if known.get(place) != offset:
                self.store.write(OFFSET, offset_key(spec.connector, json.loads(place)), dict(offset))

    # Saying so.

    def _state_of(self, name: str) -> str | None:
        with self.store.lock:
            status = self.store.state.connector_status.get(name)
        return status.state if status is not None and status.worker_id == self.worker_id else None

    def _say(self, name: str, state: str, trace: str | None = None) -> None:
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

    def _say_task(self, run: Run, spec: TaskSpec, state: str, trace: str | None = None) -> None:
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

    # Requests. They change what should be, and leave the rest to the thread.

    def put(self, name: str, settings: Mapping[str, str], target: str | None = None) -> None:
        if target is not None:
            self.store.write(CONFIG, TARGET + name, target_value(target))
        self.store.write(CONFIG, CONNECTOR + name, {"properties": dict(settings)})
        with self.store.lock:
            is_new = name not in self.store.state.connector_status
        if is_new:
            # Whoever asks for its status right away is told that there is one. If the thread was quicker than this, it
            # says so again in its next round.
            self._say(name, UNASSIGNED)

    def delete(self, name: str) -> None:
        self.store.write(CONFIG, CONNECTOR + name, None)
        self.store.write(CONFIG, TARGET + name, None)

    def set_target(self, name: str, target: str) -> None:
        with self.store.lock:
            known = self.store.state.target(name)
        if known != target:
            self.store.write(CONFIG, TARGET + name, target_value(target))

    def restart(self, name: str, *, tasks: bool, only_failed: bool) -> None:
        """Start the connector, and its tasks if they are meant too, again."""
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
                        self._restart(run, spec)
        self._wake.set()

    def restart_task(self, name: str, number: int) -> None:
        with self._work:
            run = self._runs.get(name)
            if run is not None:
                for spec in run.specs:
                    if spec.number == number:
                        self._restart(run, spec)
        self._wake.set()

    def _restart(self, run: Run, spec: TaskSpec) -> None:
        if spec.number in run.live:
            self._finish(run, spec)
        with self.store.lock:
            target = self.store.state.target(spec.connector)
        if target == STARTED:
            self._start(run, spec)

    def wait_until_stopped(self, name: str) -> bool:
        """Whether nothing of the connector runs; waits for what is about to end."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            with self._work:
                if name not in self._runs:
                    return True
            self._wake.set()
            time.sleep(0.05)
        return False

    def forget_place(self, name: str) -> None:
        """After somebody has changed offsets: the checkpoints of the connector do not count any more."""
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
