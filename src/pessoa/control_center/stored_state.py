"""What people set here and want to find again: favourites, saved filters, alert rules, masking. One JSON file.

The file is written whole beside itself and renamed, so a crash leaves the old one or the new one. Without a directory
(`pessoa.control.center.data.dir`) it lives in memory. Sizes are bounded: a user cannot fill the disk with it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pessoa.web.problems import HttpProblem

MAX_ITEMS = 1000
MAX_TEXT = 4000
# Kafka's bound for the name of a topic.
MAX_NAME = 249


class SavedFilter(msgspec.Struct, frozen=True):
    name: str
    expression: str
    # Empty: for every topic.
    topic: str = ""
    owner: str = ""


class AlertRule(msgspec.Struct, frozen=True):
    """`kind` is lag, under-replicated, offline or disk; `target` the group of a lag rule (* for any)."""

    name: str
    kind: str
    threshold: float = 0
    target: str = "*"
    webhook: str = ""
    is_on: bool = True


DEFAULT_RULES = (
    AlertRule("Partitions without a leader", "offline"),
    AlertRule("Partitions that lost a replica", "under-replicated"),
    AlertRule("Disk nearly full", "disk", 90),
)


class Stored(msgspec.Struct, frozen=True):
    favourites: dict[str, list[str]] = {}
    filters: list[SavedFilter] = []
    rules: tuple[AlertRule, ...] = DEFAULT_RULES
    masks: str = ""


class StateFile:
    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / "control-center.json"
        self.stored = Stored()
        if self._path is not None and self._path.exists():
            self.stored = msgspec.json.decode(self._path.read_bytes(), type=Stored)

    def __repr__(self) -> str:
        return f"<StateFile {self._path}>"

    def change(self, **changed: object) -> None:
        """Replace these members and write the file. Raises the problem 507 if a list has become too long."""
        new = msgspec.structs.replace(self.stored, **changed)
        if len(new.filters) > MAX_ITEMS or len(new.rules) > MAX_ITEMS or len(new.masks) > MAX_TEXT * 4:
            raise HttpProblem(507, f"More than {MAX_ITEMS} of these are not kept; delete some first.")
        self.stored = new
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new_path = self._path.with_suffix(".new")
            with os.fdopen(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(new), indent=1))
            new_path.replace(self._path)

    def favourites_of(self, user: str) -> frozenset[str]:
        return frozenset(self.stored.favourites.get(user, ()))

    def set_favourite(self, user: str, topic: str, is_one: bool) -> None:
        if is_one and len(topic) > MAX_NAME:
            raise HttpProblem(400, f"The name of a topic has {MAX_NAME} characters at most.")
        favourites = set(self.favourites_of(user)) - {topic} | ({topic} if is_one else set())
        if len(favourites) > MAX_ITEMS:
            raise HttpProblem(507, f"At most {MAX_ITEMS} favourites are kept.")
        self.change(favourites={**self.stored.favourites, user: sorted(favourites)})
