"""Settings of a subject, a context, or everything: configuration and mode.

A place is a subject's full name, a context (`:.ctx:`), or None for everything. What a place does not set is inherited
from the next wider one; `effective_config` in registering.py reads them, this file changes them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pessoa.schema_registry import problems
from pessoa.schema_registry.compatibility.levels import Level, parse_level
from pessoa.schema_registry.model import ConfigValue, Metadata, Mode, ModeValue, RuleSet
from pessoa.schema_registry.records import ConfigKey, ModeKey, Record
from pessoa.schema_registry.registering import effective_config
from pessoa.schema_registry.state import State
from pessoa.serde.subjects import parse_subject
from pessoa.web.problems import HttpProblem

_POLICIES = ("STRICT", "LENIENT", "LOGICAL")


class ConfigRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What PUT /config takes and gives back: the level is called `compatibility` here."""

    compatibility: str | None = None
    compatibilityGroup: str | None = None  # noqa: N815 - the names in the JSON
    compatibilityPolicy: str | None = None  # noqa: N815
    alias: str | None = None
    aliasForDeks: bool | None = None  # noqa: N815
    normalize: bool | None = None
    validateFields: bool | None = None  # noqa: N815
    validateNewSchemas: bool | None = None  # noqa: N815
    validateRules: bool | None = None  # noqa: N815
    defaultMetadata: Metadata | None = None  # noqa: N815
    overrideMetadata: Metadata | None = None  # noqa: N815
    defaultRuleSet: RuleSet | None = None  # noqa: N815
    overrideRuleSet: RuleSet | None = None  # noqa: N815


class ModeRequest(msgspec.Struct, frozen=True):
    mode: str | None = None


class Change(NamedTuple):
    records: tuple[Record, ...]
    # What to answer with.
    config: ConfigValue | None = None
    mode: str | None = None


def decide_set_config(state: State, place: str | None, request: ConfigRequest) -> Change:
    level = None
    if request.compatibility is not None:
        level = parse_level(request.compatibility)
        if level is None:
            raise problems.invalid_level(request.compatibility)
    policy = request.compatibilityPolicy
    if policy is not None and policy.upper() not in _POLICIES:
        raise HttpProblem(422, f"'{policy}' is no compatibility policy: write one of {', '.join(_POLICIES)}", 42203)
    given = {
        name: getattr(request, name)
        for name in request.__struct_fields__
        if name not in ("compatibility", "compatibilityPolicy") and getattr(request, name) is not None
    }
    if level is not None:
        given["compatibilityLevel"] = str(level)
    if policy is not None:
        given["compatibilityPolicy"] = policy.upper()
    value = msgspec.structs.replace(state.configs.get(place, ConfigValue()), subject=place, **given)
    return Change((Record(ConfigKey(place), value),), config=value)


def decide_delete_config(state: State, place: str | None, default_level: Level) -> Change:
    old = state.configs.get(place)
    if old is None and place is not None:
        raise problems.subject_not_found(place)
    shown = old or effective_config(state, None, default_level)
    return Change((Record(ConfigKey(place), None),) if old is not None else (), config=shown)


def find_config(state: State, place: str | None, default_level: Level, *, default_to_global: bool) -> ConfigValue:
    if place is None or default_to_global:
        return effective_config(state, place, default_level)
    config = state.configs.get(place)
    if config is None:
        raise problems.no_subject_compatibility(place)
    return config


def decide_set_mode(state: State, place: str | None, text: str | None, *, force: bool, mutable: bool) -> Change:
    if not mutable:
        raise problems.not_permitted("mode.mutability is false: modes stay as they are")
    mode = (text or "").upper()
    if mode not in Mode.__members__:
        raise problems.invalid_mode(text)
    if mode == Mode.IMPORT and not force and state.mode_of(place) is not Mode.IMPORT:
        # Ids that are imported would collide with those given out here.
        for subject in state.subjects:
            if _is_inside(subject, place) and state.versions(subject):
                raise problems.not_permitted(
                    "There are subjects here already, whose ids imported ones could collide with"
                )
    return Change((Record(ModeKey(place), ModeValue(place, mode)),), mode=mode)


def decide_delete_mode(state: State, place: str | None, *, recursive: bool, mutable: bool) -> Change:
    if not mutable:
        raise problems.not_permitted("mode.mutability is false: modes stay as they are")
    old = state.modes.get(place)
    if old is None and place is not None and not recursive:
        raise problems.subject_not_found(place)
    shown = old.mode if old is not None else str(state.mode_of(place))
    gone = [place] if old is not None else []
    if recursive:
        gone += [each for each in state.modes if each is not None and each != place and _is_inside(each, place)]
    return Change(tuple(Record(ModeKey(each), None) for each in gone), mode=shown)


def find_mode(state: State, place: str | None, *, default_to_global: bool) -> str:
    if place is None or default_to_global or place in state.modes:
        return str(state.mode_of(place))
    raise problems.no_subject_mode(place)


def _is_inside(subject: str, place: str | None) -> bool:
    if place is None or subject == place:
        return True
    wider = parse_subject(place)
    return not wider.name and parse_subject(subject).context == wider.context
