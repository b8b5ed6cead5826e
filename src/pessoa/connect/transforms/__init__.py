"""Single message transforms: the table of their class names."""

from __future__ import annotations

from pessoa.connect.transforms.casting import Cast
from pessoa.connect.transforms.debezium import ExtractNewRecordState
from pessoa.connect.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    ValueToKey,
)
from pessoa.connect.transforms.header_transforms import DropHeaders, HeaderFrom, InsertHeader
from pessoa.connect.transforms.schema_metadata import SetSchemaMetadata
from pessoa.connect.transforms.timestamps import TimestampConverter
from pessoa.connect.transforms.topic_routing import Filter, RegexRouter, TimestampRouter
from pessoa.connect.transforms.transform import Sided, Transform

_PACKAGE = "org.apache.kafka.connect.transforms."
_SIDED: tuple[type[Sided], ...] = (
    Cast, ExtractField, Flatten, HeaderFrom, HoistField, InsertField, MaskField, ReplaceField, SetSchemaMetadata,
    TimestampConverter,
)  # fmt: skip
_WHOLE: tuple[type[Transform], ...] = (
    DropHeaders, Filter, InsertHeader, RegexRouter, TimestampRouter, ValueToKey,
)  # fmt: skip


def _key_and_value_classes(kind: type[Sided]) -> dict[str, type[Transform]]:
    return {
        f"{_PACKAGE}{kind.__name__}${side}": type(f"{kind.__name__}{side}", (kind,), {"IS_KEY": side == "Key"})
        for side in ("Key", "Value")
    }


TRANSFORMS: dict[str, type[Transform]] = {
    **{_PACKAGE + kind.__name__: kind for kind in _WHOLE},
    **{name: made for kind in _SIDED for name, made in _key_and_value_classes(kind).items()},
    "io.debezium.transforms.ExtractNewRecordState": ExtractNewRecordState,
}
