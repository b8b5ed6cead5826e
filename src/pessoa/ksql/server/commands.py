"""One record of the command topic: a statement that changed something, as every server replays it.

    key    "stream/PAGEVIEWS/create"                  JSON text, as Confluent's servers write it
    value  {"statement": "CREATE STREAM …;", "streamsProperties": {"auto.offset.reset": "earliest"},
            "version": 1, "partitions": 3, "replicas": 1}

The statement stands by itself: variables are filled in, and columns of a schema registry written out. `partitions` and
`replicas` are those that its topic had, so that a replay needs to ask nothing.
"""

from __future__ import annotations

import msgspec

from pessoa.ksql.syntax import statement_nodes as nodes
from pessoa.ksql.syntax.statement_nodes import Statement

VERSION = 1


class CommandId(msgspec.Struct, frozen=True):
    type: str
    entity: str
    action: str

    def __str__(self) -> str:
        return f"{self.type}/{self.entity}/{self.action}"


class Command(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    statement: str
    streams_properties: dict[str, str] = {}
    version: int = VERSION
    partitions: int | None = None
    replicas: int | None = None


class UnreadableCommand(Exception):
    """A record of the command topic cannot be decoded as a command."""


def encode_command(key: CommandId, command: Command) -> tuple[bytes, bytes]:
    value = msgspec.to_builtins(command) | {"version": command.version}
    return msgspec.json.encode(str(key)), msgspec.json.encode(value)


def decode_command(key: bytes | None, value: bytes | None) -> tuple[CommandId, Command]:
    try:
        parts = msgspec.json.decode(key or b"", type=str).replace("`", "").split("/")
        command = msgspec.json.decode(value or b"", type=Command)
    except msgspec.DecodeError as wrong:
        raise UnreadableCommand(str(wrong)) from None
    if len(parts) < 3:
        raise UnreadableCommand(f"the key {'/'.join(parts)!r} is not type/entity/action")
    if command.version > VERSION:
        raise UnreadableCommand(f"it is of version {command.version}, and this server knows up to {VERSION}")
    return CommandId(parts[0], "/".join(parts[1:-1]), parts[-1]), command


def command_id(statement: Statement) -> CommandId | None:
    """Return the id of a statement that is stored in the command topic; None for any other statement."""
    match statement:
        case nodes.CreateSource() | nodes.CreateAsSelect():
            return CommandId(statement.kind.value.lower(), statement.name, "create")
        case nodes.InsertSelect():
            return CommandId("stream", statement.target, "create")
        case nodes.AlterSource():
            return CommandId(statement.kind.value.lower(), statement.name, "alter")
        case nodes.DropSource():
            return CommandId(statement.kind.value.lower(), statement.name, "drop")
        case nodes.CreateType():
            return CommandId("type", statement.name, "create")
        case nodes.DropType():
            return CommandId("type", statement.name, "drop")
        case nodes.ControlQuery(action, query_id):
            return CommandId(action.value.lower(), query_id or "ALL", "execute")
        case nodes.AlterSystem():
            return CommandId("cluster", "ALTER_SYSTEM", "alter")
    return None
