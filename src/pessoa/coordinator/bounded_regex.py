"""Regular expressions of subscriptions (KIP-848) and of lists of transactions (KIP-1152), in the syntax of RE2.

Kafka uses RE2/J, which is the same language. An expression is compiled while the whole broker waits, so its length and
what RE2 may make of it are bounded, and so is what takes RE2 long although it comes to little: names of topics are
ASCII and have 249 characters. Some hundred of them fit, and the worst takes some hundredths of a second.
"""

from __future__ import annotations

import re

from pessoa.base.linear_regex import InvalidRegex, linear_regex

_LONGEST = 8_192
_MEMORY_BYTES = 256 * 1024
# `\pL` and the like: hundreds of ranges each.
_MOST_CLASSES = 32
# Of all repetitions together: RE2 writes them out one behind the other before it checks its memory.
_MOST_REPEATED = 10_000
_REPETITION = re.compile(r"(?<!\\x)\{(?:[0-9]+,)?([0-9]{1,9}),?\}")


class Regex:
    """A compiled expression. Matches a name as a whole, not a part of it."""

    def __init__(self, text: str) -> None:
        """Compile `text`. Raises InvalidRegex."""
        if len(text) > _LONGEST:
            raise InvalidRegex(f"it has {len(text)} characters, and {_LONGEST} are the most")
        if text.lower().count("\\p") > _MOST_CLASSES:
            raise InvalidRegex(f"it has more than {_MOST_CLASSES} classes of Unicode")
        if sum(map(int, _REPETITION.findall(text))) > _MOST_REPEATED:
            raise InvalidRegex(f"it repeats more than {_MOST_REPEATED} times in all")
        self.text = text
        self._program = linear_regex(text, _MEMORY_BYTES)

    def __repr__(self) -> str:
        return f"<Regex {self.text!r}>"

    def matches(self, name: str) -> bool:
        return self._program.fullmatch(name) is not None
