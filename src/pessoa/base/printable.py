"""Untrusted text escaped for terminals and log files, so that it cannot move a cursor or begin a line."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with all characters escaped that are not printable, as Python writes them between quotes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
