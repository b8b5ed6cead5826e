"""Exporters: what copies schemas to another registry, and where it has got.

    STARTING ──▶ RUNNING ◀──resume── PAUSED          reset, update and delete are for exporters that are paused
                    └────────pause──────▲

An exporter takes subjects by name or by prefix (`orders-*`; `*` is all of the default context, `:*:` of every context),
and names them in the destination:

    NONE      as they are called here
    CUSTOM    in a context of that name
    AUTO      in a context that is named after this cluster

`subjectRenameFormat` may put something around the name: `dc1_${subject}`. Two private records of `_schemas` keep one
exporter (see state.py): what it is to do, and its status. exporting.py does the work.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pessoa.client.registry_client import URL
from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.registry_records import Record
from pessoa.schema_registry.state import EXPORTERS, State, private_record
from pessoa.serde.subjects import DEFAULT_CONTEXT, WILDCARD, Subject, parse_subject

AUTO, CUSTOM, NONE = "AUTO", "CUSTOM", "NONE"
STARTING, RUNNING, PAUSED = "STARTING", "RUNNING", "PAUSED"
_SUBJECT = "${subject}"
_SECRETS = ("basic.auth.user.info", "bearer.auth.token")
_HIDDEN = "[hidden]"
_TASK, _STATUS = "task", "status"


class ExporterRequest(msgspec.Struct, frozen=True):
    """A new exporter, or what is to change about one."""

    name: str | None = None
    contextType: str | None = None  # noqa: N815 - the names in the JSON
    context: str | None = None
    subjects: list[str] | None = None
    subjectRenameFormat: str | None = None  # noqa: N815
    config: dict[str, str] | None = None


class Exporter(msgspec.Struct, frozen=True):
    name: str
    contextType: str = AUTO  # noqa: N815
    context: str = DEFAULT_CONTEXT
    subjects: list[str] = msgspec.field(default_factory=lambda: ["*"])
    subjectRenameFormat: str = _SUBJECT  # noqa: N815
    config: dict[str, str] = {}

    def takes(self, subject: str) -> bool:
        return any(_matches_pattern(subject, pattern) for pattern in self.subjects)

    def destination_of(self, subject: str, cluster_id: str) -> str:
        """Return the name that a subject gets in the destination registry."""
        source = parse_subject(subject)
        name = self.subjectRenameFormat.replace(_SUBJECT, source.name)
        context = source.context
        if self.contextType != NONE:
            around = self.context if self.contextType == CUSTOM else cluster_id
            own = "" if source.context == DEFAULT_CONTEXT else source.context
            context = f".{around.strip(':').lstrip('.')}{own}"
        return str(Subject(context, name))

    def shown_config(self) -> dict[str, str]:
        return {key: _HIDDEN if key in _SECRETS else value for key, value in self.config.items()}


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    state: str
    # How far our topic was when everything had been exported.
    offset: int = msgspec.field(default=-1)
    ts: int = 0
    # What went wrong last.
    trace: str = ""


class Change(NamedTuple):
    records: tuple[Record, ...]
    name: str


def _matches_pattern(subject: str, pattern: str) -> bool:
    wanted, found = parse_subject(pattern), parse_subject(subject)
    if wanted.context not in (WILDCARD, found.context):
        return False
    if wanted.name.endswith("*") or (wanted.context == WILDCARD and not wanted.name):
        return found.name.startswith(wanted.name.removesuffix("*"))
    return found.name == wanted.name


# Questions.


def all_exporters(state: State) -> list[Exporter]:
    texts = state.private.get(EXPORTERS, {})
    return [
        msgspec.json.decode(texts[key], type=Exporter) for key in sorted(texts) if key.partition(":")[0] == _TASK
    ]  # fmt: skip


def find_exporter(state: State, name: str) -> Exporter:
    text = state.private.get(EXPORTERS, {}).get(f"{_TASK}:{name}")
    if text is None:
        raise registry_problems.exporter_not_found(name)
    return msgspec.json.decode(text, type=Exporter)


def status_of(state: State, name: str) -> Status:
    text = state.private.get(EXPORTERS, {}).get(f"{_STATUS}:{name}")
    return Status(name, STARTING) if text is None else msgspec.json.decode(text, type=Status)


# Decisions.


def decide_create(state: State, request: ExporterRequest) -> Change:
    name = request.name or ""
    if not name or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise registry_problems.invalid_exporter(
            40950, f"'{name}' is no name of an exporter: letters, digits, - _ and ."
        )
    if f"{_TASK}:{name}" in state.private.get(EXPORTERS, {}):
        raise registry_problems.invalid_exporter(40960, f"There is an exporter '{name}' already")
    exporter = _apply_request(Exporter(name), request)
    return Change((_task(exporter), status_record(Status(name, STARTING))), name)


def decide_update(state: State, name: str, request: ExporterRequest) -> Change:
    exporter = find_exporter(state, name)
    _check_paused(state, name)
    # Another destination has nothing of what the one before has.
    status = Status(name, PAUSED)
    return Change((_task(_apply_request(exporter, request)), status_record(status)), name)


def decide_delete(state: State, name: str) -> Change:
    find_exporter(state, name)
    _check_paused(state, name)
    return Change(tuple(private_record(EXPORTERS, f"{kind}:{name}", None) for kind in (_TASK, _STATUS)), name)


def decide_pause(state: State, name: str) -> Change:
    find_exporter(state, name)
    status = msgspec.structs.replace(status_of(state, name), state=PAUSED)
    return Change((status_record(status),), name)


def decide_resume(state: State, name: str) -> Change:
    find_exporter(state, name)
    status = status_of(state, name)
    if status.state != PAUSED:
        raise registry_problems.invalid_exporter(40961, f"The exporter '{name}' is running already")
    return Change((status_record(msgspec.structs.replace(status, state=RUNNING, trace="")),), name)


def decide_reset(state: State, name: str) -> Change:
    """Return the change that makes a paused exporter start from the beginning when it is resumed."""
    find_exporter(state, name)
    _check_paused(state, name)
    return Change((status_record(Status(name, PAUSED)),), name)


def decide_status(state: State, status: Status) -> Change:
    """Return the change that stores the status which the leader reached while exporting. An exporter that was paused
    or deleted in the meantime keeps its state."""
    is_there = f"{_TASK}:{status.name}" in state.private.get(EXPORTERS, {})
    if not is_there or status_of(state, status.name).state == PAUSED:
        return Change((), status.name)
    return Change((status_record(status),), status.name)


def _apply_request(exporter: Exporter, request: ExporterRequest) -> Exporter:
    given = {
        name: getattr(request, name)
        for name in ("contextType", "context", "subjects", "subjectRenameFormat", "config")
        if getattr(request, name) is not None
    }
    if "contextType" in given:
        given["contextType"] = given["contextType"].upper()
    changed = msgspec.structs.replace(exporter, **given)
    if changed.contextType not in (AUTO, CUSTOM, NONE):
        raise registry_problems.invalid_exporter(40951, f"contextType is {AUTO}, {CUSTOM} or {NONE}")
    if changed.contextType == CUSTOM and not changed.context.strip(":."):
        raise registry_problems.invalid_exporter(40951, f"context is needed where contextType is {CUSTOM}")
    if not changed.config.get(URL, "").startswith(("http://", "https://")):
        raise registry_problems.invalid_exporter(
            40951, f"config needs {URL}, an address that begins with http:// or https://"
        )
    if not changed.subjects or not all(changed.subjects):
        raise registry_problems.invalid_exporter(40952, "subjects are names, or prefixes that end with *")
    if _SUBJECT not in changed.subjectRenameFormat:
        raise registry_problems.invalid_exporter(40952, f"subjectRenameFormat must contain {_SUBJECT}")
    return changed


def _check_paused(state: State, name: str) -> None:
    if status_of(state, name).state != PAUSED:
        raise registry_problems.invalid_exporter(40963, f"The exporter '{name}' is not paused: pause it first")


def _task(exporter: Exporter) -> Record:
    return private_record(EXPORTERS, f"{_TASK}:{exporter.name}", msgspec.json.encode(exporter).decode())


def status_record(status: Status) -> Record:
    return private_record(EXPORTERS, f"{_STATUS}:{status.name}", msgspec.json.encode(status).decode())
