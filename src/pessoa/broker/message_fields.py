"""What messages of any API have in common, found by their declarations: the topics of a request, the errors of a
response. A function that collects them is compiled for each kind of message, at the first one:

    def collect(message):
        found = []
        for a in message.responses or ():
            for b in a.partition_responses or ():
                found.append(b.error_code)
        return found

By names, which are Kafka's: a topic is called `topic`, `topic_name` or `topic_id`, or `name` in a list of topics; the
code of an error is called `error_code`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Field, Struct

Collect = Callable[[Struct], list[Any]]
# Asked with the name of the list that a field's struct stands in, and the field.
IsWanted = Callable[[str, Field], bool]

_TOPIC_FIELDS = frozenset({"topic", "topic_name", "topic_names", "topic_id", "subscribed_topic_names"})
# What a client takes out of its fetch session.
_NOT_ASKED_FOR = "forgotten_topics_data"


def compile_collect(kind: type[Struct], is_wanted: IsWanted) -> Collect:
    """Return a function that returns the values of the wanted fields of a message, without those that are empty or
    0."""
    lines = ["def collect(s0):", "    found = []", *_lines(kind, is_wanted, "", 0), "    return found"]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    collect: Collect = space["collect"]
    return collect


def _lines(kind: type[Struct], is_wanted: IsWanted, list_name: str, depth: int) -> list[str]:
    """Return the source lines for one struct, whose variable is named by its depth."""
    indent, name = "    " * (depth + 1), f"s{depth}"
    lines = []
    for field in kind.fields:
        place = f"{name}.{field.name}"
        if field.struct is None:
            if is_wanted(list_name, field):
                take = "extend" if field.kind == "array" else "append"
                lines += [f"{indent}if {place}:", f"{indent}    found.{take}({place})"]
        elif inner := _lines(field.struct, is_wanted, field.name, depth + 1):
            items = f"{place} or ()" if field.kind == "array" else f"() if {place} is None else ({place},)"
            lines += [f"{indent}for s{depth + 1} in {items}:", *inner]
    return lines


def _is_topic(list_name: str, field: Field) -> bool:
    if list_name == _NOT_ASKED_FOR or field.kind not in ("string", "uuid", "array"):
        return False
    return field.name in _TOPIC_FIELDS or (field.name == "name" and "topic" in list_name)


def _is_error(_: str, field: Field) -> bool:
    return field.kind == "int16" and field.name in ("error_code", "partition_error_code")


@cache
def _topic_collect(kind: type[Struct]) -> Collect:
    return compile_collect(kind, _is_topic)


@cache
def _error_collect(kind: type[Struct]) -> Collect:
    return compile_collect(kind, _is_error)


def topics_of(message: Struct) -> list[str | Uuid]:
    """Return the topics that a message names, each once, by name or by id."""
    found: list[str | Uuid] = _topic_collect(type(message))(message)
    return [one for one in dict.fromkeys(found) if one != ZERO_UUID] if found else found


def errors_of(response: Struct) -> list[int]:
    """Return the error codes of a response but NONE, as often as they occur."""
    return _error_collect(type(response))(response)


_ERROR_NAMES = {int(one): one.name for one in ErrorCode}


def error_name(code: int) -> str:
    return _ERROR_NAMES.get(code) or str(code)
