"""JSON as the standard has it. Python's reader takes more: NaN, Infinity, and 1e400, which it takes for infinity.

A schema with such a number would be written down as `Infinity`, which no other reader takes, nor this one again.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import NoReturn

from pessoa.base.json_value import JsonValue


def read_json(text: str) -> JsonValue:
    """Return the parsed value; ValueError, with a sentence, if the text is not JSON. RecursionError if it is nested
    too deeply."""
    value: JsonValue = json.loads(text, parse_constant=_refuse, parse_float=_parse_finite)
    return value


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits} is larger than any number here can be")
    return number
