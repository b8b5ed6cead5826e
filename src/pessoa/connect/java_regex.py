"""Java's regular expressions and replacement texts, translated to Python's.

The two dialects agree on nearly everything that people write into a configuration. What differs: named groups are
`(?<name>…)` in Java, and in a replacement `$1` and `${name}` stand for groups and a backslash makes the next character
itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pessoa.base.config_values import Value

_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
_NAMED_REFERENCE = re.compile(r"\\k<(\w+)>")


class JavaPattern:
    def __init__(self, text: str) -> None:
        self.text = text
        self.compiled = re.compile(_NAMED_REFERENCE.sub(r"(?P=\1)", _NAMED_GROUP.sub("(?P<", text)))

    def replace_whole(self, text: str, replacement: str) -> str | None:
        """Return the replacement if the whole text matches (`Matcher.replaceFirst` after `matches`), None if not."""
        match = self.compiled.fullmatch(text)
        return None if match is None else expand(match, replacement)


def expand(match: re.Match[str], replacement: str) -> str:
    """Return a replacement in Java's spelling with its groups filled in."""
    out: list[str] = []
    position = 0
    while position < len(replacement):
        character = replacement[position]
        position += 1
        if character == "\\" and position < len(replacement):
            out.append(replacement[position])
            position += 1
        elif character == "$":
            group, position = _group(match, replacement, position)
            out.append(match.group(group) or "")
        else:
            out.append(character)
    return "".join(out)


def _group(match: re.Match[str], replacement: str, position: int) -> tuple[int | str, int]:
    if replacement[position : position + 1] == "{":
        end = replacement.find("}", position)
        if end < 0:
            raise ValueError(f"a group's name is not closed in {replacement!r}")
        return replacement[position + 1 : end], end + 1
    end = position
    # As many digits as still name a group that there is.
    while end < len(replacement) and replacement[end].isdigit():
        if end > position and int(replacement[position : end + 1]) > match.re.groups:
            break
        end += 1
    if end == position:
        raise ValueError(f"a $ without a group in {replacement!r}; write \\$ for the sign itself")
    return int(replacement[position:end]), end


def pattern_complaint(value: Value, _: Mapping[str, str]) -> str | None:
    """Return what is wrong with the regular expression of a key (a `Check`); None if nothing is."""
    try:
        JavaPattern(str(value))
    except re.error as wrong:
        return f"Invalid regex: {wrong}"
    return None
