"""ExtractNewRecordState: Debezium's events as plain rows, for sinks that want a table and not its history.

    {"before": …, "after": {"id": 1, "nome": "ana"}, "source": …, "op": "u", …}  ──►  {"id": 1, "nome": "ana"}

`delete.tombstone.handling.mode` says what becomes of a delete and of the tombstone behind it:

    drop                     both go
    tombstone                the tombstone stays (the default)
    delete-to-tombstone      the delete becomes a tombstone, and the one behind it goes
    rewrite                  the old row with `__deleted` = "true"; other rows have "false"
    rewrite-with-tombstone   the same, and the tombstone stays

The older `delete.handling.mode` (drop, none, rewrite) and `drop.tombstones` are understood. `add.fields` and
`add.headers` take fields of the envelope along: `op,table,source.ts_ms,lsn:position`. A record that is no event goes
through as it is.
"""

from __future__ import annotations

from pessoa.base.config_values import one_of
from pessoa.connect.data import STRING as STRING_SCHEMA
from pessoa.connect.data import ConnectValue, Field, Header, Record, Schema, Struct, Type, struct
from pessoa.connect.definition import BOOLEAN, LIST, LOW, MEDIUM, STRING, Config, Table, key
from pessoa.connect.transforms.transform import Transform

DELETED = "__deleted"
_MODES = ("drop", "tombstone", "delete-to-tombstone", "rewrite", "rewrite-with-tombstone")
# Both of the older keys as one of the modes.
_OLDER = {
    ("drop", True): "drop", ("drop", False): "tombstone", ("none", True): "delete-to-tombstone",
    ("none", False): "none", ("rewrite", True): "rewrite", ("rewrite", False): "rewrite-with-tombstone",
}  # fmt: skip


class ExtractNewRecordState(Transform):
    CONFIG = Table(
        key("delete.tombstone.handling.mode", STRING, None, one_of(*_MODES), MEDIUM, "What becomes of deletes."),
        key("delete.handling.mode", STRING, None, one_of("drop", "none", "rewrite"), LOW, "The older name for it."),
        key("drop.tombstones", BOOLEAN, None, LOW, "Whether tombstones go; with delete.handling.mode."),
        key("add.fields", LIST, (), MEDIUM, "Fields of the envelope that the row gets, as field or field:name."),
        key("add.fields.prefix", STRING, "__", LOW, "What stands before their names."),
        key("add.headers", LIST, (), MEDIUM, "Fields of the envelope that become headers."),
        key("add.headers.prefix", STRING, "__", LOW, "What stands before their names."),
        key("route.by.field", STRING, "", LOW, "A field of the row whose value is the topic."),
    )

    def configure(self, config: Config) -> None:
        mode = config.optional_string("delete.tombstone.handling.mode")
        older, drops = config.optional_string("delete.handling.mode"), config["drop.tombstones"]
        if mode is None and (older is not None or drops is not None):
            mode = _OLDER[older or "drop", drops is not False]
        self._mode = mode or "tombstone"
        self._fields = _new_names(config.entries("add.fields"), config.string("add.fields.prefix"))
        self._headers = _new_names(config.entries("add.headers"), config.string("add.headers.prefix"))
        self._route = config.string("route.by.field")

    def apply(self, record: Record) -> Record | None:
        event = record.value
        if event is None:
            return record if self._mode in ("tombstone", "none", "rewrite-with-tombstone") else None
        if not isinstance(event, dict) or not {"op", "after", "source"} <= event.keys():
            return record
        if event["op"] == "t":
            return None
        headers = tuple(
            Header(name, schema or STRING_SCHEMA, value)
            for name, (schema, value) in self._envelope_fields(self._headers, record, event).items()
        )
        record = record.but(headers=record.headers + headers)
        after = event["after"]
        if after is not None:
            return self._row(record, event, after, "false")
        if self._mode in ("drop", "tombstone"):
            return None
        if self._mode in ("delete-to-tombstone", "none"):
            return record.but(value_schema=None, value=None)
        return self._row(record, event, event.get("before"), "true")

    def _row(self, record: Record, event: Struct, row: ConnectValue, deleted: str) -> Record:
        assert row is None or isinstance(row, dict)
        added = self._envelope_fields(self._fields, record, event)
        if self._mode.startswith("rewrite"):
            added[DELETED] = (STRING_SCHEMA.as_optional, deleted)
        topic = str((row or {}).get(self._route, record.topic)) if self._route else record.topic
        value = {**(row or {}), **{name: value for name, (_, value) in added.items()}}
        schema = record.value_schema
        if schema is not None:
            inside = schema.field("after") or struct({})
            more = tuple(Field(name, kind or STRING_SCHEMA.as_optional) for name, (kind, _) in added.items())
            schema = Schema(Type.STRUCT, name=inside.name, version=inside.version, fields=inside.fields + more)
        return record.but(topic=topic, value_schema=schema, value=value)

    def _envelope_fields(
        self, wanted: dict[str, str], record: Record, event: Struct
    ) -> dict[str, tuple[Schema | None, ConnectValue]]:
        """Return the envelope fields under their new names; a name without a dot is looked up in both structs."""
        found: dict[str, tuple[Schema | None, ConnectValue]] = {}
        for path, name in wanted.items():
            places = path.split(".") if "." in path else [path] if path in event else ["source", path]
            value: ConnectValue = event
            schema = record.value_schema
            for place in places:
                value = value.get(place) if isinstance(value, dict) else None
                schema = None if schema is None else schema.field(place)
            found[name] = (None if schema is None else schema.as_optional, value)
        return found


def _new_names(entries: tuple[str, ...], prefix: str) -> dict[str, str]:
    """Return the new name of each field: `source.ts_ms` becomes `__source_ts_ms`, `lsn:position` `__position`."""
    found = {}
    for each in entries:
        path, _, name = each.partition(":")
        found[path.strip()] = prefix + (name.strip() or path.strip().replace(".", "_"))
    return found
