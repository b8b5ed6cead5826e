"""Transforms of a record's headers."""

from __future__ import annotations

from dataclasses import replace

from pessoa.base.config_values import SOME_ENTRIES, one_of
from pessoa.connect.data import DataFailure, Header, Record
from pessoa.connect.definition import HIGH, LIST, MEDIUM, REQUIRED, STRING, Config, Table, key
from pessoa.connect.transforms.transform import Sided, Transform
from pessoa.connect.values import parse_text


class DropHeaders(Transform):
    CONFIG = Table(key("headers", LIST, REQUIRED, SOME_ENTRIES, HIGH, "The name of the headers to be removed."))

    def configure(self, config: Config) -> None:
        self._names = set(config.entries("headers"))

    def apply(self, record: Record) -> Record:
        return record.but(headers=tuple(each for each in record.headers if each.key not in self._names))


class InsertHeader(Transform):
    CONFIG = Table(
        key("header", STRING, REQUIRED, HIGH, "The name of the header."),
        key("value.literal", STRING, REQUIRED, HIGH, "The literal value that is to be set as the header value."),
    )

    def configure(self, config: Config) -> None:
        schema, value = parse_text(config.string("value.literal"))
        self._header = Header(config.string("header"), schema, value)

    def apply(self, record: Record) -> Record:
        return record.but(headers=(*record.headers, self._header))


class HeaderFrom(Sided):
    """Copies or moves fields into headers."""

    PURPOSE = "header from"
    CONFIG = Table(
        key(
            "fields",
            LIST,
            REQUIRED,
            SOME_ENTRIES,
            HIGH,
            "Field names in the record whose values are to be copied or moved.",
        ),
        key("headers", LIST, REQUIRED, SOME_ENTRIES, HIGH, "Header names, in the same order as the field names."),
        key(
            "operation",
            STRING,
            REQUIRED,
            one_of("move", "copy"),
            MEDIUM,
            "Either <code>move</code> or <code>copy</code>.",
        ),
    )

    def configure(self, config: Config) -> None:
        fields, headers = config.entries("fields"), config.entries("headers")
        if len(fields) != len(headers):
            raise DataFailure("'fields' config must have the same number of elements as 'headers' config.")
        self._names = dict(zip(fields, headers, strict=True))
        self._moves = config["operation"] == "move"

    def apply(self, record: Record) -> Record:
        schema, value = self.schema_of(record), self.value_of(record)
        fields = self.fields_of(schema, value)
        added = []
        for name, header in self._names.items():
            inner = schema.field(name) if schema is not None else None
            added.append(Header(header, inner, fields.get(name)))
        changed = record.but(headers=(*record.headers, *added))
        if not self._moves:
            return changed
        left = {name: one for name, one in fields.items() if name not in self._names}
        if schema is not None:
            schema = replace(schema, fields=tuple(each for each in schema.fields if each.name not in self._names))
        return self.changed(changed, schema, left)
