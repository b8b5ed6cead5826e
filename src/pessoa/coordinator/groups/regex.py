"""Regular expressions of subscriptions (KIP-848) and of lists of transactions (KIP-1152), in the syntax of RE2.

Kafka uses RE2/J, which is the same language. An expression is compiled while the whole broker waits, so its length and
what RE2 may make of it are bounded: some hundred names of topics fit, and the worst takes a third of a second.
"""

from __future__ import annotations

from pessoa.base.linear_regex import InvalidRegex, linear_regex

_LONGEST = 8_192
_MEMORY_BYTES = 256 * 1024


class Regex:
    """A compiled expression. Matches a name as a whole, not a part of it."""

    def __init__(self, text: str) -> None:
        """Raises InvalidRegex."""
        if len(text) > _LONGEST:
            raise InvalidRegex(f"it has {len(text)} characters, and {_LONGEST} are the most")
        self.text = text
        self._program = linear_regex(text, _MEMORY_BYTES)

    def __repr__(self) -> str:
        return f"<Regex {self.text!r}>"

    def matches(self, name: str) -> bool:
        return self._program.fullmatch(name) is not None
