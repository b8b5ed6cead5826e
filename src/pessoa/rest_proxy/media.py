"""The media types of v2, each with the format of the records inside it.

A produce says its format by Content-Type, a read by Accept. The weights are the server's: a caller to whom anything is
welcome gets binary, also from a consumer instance of another format; so callers name the type that they want.
"""

from __future__ import annotations

from enum import Enum

GENERAL = "application/vnd.kafka.v2+json"
JSON = "application/json"


class Format(Enum):
    """The form that a record's key and value have in a JSON body."""

    BINARY = "binary"
    JSON = "json"
    AVRO = "avro"
    JSONSCHEMA = "jsonschema"
    PROTOBUF = "protobuf"
    # Of v3 alone.
    STRING = "string"

    @property
    def has_schema(self) -> bool:
        return self in WITH_SCHEMA


WITH_SCHEMA = frozenset({Format.AVRO, Format.JSONSCHEMA, Format.PROTOBUF})

MEDIA_TYPES = {
    Format.BINARY: "application/vnd.kafka.binary.v2+json",
    Format.JSON: "application/vnd.kafka.json.v2+json",
    Format.AVRO: "application/vnd.kafka.avro.v2+json",
    Format.JSONSCHEMA: "application/vnd.kafka.jsonschema.v2+json",
    Format.PROTOBUF: "application/vnd.kafka.protobuf.v2+json",
}
FORMATS = {media_type: kind for kind, media_type in MEDIA_TYPES.items()}

# What the non-record endpoints of /consumers take and give.
ANY_V2 = (GENERAL, *MEDIA_TYPES.values())
PRODUCED_METADATA = (GENERAL,)
PRODUCED_RECORDS = (
    f"{MEDIA_TYPES[Format.BINARY]}; qs=1.0",
    f"{GENERAL}; qs=0.9",
    *(f"{MEDIA_TYPES[kind]}; qs=0.1" for kind in (Format.JSON, Format.AVRO, Format.JSONSCHEMA, Format.PROTOBUF)),
)


def format_of(media_type: str) -> Format:
    """Return the format of the records in a body of this media type; the general type means binary."""
    return FORMATS.get(media_type, Format.BINARY)
