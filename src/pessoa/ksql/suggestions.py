"""Suggestions for misspelt names: the most similar name that exists."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 60
_MOST = 2_000


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the name most similar to the word; None if no name is similar. The work is bounded."""
    if not word or len(word) > _LONGEST:
        return None
    from difflib import get_close_matches

    by_upper = {name.upper(): name for name in list(names)[:_MOST]}
    found = get_close_matches(word.upper(), list(by_upper), n=1, cutoff=0.65)
    return by_upper[found[0]] if found else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return the sentence for an error's hint; "" if no name is similar to the word."""
    found = closest(word, names)
    return f"Did you mean {found}?" if found is not None else ""
