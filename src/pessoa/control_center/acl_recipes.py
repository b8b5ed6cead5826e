"""The ACLs that an application needs: what it is, its topics and its group or application id make the list.

    producer   writes to the topics, and finds them
    consumer   reads the topics as a member of the group
    streams    as a consumer of its input whose application id is the group; it writes its output, and owns the internal
               topics and transactions whose names begin with the id

A name that ends with * stands for all that begin with what is before it; * alone for all.
"""

from __future__ import annotations

from pessoa.client.acl_admin import Entry, Operation, Pattern, PatternType, Permission, ResourceType

KINDS = ("producer", "consumer", "streams")
Acl = tuple[Pattern, Entry]


class BadRecipe(ValueError):
    """The input for a recipe is incomplete; the sentence says what is missing."""


def acls_for(kind: str, principal: str, topics: str, group: str, outputs: str = "") -> list[Acl]:
    """Return the ACLs that a producer, consumer or Streams application needs. `topics` and `outputs` are
    comma-separated; only streams has `outputs`. Raises `BadRecipe`."""
    if kind not in KINDS:
        raise BadRecipe(f"There is no kind {kind!r}: choose one of {', '.join(KINDS)}.")
    type_, colon, name = principal.strip().partition(":")
    if not (type_ and colon and name):
        raise BadRecipe("A principal is written as User:name.")
    reads, writes = (names_of(topics), names_of(outputs)) if kind != "producer" else ([], names_of(topics))
    if not reads and not writes:
        raise BadRecipe("Name a topic, or * for all.")
    if kind != "producer" and not group.strip():
        raise BadRecipe("A consumer needs its group, an application its id.")
    found: list[tuple[Pattern, tuple[Operation, ...]]] = [
        (_pattern(ResourceType.TOPIC, one), (Operation.WRITE, Operation.DESCRIBE)) for one in writes
    ]
    found += [(_pattern(ResourceType.TOPIC, one), (Operation.READ, Operation.DESCRIBE)) for one in reads]
    if kind == "consumer":
        found.append((_pattern(ResourceType.GROUP, group.strip()), (Operation.READ, Operation.DESCRIBE)))
    if kind == "streams":
        own = group.strip().rstrip("*")
        found += [
            (Pattern(ResourceType.GROUP, own, PatternType.LITERAL), (Operation.READ, Operation.DESCRIBE)),
            (Pattern(ResourceType.TOPIC, own, PatternType.PREFIXED), (Operation.ALL,)),
            (Pattern(ResourceType.TRANSACTIONAL_ID, own, PatternType.PREFIXED), (Operation.WRITE, Operation.DESCRIBE)),
        ]
    return [
        (pattern, Entry(principal.strip(), "*", operation, Permission.ALLOW))
        for pattern, operations in found
        for operation in operations
    ]


def names_of(text: str) -> list[str]:
    return [one for part in text.split(",") if (one := part.strip())]


def _pattern(kind: ResourceType, name: str) -> Pattern:
    if name != "*" and name.endswith("*"):
        return Pattern(kind, name[:-1], PatternType.PREFIXED)
    return Pattern(kind, name, PatternType.LITERAL)
