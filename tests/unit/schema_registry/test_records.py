"""The records of `_schemas`, byte by byte, and records of other registries."""

from __future__ import annotations

import pytest

from pessoa.schema_registry.model import (
    ConfigValue,
    DeleteSubjectValue,
    Metadata,
    ModeValue,
    Reference,
    SchemaValue,
)
from pessoa.schema_registry.registry_records import (
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    Key,
    ModeKey,
    NoopKey,
    Record,
    SchemaKey,
    Value,
    decode,
    encode_key,
    encode_value,
)

PROTO = SchemaValue(
    "s", 2, 7, "message M { }", "PROTOBUF", (Reference("a.proto", "a", 1),), Metadata(properties={"k": "v"}), None, True
)


@pytest.mark.parametrize(
    ("key", "value", "key_bytes", "value_bytes"),
    [
        (
            SchemaKey("s", 1),
            SchemaValue("s", 1, 3, '"string"'),
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":3,"schema":"\\"string\\"","deleted":false}',
        ),
        (
            SchemaKey("s", 2),
            PROTO,
            b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}',
            (
                b'{"subject":"s","version":2,"id":7,"schemaType":"PROTOBUF","references":[{"name":"a.proto","subject":"a",'
                b'"version":1}],"metadata":{"properties":{"k":"v"}},"schema":"message M { }","deleted":true}'
            ),
        ),
        (SchemaKey("s", 1), None, b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
        (
            ConfigKey("s"),
            ConfigValue(subject="s", compatibilityLevel="FULL"),
            b'{"keytype":"CONFIG","subject":"s","magic":0}',
            b'{"subject":"s","compatibilityLevel":"FULL"}',
        ),
        (
            ConfigKey(None),
            ConfigValue(compatibilityLevel="NONE"),
            b'{"keytype":"CONFIG","magic":0}',
            b'{"compatibilityLevel":"NONE"}',
        ),
        (
            ModeKey("s"),
            ModeValue("s", "READONLY"),
            b'{"keytype":"MODE","subject":"s","magic":0}',
            b'{"subject":"s","mode":"READONLY"}',
        ),
        (
            DeleteSubjectKey("s"),
            DeleteSubjectValue("s", 4),
            b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
            b'{"subject":"s","version":4}',
        ),
        (ClearSubjectKey("s"), None, b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', None),
        (ContextKey(".c"), None, b'{"keytype":"CONTEXT","tenant":"default","context":".c"}', None),
        (NoopKey(), None, b'{"keytype":"NOOP","magic":0}', None),
    ],
)
def test_registry_records_are_encoded_to_the_expected_bytes_and_decoded_back(
    key: Key, value: Value | None, key_bytes: bytes, value_bytes: bytes | None
) -> None:
    assert encode_key(key) == key_bytes
    assert encode_value(value) == value_bytes
    assert decode(key_bytes, value_bytes) == Record(key, value)


@pytest.mark.parametrize(
    ("key", "value", "record"),
    [
        (
            b'{"keytype":"CONFIG","subject":null,"magic":0}',
            b'{"compatibilityLevel":"FULL"}',
            Record(ConfigKey(None), ConfigValue(compatibilityLevel="FULL")),
        ),
        (
            b'{"magic":1,"version":1,"subject":"s","keytype":"SCHEMA"}',
            (
                b'{"subject":"s","version":1,"id":3,"md5":"abc","guid":"x","ts":5,"references":null,"schemaType":null,'
                b'"schema":"\\"int\\"","deleted":false,"offset":9}'
            ),
            Record(SchemaKey("s", 1), SchemaValue("s", 1, 3, '"int"')),
        ),
        (
            b'{"keytype":"MODE","subject":null,"magic":0}',
            b'{"subject":null,"mode":"IMPORT"}',
            Record(ModeKey(None), ModeValue(None, "IMPORT")),
        ),
    ],
)
def test_records_written_by_the_jvm_registry_are_decoded(key: bytes, value: bytes, record: Record) -> None:
    assert decode(key, value) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b""),
        (b"nonsense", b"{}"),
        (b"[]", None),
        (b'{"keytype":"ASSOC","tenant":"t"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"nonsense"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"[]"),
    ],
)
def test_unknown_records_are_skipped_and_never_count_as_a_deletion(key: bytes | None, value: bytes | None) -> None:
    assert decode(key, value) is None
