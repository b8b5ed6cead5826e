"""MASK and its relatives: capitals become X, small letters x, digits n, everything else a dash. A null mask keeps."""

from __future__ import annotations

from collections.abc import Callable

from pessoa.ksql.functions.function_rows import Function, Variant, function, variant
from pessoa.ksql.types.sql_types import EvaluationFailure

_DEFAULTS = ("X", "x", "n", "-")


def mask(text: str, masks: tuple[str | None, ...] = _DEFAULTS) -> str:
    """Return the text with every character replaced by the mask of its kind."""
    upper, lower, digit, other = masks

    def masked(character: str) -> str:
        kind = (
            upper if character.isupper() else lower if character.islower() else digit if character.isdigit() else other
        )
        return character if kind is None else kind[:1]

    return "".join(map(masked, text))


def _variants(counted: bool, compute: Callable[[str, int, tuple[str | None, ...]], str]) -> list[Variant]:
    def called(text: str | None, *rest: int | str | None) -> str | None:
        if text is None:
            return None
        count, masks = (rest[0], rest[1:]) if counted else (0, rest)
        if not isinstance(count, int) or count < 0:
            raise EvaluationFailure(f"the number of characters to mask must not be negative: {count}")
        chosen = tuple(one if one is None else str(one) for one in masks) if masks else _DEFAULTS
        return compute(text, count, chosen)

    head = "STRING, INTEGER" if counted else "STRING"
    return [
        variant(f"({head}) STRING", called, sees_null=True),
        variant(f"({head}, STRING, STRING, STRING, STRING) STRING", called, sees_null=True),
    ]


def _mask_right(text: str, count: int, masks: tuple[str | None, ...]) -> str:
    split = max(0, len(text) - count)
    return text[:split] + mask(text[split:], masks)


def _keep_right(text: str, count: int, masks: tuple[str | None, ...]) -> str:
    split = max(0, len(text) - count)
    return mask(text[:split], masks) + text[split:]


ROWS: list[Function] = [
    function(
        "MASK",
        "STRING",
        "Every character replaced by the mask of its kind.",
        ["MASK('My Test $123') = 'Xx-Xxxx--nnn'", "MASK('aB1-', '*', NULL, '9', NULL) = 'a*9-'"],
        *_variants(False, lambda text, _, masks: mask(text, masks)),
    ),
    function(
        "MASK_LEFT",
        "STRING",
        "The first characters masked.",
        ["MASK_LEFT('My Test $123', 4) = 'Xx-Xest $123'"],
        *_variants(True, lambda text, count, masks: mask(text[:count], masks) + text[count:]),
    ),
    function(
        "MASK_RIGHT",
        "STRING",
        "The last characters masked.",
        ["MASK_RIGHT('My Test $123', 4) = 'My Test -nnn'"],
        *_variants(True, _mask_right),
    ),
    function(
        "MASK_KEEP_LEFT",
        "STRING",
        "All but the first characters masked.",
        ["MASK_KEEP_LEFT('My Test $123', 4) = 'My Txxx--nnn'"],
        *_variants(True, lambda text, count, masks: text[:count] + mask(text[count:], masks)),
    ),
    function(
        "MASK_KEEP_RIGHT",
        "STRING",
        "All but the last characters masked.",
        ["MASK_KEEP_RIGHT('My Test $123', 4) = 'Xx-Xxxx-$123'"],
        *_variants(True, _keep_right),
    ),
]
