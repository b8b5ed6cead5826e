"""The audit log: a line for every request that would change the cluster, with its outcome, and for every log-in.

    {"time":"…","host":"10.0.0.7","principal":"User:ann","client_id":"adminclient-1","listener":"PLAINTEXT",
     "event":"IncrementalAlterConfigs","about":{"resources":[{"resource_type":"TOPIC","resource_name":"orders",
     "configs":[{"name":"retention.ms"}]}]},"outcome":"NONE"}

The row of an API says whether it is audited. Of a request only the fields that are named here are shown, by which
things are called: no value of a configuration, no password, salt or token gets in, nor does any field that Kafka may
add. A broker writes what clients ask of it, whichever node decides; a controller what it is asked directly.

Every item of a request is shown: one with many has a line for every `MAX_ITEMS` of them, with `part` and `parts`. In a
line over `MAX_LINE_BYTES` names are cut, so that none is too large to be written. What changed nothing cannot rotate
the log away: of a request that was denied whole only the first line is written, and failed logins and denied requests
of a host are counted (`RefusalCounts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pessoa.broker.api_row import Audited
from pessoa.broker.logs.access_log import NO_RESPONSE, caller_fields
from pessoa.broker.logs.log_lines import shortened
from pessoa.broker.logs.refusal_counts import RefusalCounts
from pessoa.broker.message_fields import error_name, errors_of
from pessoa.metadata.image import ConfigResource
from pessoa.security.acl import OPERATION_NAMES, RESOURCE_NAMES
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pessoa.base.clock import Clock
    from pessoa.base.json_value import JsonValue
    from pessoa.broker.api_row import AnyRow
    from pessoa.broker.logs.log_writer import LogWriter
    from pessoa.broker.observers import Begin
    from pessoa.net.pending import Observation
    from pessoa.wire.frames import Buffer
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message, Struct

_SHOWN = frozenset(
    """
    name topic topic_name topic_names topic_id groups_names group_id feature broker_id voter_id
    num_partitions replication_factor count validate_only
    resource_type resource_type_filter resource_name resource_name_filter pattern_type_filter resource_pattern_type
    principal principal_filter host host_filter operation permission_type
    entity_type entity_name key remove config_operation mechanism
    owner_principal_type owner_principal_name principal_type principal_name
    """.split()
)
# Of all lists of a line.
MAX_ITEMS = 20
_DENIED = frozenset(int(one) for one in ErrorCode if one.name.endswith("_AUTHORIZATION_FAILED"))
_ACL_RESOURCES: Mapping[int, str] = {int(one): name for one, name in RESOURCE_NAMES.items()}
_ACL_OPERATIONS: Mapping[int, str] = {int(one): name for one, name in OPERATION_NAMES.items()}
_CONFIG_RESOURCES: Mapping[int, str] = {int(one): one.name for one in ConfigResource}


class AuditLog:
    """Logs changes and logins. `close()` writes what was counted and not written."""

    def __init__(self, writer: LogWriter, clock: Clock) -> None:
        self.writer = writer
        self.refusals = RefusalCounts(writer, clock)

    def __repr__(self) -> str:
        return f"<AuditLog of {self.writer!r}>"

    def close(self) -> None:
        self.refusals.close()

    def watches(self, row: AnyRow) -> bool:
        return row.audited is not Audited.NO

    def begin_of(self, row: AnyRow) -> Begin:
        is_of_acls = row.audited is Audited.OF_ACLS

        def begin(context: RequestContext, request: Message, _size: int) -> Observation:
            return _Audit(self, context, list(describe(request, is_of_acls=is_of_acls)))

        return begin

    def note_log_in(self, host: str, listener: str, mechanism: str, principal: str | None, outcome: str) -> None:
        """Log a successful or failed login. `principal` is the client's name, as proved or, after a failure, as
        claimed."""
        entry: dict[str, JsonValue] = {
            "host": host,
            "principal": None if principal is None else shortened(principal),
            "listener": listener,
            "event": "LogIn",
            "about": {"mechanism": shortened(mechanism)},
            "outcome": outcome,
        }
        if outcome == ErrorCode.NONE.name:
            self.writer.write_names(entry)
        else:
            self.refusals.note((host, "LogIn"), entry)


class _Audit:
    __slots__ = ("_context", "_log", "_parts")

    def __init__(self, log: AuditLog, context: RequestContext, parts: list[dict[str, JsonValue]]) -> None:
        self._log = log
        self._context = context
        self._parts = parts

    def wait(self) -> None: ...

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        errors = errors_of(response) if response is not None else []
        outcome = ",".join(dict.fromkeys(map(error_name, errors))) or "NONE"
        if response is not None and errors and _DENIED.issuperset(_codes(response)):
            key = (self._context.client_host, self._context.principal, str(self._context.api_key))
            self._log.refusals.note(key, self._entry(0, outcome))
        else:
            self._write(outcome)

    def lose(self) -> None:
        self._write(NO_RESPONSE)

    def _write(self, outcome: str) -> None:
        for number in range(len(self._parts)):
            self._log.writer.write_names(self._entry(number, outcome))

    def _entry(self, number: int, outcome: str) -> dict[str, JsonValue]:
        entry = {**caller_fields(self._context), "event": ApiKey(self._context.api_key).title}
        if len(self._parts) > 1:
            entry |= {"part": number + 1, "parts": len(self._parts)}
        return {**entry, "about": self._parts[number], "outcome": outcome}


def _codes(struct: Struct) -> Iterator[int]:
    """Yield every error code of a response, NONE included."""
    for field in struct.fields:
        value = getattr(struct, field.name)
        if field.struct is not None:
            for one in value if isinstance(value, list) else () if value is None else (value,):
                yield from _codes(one)
        elif field.name == "error_code":
            yield value


def describe(struct: Struct, *, is_of_acls: bool) -> Iterator[dict[str, JsonValue]]:
    """Yield the shown fields of a request in parts of at most `MAX_ITEMS` list items, each part with the fields beside
    the lists."""
    return (part for part, _ in _describe_in_parts(struct, is_of_acls))


def _describe_in_parts(struct: Struct, is_of_acls: bool) -> Iterator[tuple[dict[str, JsonValue], int]]:
    """Yield the shown fields of a struct in parts of at most `MAX_ITEMS` list items, each with its item count."""
    beside: dict[str, JsonValue] = {}
    for field in struct.fields:
        value = getattr(struct, field.name)
        if field.struct is None and field.name in _SHOWN and value is not None and not isinstance(value, list):
            beside[field.name] = _shown_value(field.name, value, is_of_acls)
    part, count = dict(beside), 0
    for name, item, size in _items(struct, is_of_acls):
        if count and count + size > MAX_ITEMS:
            yield part, count
            part, count = dict(beside), 0
        present = part.setdefault(name, [])
        assert isinstance(present, list), "a field that is shown beside lists is none itself"
        present.append(item)
        count += size
    yield part, max(1, count)


def _items(struct: Struct, is_of_acls: bool) -> Iterator[tuple[str, JsonValue, int]]:
    """Yield the items of a struct's lists: the list's name, the description, and the number of items in it."""
    for field in struct.fields:
        value = getattr(struct, field.name)
        if value is None or (field.struct is None and (field.name not in _SHOWN or not isinstance(value, list))):
            continue
        for one in value if isinstance(value, list) else [value]:
            if field.struct is None:
                yield field.name, shortened(str(one)), 1
            else:
                yield from ((field.name, part, size) for part, size in _describe_in_parts(one, is_of_acls))


def _shown_value(name: str, value: Any, is_of_acls: bool) -> JsonValue:
    if name.startswith("resource_type"):
        return (_ACL_RESOURCES if is_of_acls else _CONFIG_RESOURCES).get(value, str(value))
    if name == "operation" and is_of_acls:
        return _ACL_OPERATIONS.get(value, str(value))
    return value if isinstance(value, int) else shortened(str(value))
