"""Which topics, groups, connectors and subjects a user may touch: roles say what, limits say where.

    edu: topic orders*, topic pay-*, group billing; *: topic public-*

A user who is named may read messages of, and change, only what a pattern names; `*` stands for users who are not named
(admins excepted). A kind of resource that a user's limits do not mention is not limited. Names stay visible. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from pessoa.control_center.accounts import Person
from pessoa.web.problems import HttpProblem

KINDS = ("topic", "group", "connector", "subject")


class BadLimit(ValueError):
    """The text of the limits cannot be read; the sentence says where."""


class Limits:
    def __init__(self, patterns: Mapping[str, Mapping[str, tuple[str, ...]]]) -> None:
        """`patterns` has the patterns of allowed names by user, then by kind of resource."""
        self._patterns = patterns

    def __repr__(self) -> str:
        return f"<Limits of {', '.join(self._patterns) or 'no user'}>"

    def allow(self, person: Person, kind: str, name: str) -> bool:
        found = self._patterns.get(person.name)
        if found is None:
            found = {} if person.role == "admin" else self._patterns.get("*", {})
        patterns = found.get(kind)
        return patterns is None or any(fnmatchcase(name, one) for one in patterns)

    def allow_all(self, person: Person, kind: str) -> bool:
        """Whether the user may use all resources of this kind."""
        # No name has this character, and the pattern * takes it.
        return self.allow(person, kind, "\x00")

    def demand(self, person: Person, kind: str, name: str) -> None:
        """Raise the problem 403 if the user may not use the resource."""
        if not self.allow(person, kind, name):
            raise HttpProblem(403, f"{person.name} may not use the {kind} {name}: pessoa.control.center.limits.", 40303)


def parse_limits(text: str) -> Limits:
    """Return the limits that the text describes. Raises `BadLimit`."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for rule in filter(None, (one.strip() for one in text.replace("\n", ";").split(";"))):
        user, colon, items = rule.partition(":")
        if not colon or not user.strip():
            raise BadLimit(f"{rule!r} is no limit: write user: topic pattern, group pattern")
        kinds = found.setdefault(user.strip(), {})
        for item in filter(None, (one.strip() for one in items.split(","))):
            kind, _, pattern = item.partition(" ")
            if kind not in KINDS or not pattern.strip():
                raise BadLimit(f"{item!r} is no limit: write one of {', '.join(KINDS)} and a pattern")
            kinds[kind] = (*kinds.get(kind, ()), pattern.strip())
    return Limits(found)
