"""Which names a topic may have.

A topic's partitions are directories, and its name is a part of metric names, where "." and "_" are the same character.
Hence the letters that are allowed, and hence two topics may not differ in those two characters alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A directory name has 255 bytes, and "-<partition>" and "-delete" take some of them.
MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_illegal(name: str) -> str | None:
    """Return what is wrong with a topic name, as a sentence; None if it is valid."""
    if not name:
        return "The topic name is empty."
    if name in (".", ".."):
        return f"The topic name cannot be {name!r}, which means a directory."
    if len(name) > MAX_LENGTH:
        return f"The topic name has {len(name)} characters; {MAX_LENGTH} are allowed."
    if not _LEGAL.fullmatch(name):
        return f"The topic name {name!r} has a character other than ASCII letters, digits, '.', '_' and '-'."
    return None


def can_collide(name: str) -> bool:
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Return the name with "_" for ".": names that collide give the same text."""
    return name.replace(".", "_")


def colliding(name: str, others: Iterable[str]) -> str | None:
    """Return one of the other names that this name collides with; None if there is none."""
    if not can_collide(name):
        return None
    wanted, length = collision_key(name), len(name)
    return next((one for one in others if len(one) == length and one != name and collision_key(one) == wanted), None)
