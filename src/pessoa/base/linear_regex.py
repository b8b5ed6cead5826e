"""Regular expressions from untrusted clients, matched by RE2: in time that grows with the text, and in bounded memory.

Python's `re` tries every way there is, and `(a+)+$` keeps it busy for ever. RE2 follows all ways at once. What it gives
up for that, looking ahead or behind and references back to groups, is an error.
"""

from __future__ import annotations

from typing import Protocol


class InvalidRegex(Exception):
    """The regular expression is not one of RE2; the message says why."""


class LinearRegex(Protocol):
    """A compiled regular expression of RE2; `programsize` is the number of its instructions."""

    programsize: int

    def search(self, text: str, /) -> object | None: ...

    def fullmatch(self, text: str, /) -> object | None: ...


def linear_regex(text: str, memory_bytes: int) -> LinearRegex:
    """Compile a regular expression with RE2. Raises `InvalidRegex`, and UnicodeEncodeError for a lone surrogate.

    `memory_bytes` limits the memory of RE2's program and of the automaton that it builds while it matches. It bounds
    the time that compiling takes as well.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory_bytes
    try:
        # Not re2.compile, which has a cache of its own.
        compiled: LinearRegex = re2._Regexp(text, options)
    except re2.error as wrong:
        raise InvalidRegex(wrong.args[0].decode(errors="replace") if wrong.args else "unknown") from None
    return compiled
