"""Ranges of versions, in the notation of Kafka's own schemas: `3`, `0-4`, `12+`, `none`."""

from __future__ import annotations

from typing import NamedTuple

# Versions travel as int16.
HIGHEST = 0x7FFF


class Versions(NamedTuple):
    """A range of API versions. Both ends are inclusive; an empty range has `last < first`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        # Declarations repeat the same few ranges thousands of times, and a codec looks up the range of every field.
        known = _parsed.get(text)
        if known is None:
            first, _, last = text.removesuffix("+").partition("-")
            known = _parsed[text] = cls(int(first), HIGHEST if text.endswith("+") else int(last or first))
        return known

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.last < self.first:
            return "none"
        if self.last == HIGHEST:
            return f"{self.first}+"
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"

    def each(self) -> range:
        """Every version, lowest first. Only for a range with an end."""
        assert self.last < HIGHEST, f"{self} has no end"
        return range(self.first, self.last + 1)


NO_VERSIONS = Versions(0, -1)
_parsed = {"none": NO_VERSIONS}
