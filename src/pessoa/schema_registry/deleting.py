"""Deleting, in two steps: softly, which hides a version and keeps it readable by id, and then for good.

A version that another schema refers to stays. When the last version with the highest id of a context goes, the id is
marked, so that it is never given out again (see state.py).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.model import DeleteSubjectValue
from pessoa.schema_registry.registering import check_writable
from pessoa.schema_registry.registry_records import (
    ConfigKey,
    DeleteSubjectKey,
    ModeKey,
    Record,
    SchemaKey,
)
from pessoa.schema_registry.schemas import LATEST
from pessoa.schema_registry.state import Entry, State, id_mark
from pessoa.serde.subjects import parse_subject


class Deletion(NamedTuple):
    records: tuple[Record, ...]
    versions: tuple[int, ...]


def decide_delete_version(state: State, subject: str, version: int, *, permanent: bool) -> Deletion:
    check_writable(state.mode_of(subject), subject)
    if not state.versions(subject, deleted=True) or (version == LATEST and not permanent and not state.latest(subject)):
        raise registry_problems.subject_not_found(subject)
    entry = state.latest(subject) if version == LATEST else state.entry(subject, version)
    if entry is None:
        raise registry_problems.version_not_found(version if version != LATEST else "latest")
    number = entry.value.version
    key = SchemaKey(subject, number)
    if not permanent and entry.value.deleted:
        raise registry_problems.version_soft_deleted(subject, number)
    if permanent and not entry.value.deleted:
        raise registry_problems.version_not_soft_deleted(subject, number)
    # A softly deleted referrer can be read by its id and restored, so what it refers to must not go for good.
    if state.is_referenced(key, deleted=permanent):
        raise registry_problems.reference_exists(subject, number)
    if permanent:
        return Deletion(_permanent_deletions(state, subject, [entry]), (number,))
    return Deletion((Record(key, msgspec.structs.replace(entry.value, deleted=True)),), (number,))


def decide_delete_subject(state: State, subject: str, *, permanent: bool) -> Deletion:
    check_writable(state.mode_of(subject), subject)
    everything = state.versions(subject, deleted=True)
    if not everything:
        raise registry_problems.subject_not_found(subject)
    alive = [entry for entry in everything if not entry.value.deleted]
    if permanent and alive:
        raise registry_problems.subject_not_soft_deleted(subject)
    if not permanent and not alive:
        raise registry_problems.subject_soft_deleted(subject)
    for entry in everything if permanent else alive:
        if state.is_referenced(SchemaKey(subject, entry.value.version), deleted=permanent):
            raise registry_problems.reference_exists(subject, entry.value.version)
    numbers = tuple(entry.value.version for entry in (everything if permanent else alive))
    if permanent:
        return Deletion(_permanent_deletions(state, subject, everything), numbers)
    return Deletion((Record(DeleteSubjectKey(subject), DeleteSubjectValue(subject, numbers[-1])),), numbers)


def _permanent_deletions(state: State, subject: str, entries: list[Entry]) -> tuple[Record, ...]:
    context_name = parse_subject(subject).context
    context = state.context_of(subject)
    records = []
    if any(entry.value.id == context.highest_id for entry in entries):
        # First, so that no moment exists in the log at which the id is forgotten.
        records.append(id_mark(context_name, context.highest_id))
    records += [Record(SchemaKey(subject, entry.value.version), None) for entry in entries]
    if len(entries) == len(state.versions(subject, deleted=True)):
        records.append(Record(DeleteSubjectKey(subject), None))
        records += _setting_deletions(state, subject)
    return tuple(records)


def _setting_deletions(state: State, subject: str) -> list[Record]:
    """Return the records that delete the config and mode of a deleted subject, so that a new one of its name does
    not inherit them."""
    records = []
    if subject in state.configs:
        records.append(Record(ConfigKey(subject), None))
    if subject in state.modes:
        records.append(Record(ModeKey(subject), None))
    return records
