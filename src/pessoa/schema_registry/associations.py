"""Associations: which subject holds the schemas of a resource, such as the values of a topic.

    resource      an id, a name in a namespace (for a topic: the id of its cluster), a type (`topic`)
    association   of a type (`key`, `value`) with one subject; one of each type per resource
    lifecycle     WEAK: any number of resources may share the subject; it outlives them
                  STRONG: the subject belongs to this resource alone, and goes with it if the deletion cascades
    frozen        a STRONG one whose schema was given with it and stays as it is

They stand in `_schemas` beside everything else (see private records in state.py), so every instance knows them.
Serialisers with the AssociatedNameStrategy ask for them by the topic's name.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import uuid4

import msgspec

from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.candidates import Request
from pessoa.schema_registry.compatibility.levels import Level
from pessoa.schema_registry.deleting import decide_delete_subject
from pessoa.schema_registry.registering import decide_register
from pessoa.schema_registry.registry_records import Record
from pessoa.schema_registry.state import ASSOCIATIONS, State, private_record

WEAK, STRONG = "WEAK", "STRONG"
DEFAULT_RESOURCE_TYPE, DEFAULT_TYPE = "topic", "value"
# In the place of a namespace: whichever.
ANY_NAMESPACE = "-"


class Association(msgspec.Struct, frozen=True, omit_defaults=True):
    """As it is stored and answered."""

    subject: str
    guid: str
    resourceName: str  # noqa: N815 - the names in the JSON
    resourceNamespace: str  # noqa: N815
    resourceId: str  # noqa: N815
    resourceType: str  # noqa: N815
    associationType: str  # noqa: N815
    lifecycle: str
    isFrozen: bool = msgspec.field(name="frozen", default=False)  # noqa: N815 - `frozen` is a word of msgspec's
    createTs: int = 0  # noqa: N815
    updateTs: int = 0  # noqa: N815

    @property
    def key(self) -> str:
        return msgspec.json.encode([self.resourceType, self.resourceId, self.associationType]).decode()


class Wanted(msgspec.Struct, frozen=True):
    """One association of a request; what is None is left as it is, or is the default."""

    subject: str | None = None
    associationType: str | None = None  # noqa: N815
    lifecycle: str | None = None
    is_frozen: bool | None = msgspec.field(name="frozen", default=None)
    schema: Request | None = None
    normalize: bool | None = None


class AssociationRequest(msgspec.Struct, frozen=True):
    resourceName: str | None = None  # noqa: N815
    resourceNamespace: str | None = None  # noqa: N815
    resourceId: str | None = None  # noqa: N815
    resourceType: str | None = None  # noqa: N815
    associations: list[Wanted] | None = None


class Associated(NamedTuple):
    records: tuple[Record, ...]
    associations: tuple[Association, ...]


def all_associations(state: State) -> list[Association]:
    """Return all associations, ordered by resource and type."""
    stored = state.private.get(ASSOCIATIONS, {})
    return sorted(
        (msgspec.json.decode(text, type=Association) for text in stored.values()),
        key=lambda each: (each.resourceId, each.associationType),
    )


def decide_associate(
    state: State, request: AssociationRequest, *, may_update: bool, is_dry_run: bool, now_ms: int, default_level: Level
) -> Associated:
    """Return the records that create the associations of a resource, all or none. With `may_update` existing ones
    may be changed."""
    if not request.resourceName or not request.resourceNamespace:
        raise registry_problems.invalid_association("resourceName and resourceNamespace", "are needed")
    if not request.resourceId and not is_dry_run:
        raise registry_problems.invalid_association("resourceId", "is needed")
    if not request.associations:
        raise registry_problems.invalid_association("associations", "are needed")
    types = [each.associationType or DEFAULT_TYPE for each in request.associations]
    if len(set(types)) < len(types):
        raise registry_problems.invalid_association("associationType", "stands twice")
    ahead = state.copy()
    records: list[Record] = []
    made = []
    for wanted in request.associations:
        association, written = _decide_one(ahead, request, wanted, may_update, now_ms, default_level)
        for record in written:
            ahead.replay(record)
        records += written
        made.append(association)
    return Associated((), ()) if is_dry_run else Associated(tuple(records), tuple(made))


def _decide_one(
    state: State, request: AssociationRequest, wanted: Wanted, may_update: bool, now_ms: int, default_level: Level
) -> tuple[Association, list[Record]]:
    if not wanted.subject:
        raise registry_problems.invalid_association("subject", "is needed")
    fresh = Association(
        wanted.subject, str(uuid4()), request.resourceName or "", request.resourceNamespace or "",
        request.resourceId or "", request.resourceType or DEFAULT_RESOURCE_TYPE, wanted.associationType or DEFAULT_TYPE,
        (wanted.lifecycle or WEAK).upper(), bool(wanted.is_frozen), now_ms, now_ms,
    )  # fmt: skip
    if fresh.lifecycle not in (WEAK, STRONG):
        raise registry_problems.invalid_association("lifecycle", f"is {WEAK} or {STRONG}")
    known = next((each for each in all_associations(state) if each.key == fresh.key), None)
    if known is not None:
        return _decide_update(state, known, fresh, wanted, may_update)
    if fresh.lifecycle == WEAK and fresh.isFrozen:
        raise registry_problems.invalid_association("frozen", f"is for {STRONG} associations")
    _check_sharing(state, fresh)
    records: list[Record] = []
    if wanted.schema is not None:
        if not fresh.isFrozen:
            raise registry_problems.invalid_association(
                "schema", "is for frozen associations: register it under the subject"
            )
        if state.versions(fresh.subject):
            raise registry_problems.invalid_association("frozen", "is for subjects that have no versions yet")
        normalize = bool(wanted.normalize)
        records += decide_register(
            state, fresh.subject, wanted.schema, default_level=default_level, normalize=normalize, force=False
        ).records
    elif fresh.isFrozen:
        raise registry_problems.invalid_association("schema", "is needed with frozen")
    elif not state.versions(fresh.subject):
        raise registry_problems.no_active_version(fresh.subject)
    return fresh, [*records, _record(fresh)]


def _decide_update(
    state: State, known: Association, fresh: Association, wanted: Wanted, may_update: bool
) -> tuple[Association, list[Record]]:
    lifecycle = fresh.lifecycle if wanted.lifecycle else known.lifecycle
    is_frozen = known.isFrozen if wanted.is_frozen is None else fresh.isFrozen
    changed = msgspec.structs.replace(known, lifecycle=lifecycle, isFrozen=is_frozen, updateTs=fresh.updateTs)
    if known.subject == fresh.subject and (lifecycle, is_frozen) == (known.lifecycle, known.isFrozen):
        return known, []
    if not may_update:
        raise registry_problems.association_exists(known.associationType, known.resourceName)
    if known.subject != fresh.subject:
        raise registry_problems.invalid_association("subject", f"is '{known.subject}' and cannot be changed")
    if known.isFrozen or is_frozen:
        raise registry_problems.association_frozen(known.associationType, known.subject)
    _check_sharing(state, changed)
    return changed, [_record(changed)]


def _check_sharing(state: State, wanted: Association) -> None:
    others = [each for each in all_associations(state) if each.subject == wanted.subject and each.key != wanted.key]
    if any(each.lifecycle == STRONG for each in others):
        raise registry_problems.strong_association_exists(wanted.subject)
    if others and wanted.lifecycle == STRONG:
        raise registry_problems.subject_associated(wanted.subject)


def decide_dissociate(state: State, associations: list[Association], *, cascade: bool, is_dry_run: bool) -> Associated:
    """Return the records that delete associations; with `cascade` the subjects of STRONG ones are softly deleted."""
    records: list[Record] = []
    for each in associations:
        if each.isFrozen and not cascade:
            raise registry_problems.association_frozen(each.associationType, each.subject)
        records.append(private_record(ASSOCIATIONS, each.key, None))
        if cascade and each.lifecycle == STRONG and state.versions(each.subject):
            records += decide_delete_subject(state, each.subject, permanent=False).records
    return Associated(() if is_dry_run else tuple(records), tuple(associations))


def _record(association: Association) -> Record:
    return private_record(ASSOCIATIONS, association.key, msgspec.json.encode(association).decode())
