"""Settings of a subject, a context, or everything: configuration and mode.

A place is a subject's full name, a context (`:.ctx:`), or None for everything. What a place does not set is inherited
from the next wider one; `effective_config` in registering.py reads them, this file changes them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.compatibility.levels import Level, parse_level
from pessoa.schema_registry.contracts import check_rules
from pessoa.schema_registry.model import ConfigValue, Metadata, Mode, ModeValue, RuleSet
from pessoa.schema_registry.registering import effective_config
from pessoa.schema_registry.registry_records import ConfigKey, ModeKey, Record
from pessoa.schema_registry.state import State
from pessoa.serde.subjects import parse_subject
from pessoa.web.problems import HttpProblem

_POLICIES = ("STRICT", "LENIENT", "LOGICAL")


class ConfigRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What PUT /config takes and gives back: the level is called `compatibility` here.

    What is not there stays as it is; what is null is cleared.
    """

    compatibility: str | UnsetType | None = UNSET
    compatibilityGroup: str | UnsetType | None = UNSET  # noqa: N815 - the names in the JSON
    compatibilityPolicy: str | UnsetType | None = UNSET  # noqa: N815
    alias: str | UnsetType | None = UNSET
    aliasForDeks: bool | UnsetType | None = UNSET  # noqa: N815
    normalize: bool | UnsetType | None = UNSET
    validateFields: bool | UnsetType | None = UNSET  # noqa: N815
    validateNewSchemas: bool | UnsetType | None = UNSET  # noqa: N815
    validateRules: bool | UnsetType | None = UNSET  # noqa: N815
    defaultMetadata: Metadata | UnsetType | None = UNSET  # noqa: N815
    overrideMetadata: Metadata | UnsetType | None = UNSET  # noqa: N815
    defaultRuleSet: RuleSet | UnsetType | None = UNSET  # noqa: N815
    overrideRuleSet: RuleSet | UnsetType | None = UNSET  # noqa: N815


class ModeRequest(msgspec.Struct, frozen=True):
    """A mode of null clears it."""

    mode: str | UnsetType | None = UNSET


class Change(NamedTuple):
    records: tuple[Record, ...]
    # What to answer with.
    config: ConfigValue | None = None
    mode: str | None = None


def decide_set_config(state: State, place: str | None, request: ConfigRequest) -> Change:
    given = {
        name: getattr(request, name)
        for name in request.__struct_fields__
        if getattr(request, name) is not UNSET and name != "compatibility"
    }
    if isinstance(request.compatibility, str):
        level = parse_level(request.compatibility)
        if level is None:
            raise registry_problems.invalid_level(request.compatibility)
        given["compatibilityLevel"] = str(level)
    elif request.compatibility is None:
        given["compatibilityLevel"] = None
    policy = request.compatibilityPolicy
    if isinstance(policy, str):
        if policy.upper() not in _POLICIES:
            raise HttpProblem(422, f"'{policy}' is no compatibility policy: write one of {', '.join(_POLICIES)}", 42203)
        given["compatibilityPolicy"] = policy.upper()
    for name in ("defaultRuleSet", "overrideRuleSet"):
        check_rules(given.get(name))
    value = msgspec.structs.replace(state.configs.get(place, ConfigValue()), subject=place, **given)
    return Change((Record(ConfigKey(place), value),), config=value)


def decide_delete_config(state: State, place: str | None, default_level: Level) -> Change:
    old = state.configs.get(place)
    if old is None and place is not None:
        raise registry_problems.subject_not_found(place)
    shown = old or effective_config(state, None, default_level)
    return Change((Record(ConfigKey(place), None),) if old is not None else (), config=shown)


def find_config(state: State, place: str | None, default_level: Level, *, default_to_global: bool) -> ConfigValue:
    if place is None or default_to_global:
        return effective_config(state, place, default_level)
    config = state.configs.get(place)
    if config is None:
        raise registry_problems.no_subject_compatibility(place)
    return config


def decide_set_mode(state: State, place: str | None, request: ModeRequest, *, force: bool, mutable: bool) -> Change:
    if not mutable:
        raise registry_problems.not_permitted("mode.mutability is false: modes stay as they are")
    if request.mode is None:
        return Change((Record(ModeKey(place), None),))
    mode = request.mode.upper() if isinstance(request.mode, str) else ""
    if mode not in Mode.__members__:
        raise registry_problems.invalid_mode(request.mode or "")
    if mode == Mode.IMPORT and not force and state.mode_of(place) is not Mode.IMPORT:
        # Ids that are imported would collide with those given out here.
        for subject in state.subjects:
            if _is_inside(subject, place) and state.versions(subject):
                raise registry_problems.not_permitted(
                    "There are subjects here already, whose ids imported ones could collide with"
                )
    return Change((Record(ModeKey(place), ModeValue(place, mode)),), mode=mode)


def decide_delete_mode(state: State, place: str | None, *, recursive: bool, mutable: bool) -> Change:
    if not mutable:
        raise registry_problems.not_permitted("mode.mutability is false: modes stay as they are")
    old = state.modes.get(place)
    if old is None and place is not None and not recursive:
        raise registry_problems.subject_not_found(place)
    shown = old.mode if old is not None else None if place is not None else str(state.mode_of(place))
    deleted = [place] if old is not None else []
    if recursive:
        deleted += [each for each in state.modes if each is not None and each != place and _is_inside(each, place)]
    return Change(tuple(Record(ModeKey(each), None) for each in deleted), mode=shown)


def find_mode(state: State, place: str | None, *, default_to_global: bool) -> str:
    if place is None or default_to_global or place in state.modes or state.mode_of(None) is Mode.READONLY_OVERRIDE:
        return str(state.mode_of(place))
    raise registry_problems.no_subject_mode(place)


def _is_inside(subject: str, place: str | None) -> bool:
    if place is None or subject == place:
        return True
    wider = parse_subject(place)
    return not wider.name and parse_subject(subject).context == wider.context
