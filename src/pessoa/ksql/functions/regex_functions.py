"""Regular expressions, matched by RE2: in time that grows with the text, whatever the pattern.

The language is Java's but for what RE2 gives up for that: looking ahead or behind, references back, possessive
quantifiers. A pattern that has them is a failure, so the column is null and the processing log says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

from pessoa.ksql.functions.function_rows import Function, function, variant
from pessoa.ksql.types.sql_types import EvaluationFailure

_CATEGORY = "REGULAR EXPRESSION"
_LONGEST_PATTERN = 8_192
_MEMORY_BYTES = 8 * 1024 * 1024


class FoundMatch(Protocol):
    def group(self, group: int | str = 0, /) -> str | None: ...

    def start(self) -> int: ...

    def end(self) -> int: ...


class Pattern(Protocol):
    groups: int

    def search(self, text: str, /) -> FoundMatch | None: ...

    def finditer(self, text: str, /) -> Iterator[FoundMatch]: ...


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Return the compiled pattern. Raises EvaluationFailure if it cannot be compiled."""
    import re2

    if len(text) > _LONGEST_PATTERN:
        raise EvaluationFailure(f"a pattern of {len(text)} characters is too long")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    try:
        found: Pattern = re2._Regexp(text, options)
    except (re2.error, UnicodeEncodeError) as wrong:
        raise EvaluationFailure(f"Invalid regular expression pattern: {text} ({wrong})") from None
    return found


def _replace_surrogates(text: str) -> str:
    """Return the text with ? for lone surrogates, which RE2 cannot read."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _extract(pattern: str, text: str, group: int = 0) -> str | None:
    compiled = compile_pattern(pattern)
    found = compiled.search(_replace_surrogates(text))
    return None if found is None or not 0 <= group <= compiled.groups else found.group(group)


def _extract_all(pattern: str, text: str, group: int = 0) -> list[str | None] | None:
    compiled = compile_pattern(pattern)
    if not 0 <= group <= compiled.groups:
        return None
    return [found.group(group) for found in compiled.finditer(_replace_surrogates(text))]


def _replace(text: str, pattern: str, replacement: str) -> str:
    compiled = compile_pattern(pattern)
    out: list[str] = []
    text, position = _replace_surrogates(text), 0
    for found in compiled.finditer(text):
        out += [text[position : found.start()], _expand(found, replacement, compiled.groups)]
        position = found.end()
    return "".join([*out, text[position:]])


def _expand(found: FoundMatch, replacement: str, groups: int) -> str:
    """Return a replacement in Java's syntax with its groups filled in: `$1` is a group, a backslash escapes the next
    character."""
    out: list[str] = []
    characters = iter(enumerate(replacement))
    for index, character in characters:
        if character == "\\":
            out.append(next(characters, (0, ""))[1])
        elif character != "$":
            out.append(character)
        else:
            digit = replacement[index + 1 : index + 2]
            if not digit.isdecimal() or int(digit) > groups:
                raise EvaluationFailure(f"Illegal group reference in {replacement}")
            next(characters)
            out.append(found.group(int(digit)) or "")
    return "".join(out)


def _split(text: str, pattern: str) -> list[str]:
    if not pattern:
        return list(text)
    pieces: list[str] = []
    text, position = _replace_surrogates(text), 0
    for found in compile_pattern(pattern).finditer(text):
        if found.end() == found.start():
            continue
        pieces.append(text[position : found.start()])
        position = found.end()
    return [*pieces, text[position:]]


ROWS: list[Function] = [
    function(
        "REGEXP_EXTRACT",
        _CATEGORY,
        "What a pattern, or a group of it, first matches; null if nothing.",
        [
            "REGEXP_EXTRACT('.*?fox', 'the quick fox') = 'the quick fox'",
            "REGEXP_EXTRACT('x', 'abc') IS NULL",
            "REGEXP_EXTRACT('(\\w+) (\\w+)', 'hello there', 2) = 'there'",
        ],
        variant("(STRING, STRING) STRING", _extract),
        variant("(STRING, STRING, INTEGER) STRING", _extract),
    ),
    function(
        "REGEXP_EXTRACT_ALL",
        _CATEGORY,
        "Everything that a pattern, or a group of it, matches.",
        ["REGEXP_EXTRACT_ALL('[0-9]+', 'a1b22') = ARRAY['1', '22']"],
        variant("(STRING, STRING) ARRAY<STRING>", _extract_all),
        variant("(STRING, STRING, INTEGER) ARRAY<STRING>", _extract_all),
    ),
    function(
        "REGEXP_REPLACE",
        _CATEGORY,
        "Every match of a pattern replaced; $1 is its first group.",
        ["REGEXP_REPLACE('a1b2', '[0-9]', '#') = 'a#b#'", "REGEXP_REPLACE('ab', '(a)(b)', '$2$1') = 'ba'"],
        variant("(STRING, STRING, STRING) STRING", _replace),
    ),
    function(
        "REGEXP_SPLIT_TO_ARRAY",
        _CATEGORY,
        "The pieces between the matches of a pattern.",
        ["REGEXP_SPLIT_TO_ARRAY('aabcda', '(ab|cd)') = ARRAY['a', '', 'a']"],
        variant("(STRING, STRING) ARRAY<STRING>", _split),
    ),
]
