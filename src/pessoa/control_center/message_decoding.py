"""What the bytes of a record say: JSON, a schema's Avro, Protobuf or JSON, XML, CBOR, MessagePack, text, a number, or
hexadecimal.

    auto        null → an own serde that reads this topic → framed with a schema id that the registry has, or with one
                of AWS Glue → JSON → XML → printable text → Smile, or a map or an array in MessagePack or CBOR to the
                last byte → hexadecimal
    a format    json, text, hex, int, avro (any registered schema), msgpack, cbor, smile, xml, or an own serde's name

A record is hostile: the result is plain data (texts, numbers, lists, objects), which pages put into elements as text. A
schema is asked for once and kept; an id that the registry does not know is remembered for a while, so that a topic
whose values begin with a zero byte by chance costs one question and not one for each record.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from pessoa.base.json_value import JsonValue
from pessoa.base.weighted_cache import WeightedCache
from pessoa.client.registry_client import RegistryClient, RegistryFailed, by_id, resolved
from pessoa.control_center.binary_formats import BadBinary, decode_cbor, decode_xml
from pessoa.control_center.glue_schemas import GlueSchemas
from pessoa.control_center.own_serdes import OwnSerdes, SerdeFailed
from pessoa.control_center.smile_format import HEADER, decode_smile
from pessoa.serde.codecs import Codec, codec_for
from pessoa.serde.framing import unframe
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

FORMATS = ("auto", "json", "text", "hex", "int", "avro", "msgpack", "cbor", "smile", "xml")
_UNKNOWN_S = 30.0
_HEX_BYTES = 64 * 1024
_SCHEMA_BYTES = 8 << 20


class Decoded(NamedTuple):
    """A decoded key or value: `format` is the detected format, `schema_id` the id of its schema if it has one."""

    format: str
    value: JsonValue
    schema_id: int | None = None
    trouble: str | None = None


class Decoder:
    """The decoder of keys and values. It blocks while it requests a schema, so it is for threads that read messages."""

    def __init__(
        self, registry: RegistryClient | None, serdes: OwnSerdes | None = None, glue: GlueSchemas | None = None
    ) -> None:
        self._registry = registry
        self._glue = glue
        self.serdes = serdes or OwnSerdes()
        self._codecs: WeightedCache[tuple[str, Codec]] = WeightedCache(_SCHEMA_BYTES)
        self._unknown_until: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<Decoder with {self._registry!r}>"

    @property
    def formats(self) -> tuple[str, ...]:
        return (*FORMATS, *self.serdes.names)

    def decode(self, data: bytes | None, wanted: str = "auto", topic: str = "", part: str = "") -> Decoded:
        """Return the bytes decoded in the wanted format; own serdes are called with the topic and "key" or "value"."""
        if data is None:
            return Decoded("null", None)
        if wanted in self.serdes.names or (wanted == "auto" and part and self.serdes.names):
            try:
                name = wanted if wanted != "auto" else self.serdes.reading(topic, part)
                if name is not None:
                    return Decoded(name, self.serdes.decode(name, data))
            except SerdeFailed as failure:
                return self._decode_built_in(data, "auto")._replace(trouble=str(failure))
        return self._decode_built_in(data, wanted)

    def shows_words_of_bytes(self, topic: str, part: str, wanted: str) -> bool:
        """Whether text and JSON are shown as they are, so that a search may check the bytes first."""
        if wanted != "auto":
            return wanted in ("json", "text")
        try:
            return self.serdes.reading(topic, part) is None
        except SerdeFailed:
            return False

    def _decode_built_in(self, data: bytes, wanted: str) -> Decoded:
        match wanted:
            case "hex":
                return _hex(data)
            case "text":
                return Decoded("text", data.decode("utf-8", "replace"))
            case "json":
                return _json(data) or Decoded("text", data.decode("utf-8", "replace"), trouble="This is not JSON.")
            case "msgpack":
                return _msgpack(data)
            case "cbor":
                return _cbor(data)
            case "smile":
                return _smile(data)
            case "xml":
                return _xml(data)
            case "int" if len(data) in (1, 2, 4, 8):
                return Decoded("int", int.from_bytes(data, "big", signed=True))
            case "int":
                return Decoded("hex", data[:_HEX_BYTES].hex(" "), trouble="A number has 1, 2, 4 or 8 bytes.")
        by_schema = self._decode_by_schema(data) or self._decode_by_glue(data)
        if by_schema is not None:
            return by_schema
        if wanted == "avro":
            return Decoded("hex", data[:_HEX_BYTES].hex(" "), trouble="No registered schema fits these bytes.")
        if data[:3] == HEADER:
            return _guess_binary(data) or _text(data) or _hex(data)
        return _json(data) or _guess_xml(data) or _text(data) or _guess_binary(data) or _hex(data)

    def _decode_by_schema(self, data: bytes) -> Decoded | None:
        if self._registry is None or len(data) < 5 or data[0] != 0:
            return None
        try:
            schema, payload = unframe(data)
        except DataProblem:
            return None
        if not isinstance(schema, int):
            return None
        found = self._codec(schema)
        if found is None:
            return None
        kind, codec = found
        try:
            return Decoded(kind.lower(), codec.to_json(payload), schema)
        except (DataProblem, SchemaProblem) as wrong:
            return Decoded("hex", data[:_HEX_BYTES].hex(" "), schema, f"Schema {schema} does not fit: {wrong}")

    def _decode_by_glue(self, data: bytes) -> Decoded | None:
        if self._glue is None:
            return None
        try:
            found = self._glue.decode(data)
        except (DataProblem, SchemaProblem) as wrong:
            return Decoded("hex", data[:_HEX_BYTES].hex(" "), trouble=f"A schema of Glue does not help: {wrong}")
        return None if found is None else Decoded(found.kind, found.value)

    def _codec(self, schema_id: int) -> tuple[str, Codec] | None:
        assert self._registry is not None
        known = self._codecs.get(schema_id)
        if known is not None:
            return known
        if self._unknown_until.get(schema_id, 0.0) > time.monotonic():
            return None
        try:
            schema = self._registry.ask(resolved(by_id(schema_id)))
            found = (schema.type, codec_for(schema.type, schema.text, schema.references))
        except (RegistryFailed, SchemaProblem):
            if len(self._unknown_until) > 1000:
                self._unknown_until.clear()
            self._unknown_until[schema_id] = time.monotonic() + _UNKNOWN_S
            return None
        self._codecs.put(schema_id, found, len(schema.text))
        return found


def _json(data: bytes) -> Decoded | None:
    # A lone number or word is shown the same as text.
    if data[:64].lstrip()[:1] not in (b"{", b"[", b'"'):
        return None
    try:
        return Decoded("json", msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _msgpack(data: bytes) -> Decoded:
    try:
        # Types that JSON does not have become texts.
        return Decoded("msgpack", msgspec.to_builtins(msgspec.msgpack.decode(data), str_keys=True))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as wrong:
        return Decoded("hex", data[:_HEX_BYTES].hex(" "), trouble=f"This is not MessagePack: {wrong}")


def _cbor(data: bytes) -> Decoded:
    try:
        return Decoded("cbor", decode_cbor(data))
    except BadBinary as wrong:
        return Decoded("hex", data[:_HEX_BYTES].hex(" "), trouble=f"This is not CBOR: {wrong}")


def _smile(data: bytes) -> Decoded:
    try:
        return Decoded("smile", decode_smile(data))
    except BadBinary as wrong:
        return Decoded("hex", data[:_HEX_BYTES].hex(" "), trouble=f"This is not Smile: {wrong}")


def _xml(data: bytes) -> Decoded:
    try:
        return Decoded("xml", decode_xml(data))
    except BadBinary as wrong:
        return Decoded("text", data.decode("utf-8", "replace"), trouble=f"This is not XML: {wrong}")


def _guess_xml(data: bytes) -> Decoded | None:
    """Return XML if the first characters declare it; HTML without a declaration stays text."""
    if not data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<?xml"):
        return None
    found = _xml(data)
    return found if found.format == "xml" else None


def _guess_binary(data: bytes) -> Decoded | None:
    """Return Smile by its header; CBOR or MessagePack only if it is a map or array with content, not by chance."""
    if data[:3] == HEADER and (smile := _smile(data)).trouble is None:
        return smile
    for decode in (_msgpack, _cbor):
        found = decode(data)
        if found.trouble is None and isinstance(found.value, dict | list) and found.value:
            return found
    return None


def _text(data: bytes) -> Decoded | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if any(ord(each) < 32 and each not in "\n\r\t" for each in text[:4096]):
        return None
    return Decoded("text", text)


def _hex(data: bytes) -> Decoded:
    trouble = f"The first {_HEX_BYTES} of {len(data)} bytes." if len(data) > _HEX_BYTES else None
    return Decoded("hex", data[:_HEX_BYTES].hex(" "), trouble=trouble)
