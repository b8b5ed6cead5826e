"""Fields that readers must not see: replaced on the server, before a message reaches a page, the API or a download.

    orders: value.card.number, value.email     a rule of the settings: topics (a * stands for anything), then paths
    *: headers.authorization

A path that begins with `**.` names a field at any depth. What is masked is shown as `••••`, whatever its type. Search
and filters work on the masked message, so that a filter cannot guess at a hidden value.

A value in which the path cannot be followed (a text, a number, hexadecimal) is hidden whole: the same bytes may hold
the field, shown in another format than the one that has fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from pessoa.base.json_value import JsonValue

HIDDEN = "••••"
ANYWHERE = "**"


class MaskRule(NamedTuple):
    topics: str
    # `value.card.number` is ("value", "card", "number").
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.topics}: {'.'.join(self.path)}"


class BadMask(ValueError):
    """A rule for masking is invalid; the sentence says what to write."""


def parse_masks(text: str) -> tuple[MaskRule, ...]:
    """Return the rules of a text, which has one on each line or semicolons between them. Raises `BadMask`."""
    rules = []
    for line in filter(None, (line.strip() for line in text.replace(";", "\n").splitlines())):
        topics, colon, paths = line.partition(":")
        if not colon or not topics.strip():
            raise BadMask(f"{line!r} is no rule for masking: write TOPICS: value.field, headers.name")
        for path in filter(None, (path.strip() for path in paths.split(","))):
            parts = tuple(path.split("."))
            if parts[0] not in ("key", "value", "headers", ANYWHERE) or "" in parts:
                raise BadMask(f"{path!r}: a path begins with key, value, headers or **, as in value.card.number")
            rules.append(MaskRule(topics.strip(), parts))
    return tuple(rules)


def paths_for(rules: Iterable[MaskRule], topic: str) -> tuple[tuple[str, ...], ...]:
    return tuple(rule.path for rule in rules if fnmatchcase(topic, rule.topics))


def masked(value: JsonValue, root: str, paths: Iterable[tuple[str, ...]]) -> JsonValue:
    """Return the value with the fields at these paths masked; `root` is key, value or headers."""
    try:
        for path in paths:
            if path[0] == ANYWHERE:
                value = _mask_anywhere(value, path[1:]) if isinstance(value, dict | list) else _mask(value, path[1:])
            elif path[0] == root:
                value = _mask(value, path[1:])
    except RecursionError:
        # A record is hostile: nested too deep to be looked through.
        return HIDDEN
    return value


def _mask(value: JsonValue, path: tuple[str, ...]) -> JsonValue:
    if isinstance(value, list) and path:
        return [_mask(item, path) for item in value]
    if isinstance(value, dict) and path:
        if path[0] == "*":
            return {name: _mask(item, path[1:]) for name, item in value.items()}
        return {**value, path[0]: _mask(value[path[0]], path[1:])} if path[0] in value else value
    return None if value is None else HIDDEN


def _mask_anywhere(value: JsonValue, path: tuple[str, ...]) -> JsonValue:
    if isinstance(value, dict) or not path:
        value = _mask(value, path)
    if isinstance(value, list):
        return [_mask_anywhere(item, path) for item in value]
    if isinstance(value, dict):
        return {name: _mask_anywhere(item, path) for name, item in value.items()}
    return value
