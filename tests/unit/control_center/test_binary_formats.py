"""CBOR and XML as plain data, and how the decoder recognises them."""

from __future__ import annotations

import contextlib
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.control_center.binary_formats import MAX_DEPTH, BadBinary, decode_cbor, decode_xml
from pessoa.control_center.message_decoding import Decoder
from pessoa.control_center.smile_format import decode_smile

# Appendix A of RFC 8949.
EXAMPLES = {
    "00": 0, "1818": 24, "1903e8": 1000, "1a000f4240": 1_000_000, "1bffffffffffffffff": "18446744073709551615",
    "20": -1, "3903e7": -1000, "f93c00": 1.0, "f97bff": 65504.0, "fa47c35000": 100000.0, "fb3ff199999999999a": 1.1,
    "f97c00": "inf", "f4": False, "f5": True, "f6": None, "f7": None, "4401020304": "01 02 03 04", "6449455446": "IETF",
    "62c3bc": "ü", "83010203": [1, 2, 3], "a201020304": {"1": 2, "3": 4}, "a26161016162820203": {"a": 1, "b": [2, 3]},
    "5f42010243030405ff": "01 02 03 04 05", "7f657374726561646d696e67ff": "streaming", "9fff": [],
    "9f018202039f0405ffff": [1, [2, 3], [4, 5]], "bf6346756ef563416d7421ff": {"Fun": True, "Amt": -2},
    "c11a514b67b0": 1363896240,
}  # fmt: skip


@pytest.mark.parametrize("text", EXAMPLES)
def test_cbor_examples_of_the_rfc_are_decoded(text: str) -> None:
    assert decode_cbor(bytes.fromhex(text)) == EXAMPLES[text]


@pytest.mark.parametrize(
    "text", ["", "18", "9a7fffffff", "5b7fffffffffffffff", "61ff", "ff", "0000", "1c", "bf00ff", "df00"]
)
def test_bytes_that_are_no_cbor_are_refused(text: str) -> None:
    with pytest.raises(BadBinary):
        decode_cbor(bytes.fromhex(text))


def test_deep_cbor_and_deep_xml_are_refused() -> None:
    with pytest.raises(BadBinary, match="deeper"):
        decode_cbor(b"\x81" * (MAX_DEPTH + 5) + b"\x00")
    with pytest.raises(BadBinary, match="deeper"):
        decode_xml(b"<a>" * (MAX_DEPTH + 5) + b"</a>" * (MAX_DEPTH + 5))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_decoded_as_cbor_or_refused_and_always_shown(data: bytes) -> None:
    with contextlib.suppress(BadBinary):
        msgspec.json.encode(decode_cbor(data))
    shown = Decoder(None).decode(data)
    msgspec.json.encode(shown.value)


def _cbor(value: object) -> bytes:
    """Return a value of JSON's types in CBOR: a second implementation."""
    match value:
        case bool():
            return b"\xf5" if value else b"\xf4"
        case None:
            return b"\xf6"
        case int():
            kind, number = (0x1B, value) if value >= 0 else (0x3B, -1 - value)
            return bytes([kind]) + struct.pack(">Q", number)
        case float():
            return b"\xfb" + struct.pack(">d", value)
        case str():
            return b"\x7a" + struct.pack(">I", len(value.encode())) + value.encode()
        case list():
            return b"\x9a" + struct.pack(">I", len(value)) + b"".join(map(_cbor, value))
        case dict():
            pairs = b"".join(_cbor(key) + _cbor(one) for key, one in value.items())
            return b"\xba" + struct.pack(">I", len(value)) + pairs
    raise AssertionError(value)


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_VALUES = st.recursive(_LEAVES, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=20)


@given(_VALUES)
def test_cbor_of_another_encoder_is_decoded_to_the_original_value(value: object) -> None:
    assert decode_cbor(_cbor(value)) == value


def test_xml_becomes_objects_with_attributes_texts_and_lists() -> None:
    data = '<?xml version="1.0"?><order id="7"><item>chá</item><item n="2">café</item><note/></order>'.encode()
    wanted = {"order": {"@id": "7", "item": ["chá", {"@n": "2", "#text": "café"}], "note": None}}
    assert decode_xml(data) == wanted
    assert Decoder(None).decode(data)[:2] == ("xml", wanted)


def test_entities_of_xml_are_refused_and_html_stays_text() -> None:
    bomb = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><a>&y;</a>'
    with pytest.raises(BadBinary, match="document type"):
        decode_xml(bomb)
    assert Decoder(None).decode(bomb).format == "text"
    assert Decoder(None).decode(b"<script>alert(1)</script>").format == "text"
    assert Decoder(None).decode(b"<a>", "xml").trouble is not None


def test_maps_in_message_pack_and_cbor_are_recognised_and_other_bytes_are_hexadecimal() -> None:
    value = {"id": 7, "city": "Évora"}
    decoder = Decoder(None)
    assert decoder.decode(msgspec.msgpack.encode(value))[:2] == ("msgpack", value)
    assert decoder.decode(_cbor(value))[:2] == ("cbor", value)
    assert decoder.decode(bytes(range(256))).format == "hex"
    assert decoder.decode(b"\x00\x01", "cbor").trouble is not None


# Bytes by the tables of the specification.
SMILES = {
    "fa8061c2fb": {"a": 1},
    "f8c0c1c2c3dfdef9": [0, -1, 1, -2, -16, 15],
    "f82021 2223f9": ["", None, False, True],
    "f8 24 0f81 24 81 f9": [-481, -1],
    "f843 54657374 80c3a9f9": ["Test", "é"],
    "fa8061 c2 8062 fa40 c4 41 c6fbfb": {"a": 1, "b": {"a": 2, "b": 3}},
    "28 03 7c 00 00 00": 1.0,
    "29 00 3f 78 00 00 00 00 00 00 00": 1.0,
    "e0 68656c6c6f fc": "hello",
    "fd 82 fffe": "ff fe",
}  # fmt: skip


@pytest.mark.parametrize("text", SMILES)
def test_smile_is_decoded_as_its_specification_says(text: str) -> None:
    assert decode_smile(b":)\n\x01" + bytes.fromhex(text)) == SMILES[text]


def test_smile_shares_texts_where_its_flags_say_so_and_is_recognised_by_its_header() -> None:
    shared = b":)\n\x03" + bytes.fromhex("f8 41 6162 01 f9 ff")
    assert decode_smile(shared) == ["ab", "ab"]
    assert Decoder(None).decode(shared)[:2] == ("smile", ["ab", "ab"])
    with pytest.raises(BadBinary, match="not shared before"):
        decode_smile(b":)\n\x01" + bytes.fromhex("f8 41 6162 01 f9"))
    assert Decoder(None).decode(b":)\nhave a nice day").format == "text"


def test_seven_bit_encoded_binary_values_of_smile_are_decoded() -> None:
    """0xFFFE is 1111111 1111111 10: two groups of seven, then the two bits that are left."""
    assert decode_smile(b":)\n\x00" + bytes.fromhex("e8 82 7f 7f 02")) == "ff fe"


@given(st.binary(max_size=200))
def test_any_bytes_after_the_header_are_smile_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadBinary):
        msgspec.json.encode(decode_smile(b":)\n\x03" + data))
