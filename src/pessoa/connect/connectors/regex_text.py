"""Texts that match a regular expression, chosen by chance: what Datagen's `regex` asks for.

Python's own parser takes the expression apart; a repetition without an end is taken a few times.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeAlias

# The parser of `re` has no public name, and its arguments are of another type for each operation.
Argument = Any
Parts: TypeAlias = Iterable[tuple[object, Argument]]
_parse: Callable[[str], Parts] = import_module("re._parser").parse

_MOST = 8
_PRINTABLE = string.ascii_letters + string.digits
_CATEGORIES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_WORD": _PRINTABLE + "_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": string.ascii_letters,
    "CATEGORY_NOT_WORD": "-.,",
    "CATEGORY_NOT_SPACE": _PRINTABLE,
}


@lru_cache(maxsize=1000)
def _cached_parse(pattern: str) -> Parts:
    return _parse(pattern)


def random_match(pattern: str, chance: random.Random) -> str:
    return _make_text(_cached_parse(pattern), chance, {})


def _make_text(parts: Parts, chance: random.Random, groups: dict[int, str]) -> str:
    return "".join(_make_part(str(word), argument, chance, groups) for word, argument in parts)


def _make_part(word: str, argument: Argument, chance: random.Random, groups: dict[int, str]) -> str:
    match word:
        case "LITERAL":
            return chr(argument)
        case "NOT_LITERAL":
            return chance.choice([letter for letter in _PRINTABLE if ord(letter) != argument])
        case "ANY":
            return chance.choice(_PRINTABLE)
        case "IN":
            return chance.choice(_members(argument))
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high, inside = argument
            high = min(int(high), low + _MOST)
            return "".join(_make_text(inside, chance, groups) for _ in range(chance.randint(low, high)))
        case "BRANCH":
            return _make_text(chance.choice(argument[1]), chance, groups)
        case "SUBPATTERN":
            text = _make_text(argument[-1], chance, groups)
            if argument[0] is not None:
                groups[argument[0]] = text
            return text
        case "GROUPREF":
            return groups.get(argument, "")
        case "AT":
            return ""
    raise ValueError(f"no text can be made up for {word} in a regular expression")


def _members(parts: Parts) -> list[str]:
    found: list[str] = []
    is_negated = False
    for word, argument in parts:
        match str(word):
            case "NEGATE":
                is_negated = True
            case "LITERAL":
                found.append(chr(argument))
            case "RANGE":
                found += [chr(code) for code in range(argument[0], argument[1] + 1)]
            case "CATEGORY":
                found += _CATEGORIES[str(argument)]
    return [letter for letter in _PRINTABLE if letter not in found] if is_negated else found
