"""The log of decisions about access, with Kafka's logger and in Kafka's form:

    Principal = User:a is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t for request = Fetch
    with resourceRefCount = 1 based on rule DefaultDeny

INFO has what was refused, DEBUG what was allowed, too; TRACE also what was looked at to filter a list. Names come from
clients: control characters in them are escaped, so that no name begins a line of its own or moves a terminal's cursor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.base.log_levels import LEVELS
from pessoa.security.acl import ALLOW, LITERAL, OPERATION_NAMES, RESOURCE_NAMES
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.security.acl import Entry, Operation, ResourceType
    from pessoa.security.authorizer import Asker

LOGGER = "kafka.authorizer.logger"
_log = logging.getLogger(LOGGER)
_TRACE = LEVELS["TRACE"]
# Whether the log has the level of what is allowed; for each decision, so it is Python's own method.
are_all_shown = _log.isEnabledFor


def _level(is_allowed: bool, quietly: bool) -> int:
    if is_allowed:
        return logging.DEBUG
    return _TRACE if quietly else logging.INFO


def log_verdict(
    asker: Asker,
    is_allowed: bool,
    rule: Entry | str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    count: int,
    *,
    quietly: bool,
) -> None:
    level = _level(is_allowed, quietly)
    if not _log.isEnabledFor(level):
        return
    _log.log(
        level,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
        "with resourceRefCount = %d based on rule %s",
        _escape(asker.principal),
        "Allowed" if is_allowed else "Denied",
        OPERATION_NAMES[operation],
        _escape(asker.client_host),
        RESOURCE_NAMES[kind],
        _escape(name),
        _request_name(asker.api_key),
        count,
        rule if isinstance(rule, str) else _escape(_describe_entry(rule)),
    )


def _escape(text: str) -> str:
    """Return the text with all characters escaped that are not printable, as Python writes them between quotes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _request_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).title
    except ValueError:
        return "none"


def _describe_entry(entry: Entry) -> str:
    return (
        f"MatchingAcl(acl=StandardAcl(resourceType={_RESOURCES[entry.resource_type]}, "
        f"resourceName={entry.resource_name}, "
        f"patternType={'LITERAL' if entry.pattern_type == LITERAL else 'PREFIXED'}, principal={entry.principal}, "
        f"host={entry.host}, operation={_OPERATIONS[entry.operation]}, "
        f"permissionType={'ALLOW' if entry.permission_type == ALLOW else 'DENY'}))"
    )


# As Kafka writes entries: TRANSACTIONAL_ID.
_RESOURCES: dict[int, str] = {
    kind: "".join(f"_{one}" if one.isupper() else one.upper() for one in name).lstrip("_")
    for kind, name in RESOURCE_NAMES.items()
}
_OPERATIONS: dict[int, str] = dict(OPERATION_NAMES.items())
