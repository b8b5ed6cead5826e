"""Under which subject a schema is registered, and the contexts that subjects live in.

    topic               orders-value           TopicNameStrategy, the default
    record              com.example.Order      RecordNameStrategy: one history wherever the record goes
    topic and record    orders-com.example.Order

A context is a registry within the registry, with ids of its own. A subject names its context in front:

    :.staging:orders-value     the subject `orders-value` in the context `.staging`
    orders-value               the same subject in the default context, `.`; so is `:.:orders-value`
    :.staging:                 the context itself, as the place of a configuration or mode
    :*:                        every context, as a prefix to search by
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_CONTEXT = "."
# The place for settings that hold in all contexts.
GLOBAL_CONTEXT = ".__GLOBAL"
WILDCARD = "*"


class Subject(NamedTuple):
    context: str
    name: str

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def parse_subject(text: str) -> Subject:
    """Return the context and name of `:.ctx:name`. A prefix that is no valid context is part of the name."""
    if text.startswith(":"):
        context, colon, name = text[1:].partition(":")
        if colon and (context.startswith(".") or context == WILDCARD):
            return Subject(context, name)
        if not colon and context.startswith("."):
            return Subject(context, "")
    return Subject(DEFAULT_CONTEXT, text)


def topic_name_strategy(topic: str, *, is_key: bool) -> str:
    return f"{topic}-key" if is_key else f"{topic}-value"


def record_name_strategy(record_name: str) -> str:
    return record_name


def topic_record_name_strategy(topic: str, record_name: str) -> str:
    return f"{topic}-{record_name}"
