"""Regular expressions of untrusted users: any of them is matched with any text in bounded time and memory.

Expressions are matched by RE2 (base/linear_regex.py), in time that grows with the length of the text times the size of
the expression; `work` says how much that is. RE2 knows nothing of looking ahead or behind and of references back to
groups, which JSON Schema's dialect and Java's have. Such an expression goes to `re` after all, if it has so few choices
that trying them all soon ends:

    n characters, k repetitions, a alternatives     at most 2^a · n^(k+1) / (k+1)! steps, if no group is repeated

Others are refused with a sentence. `\\uXXXX`, JSON Schema's spelling of a character, is RE2's `\\x{XXXX}`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import factorial

from pessoa.base.linear_regex import InvalidRegex, LinearRegex, linear_regex

# The most characters of an expression.
MAX_PATTERN = 4096
# Characters times instructions of RE2: a second at the very worst.
MAX_WORK = 100_000_000
# For Python's matcher, whose steps take longer: a tenth of a second.
_MAX_STEPS = 5_000_000
_MEMORY_BYTES = 2 * 1024 * 1024
_REMEMBERED = 64

_ESCAPED_CHARACTER = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9a-fA-F]{4})")
_GROUP_SIGNS = re.compile(r"\(\?(?:<?[=!]|:|P?<\w+>)")
_REPETITION = re.compile(r"[*+{]")
_ALTERNATIVE = re.compile(r"[?|]")
_REPEATED_GROUP = re.compile(r"\)[*+?{]")


class BadPattern(Exception):
    """An expression that is invalid, or cannot be matched in bounded time; the message says why."""


class Pattern:
    """A compiled expression; see `compile_pattern`."""

    def __init__(self, text: str) -> None:
        """Compile the expression. Raises BadPattern."""
        if len(text) > MAX_PATTERN:
            raise BadPattern(f"the expression has {len(text)} characters, of which {MAX_PATTERN} are possible")
        self.text = text
        self._re2_program, trouble = _compile_by_re2(text)
        self._size: int = 1 if self._re2_program is None else self._re2_program.programsize
        self._python_program = None if self._re2_program is not None else _compile_by_re(text, trouble)

    def __repr__(self) -> str:
        return f"<Pattern {self.text!r} by {'RE2' if self._re2_program is not None else 'trying'}>"

    def work(self, text: str) -> int:
        """Return the most that matching this text can cost, in steps of some nanoseconds."""
        return len(text) * self._size

    def is_found_in(self, text: str) -> bool:
        """Whether some part of the text matches; BadPattern if matching could take too long."""
        return self._matcher(text).search(text) is not None

    def matches_whole(self, text: str) -> bool:
        """Whether the text as a whole matches."""
        return self._matcher(text).fullmatch(text) is not None

    def _matcher(self, text: str) -> LinearRegex | re.Pattern[str]:
        if self._re2_program is not None:
            if self.work(text) > MAX_WORK:
                raise BadPattern(f"a text of {len(text)} characters is too long for the expression {self.text!r}")
            return self._re2_program
        assert self._python_program is not None
        matcher, repetition_count, alternative_count = self._python_program
        power = repetition_count + 1
        if len(text) ** power / factorial(power) * 2**alternative_count > _MAX_STEPS:
            raise BadPattern(f"to match {len(text)} characters with {self.text!r} could take too long")
        return matcher


@lru_cache(maxsize=_REMEMBERED)
def compile_pattern(text: str) -> Pattern:
    return Pattern(text)


def _compile_by_re2(text: str) -> tuple[LinearRegex | None, str]:
    """Return RE2's program and "", or None and why RE2 does not compile the text."""
    try:
        return linear_regex(_ESCAPED_CHARACTER.sub(r"\1\\x{\2}", text), _MEMORY_BYTES), ""
    except InvalidRegex as wrong:
        return None, str(wrong)
    except UnicodeEncodeError:
        raise BadPattern("half of a character stands in the expression") from None


def _compile_by_re(text: str, trouble: str) -> tuple[re.Pattern[str], int, int]:
    """Return Python's backtracking program, and the counts of repetitions and alternatives in it."""
    try:
        found = re.compile(text)
    except (re.error, OverflowError, RecursionError):
        raise BadPattern(f"{text!r} is no regular expression: {trouble}") from None
    plain = _GROUP_SIGNS.sub("(", re.sub(r"\\.", "x", text, flags=re.DOTALL))
    if _REPEATED_GROUP.search(plain):
        raise BadPattern(f"{text!r} cannot be matched in bounded time: {trouble}")
    return found, len(_REPETITION.findall(plain)), len(_ALTERNATIVE.findall(plain))
