"""Options that Kafka has given another name (KIP-1147): both work, the old one with a warning, never both at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.cli.command_line import UsageError
from pessoa.cli.tool_run import read_properties

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given


# Kafka's tools begin the same warning in two ways.
WARNING = "Warning:"
OPTION = "Option"


def values(given: Given, new: str, old: str, word: str = WARNING) -> list[str]:
    """Return the values of an option that was given under its new or its old name; the old name prints a warning."""
    if given.has(old):
        if given.has(new):
            first, second = (new, old) if word == WARNING else (old, new)
            raise UsageError(f"Options --{first} and --{second} cannot be specified together.")
        # At once: console tools write their records around the buffer of the text.
        print(f"{word} --{old} is deprecated and will be removed in a future version. Use --{new} instead.", flush=True)
        return given.values(old)
    return given.values(new)


def value(given: Given, new: str, old: str, word: str = WARNING) -> str | None:
    found = values(given, new, old, word)
    if len(found) > 1:
        raise UsageError(f"Found multiple arguments for option {new}, but you asked for only one")
    return found[0] if found else None


def properties(given: Given, new: str, old: str, word: str = WARNING) -> dict[str, str]:
    """Return the `key=value` pairs of an option; a key alone has an empty value."""
    found = {}
    for pair in values(given, new, old, word):
        key, _, text = pair.partition("=")
        found[key] = text
    return found


def file_properties(given: Given, new: str, old: str, word: str = WARNING) -> dict[str, str]:
    path = value(given, new, old, word)
    return {} if path is None else read_properties(path)
