"""Versions of a message: added and removed fields, tags, defaults, and values that must not be dropped silently."""

from __future__ import annotations

from typing import Any

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.errors import EncodeError, ProtocolViolation, UnsupportedFieldError
from pessoa.wire.schema import (
    ALL,
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class Leader(Struct):
    id: int = int8(default=-1)
    epoch: int = int8(default=-1)


class Part(Struct):
    index: int = int8()
    note: str | None = string("2+", default=None, nullable="2+", ignorable=True)


class Evolving(Message, versions="0-3", flexible="2+"):
    """A message whose version 1 adds fields, 2 is flexible and has tagged fields, 3 drops `old`."""

    old: int = int8("0-2", default=7)
    name: str | None = string(nullable="1+")
    parts: list[Part] = array(Part)
    limit: int = int16("1+", default=100)
    hint: str = string("1+", default="none", ignorable=True)
    leader: Leader | None = struct(Leader, "2+", default=None, tag=3)
    rack: str | None = string("2+", default=None, nullable="2+", tag=0)
    hosts: list[str] = array("string", "2+", default=(), tag=1)
    topic_id: Uuid = uuid("2+", default=ZERO_UUID, tag=2, ignorable=True)


def evolving(**values: Any) -> Evolving:
    return Evolving(**{"name": "n", "parts": [], **values})


def test_a_version_has_only_its_own_fields() -> None:
    message = evolving(parts=[Part(index=5)])
    assert message.encode(0).hex(" ") == "07 00 01 6e 00 00 00 01 05"
    assert message.encode(1).hex(" ") == "07 00 01 6e 00 00 00 01 05 00 64 00 04 6e 6f 6e 65"
    assert message.encode(2).hex(" ") == "07 02 6e 02 05 00 00 00 64 05 6e 6f 6e 65 00"
    assert message.encode(3).hex(" ") == "02 6e 02 05 00 00 00 64 05 6e 6f 6e 65 00"


def test_fields_that_a_version_lacks_have_their_default_after_decoding() -> None:
    assert Evolving.decode(bytes.fromhex("09 0001 6e 00000001 05"), 0) == evolving(old=9, parts=[Part(index=5)])
    assert Evolving.decode(bytes.fromhex("02 6e 01 0064 05 6e6f6e65 00"), 3) == evolving(old=7)


def test_default_lists_are_not_shared() -> None:
    one, two = evolving(), evolving()
    one.hosts.append("a")
    assert two.hosts == []
    read = [Evolving.decode(evolving().encode(0), 0) for _ in range(2)]
    read[0].hosts.append("a")
    assert read[1].hosts == []


UNSUPPORTED: list[tuple[int, dict[str, Any]]] = [
    (0, {"limit": 101}),
    (1, {"rack": "r"}),
    (1, {"rack": ""}),
    (1, {"hosts": ["h"]}),
    (1, {"leader": Leader(id=1)}),
    (3, {"old": 8}),
]


@pytest.mark.parametrize(("version", "values"), UNSUPPORTED)
def test_a_field_that_is_set_and_that_the_version_lacks_is_refused(version: int, values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(UnsupportedFieldError, match=f"Evolving v{version} has no field {name}, and it is set"):
        evolving(**values).encode(version)


def test_an_ignorable_field_that_the_version_lacks_is_omitted() -> None:
    plain = evolving(parts=[Part(index=5)])
    busy = evolving(parts=[Part(index=5, note="x")], hint="look", topic_id=Uuid.of(9))
    assert busy.encode(0) == plain.encode(0)


def test_a_struct_that_equals_its_default_counts_as_not_set_where_the_version_lacks_it() -> None:
    assert evolving(leader=Leader()).encode(1) == evolving().encode(1)


def test_a_null_is_refused_in_a_version_that_does_not_allow_it() -> None:
    message = evolving(name=None)
    assert message.encode(1).hex(" ").startswith("07 ff ff")
    assert Evolving.decode(message.encode(1), 1) == message
    with pytest.raises(EncodeError, match="Evolving v0"):
        message.encode(0)
    with pytest.raises(ProtocolViolation, match="null"):
        Evolving.decode(bytes.fromhex("07 ffff 00000000"), 0)


# After the body of version 3 with defaults come the tagged fields.
BODY = "02 6e 01 00 64 05 6e 6f 6e 65"

TAGGED: list[tuple[dict[str, Any], str]] = [
    ({}, "00"),
    ({"rack": "r"}, "01 00 02 02 72"),
    ({"rack": ""}, "01 00 01 01"),
    ({"hosts": ["a", "b"]}, "01 01 05 03 02 61 02 62"),
    ({"topic_id": Uuid.of(1)}, "01 02 10" + " 00" * 15 + " 01"),
    ({"leader": Leader(id=1, epoch=2)}, "01 03 03 01 02 00"),
    # Written in the order of their tags, not in that of their declaration.
    ({"leader": Leader(id=1), "rack": "r"}, "02 00 02 02 72 03 03 01 ff 00"),
    # A body of 128 bytes and more has a size of two bytes.
    ({"rack": "x" * 127}, "01 00 81 01 80 01" + " 78" * 127),
]


@pytest.mark.parametrize(("values", "tags"), TAGGED)
def test_tagged_fields_have_the_expected_bytes(values: dict[str, Any], tags: str) -> None:
    message, data = evolving(**values), bytes.fromhex(BODY + tags)
    assert message.encode(3) == data
    assert Evolving.decode(data, 3) == message


DEFAULTS: list[dict[str, Any]] = [
    {"rack": None},
    {"hosts": []},
    {"hosts": ()},
    {"topic_id": ZERO_UUID},
    {"leader": None},
    {"leader": Leader()},
]


@pytest.mark.parametrize("values", DEFAULTS, ids=str)
def test_a_tagged_field_that_has_its_default_is_not_written(values: dict[str, Any]) -> None:
    assert evolving(**values).encode(3) == bytes.fromhex(BODY + "00")


def test_a_tagged_field_with_its_default_value_on_the_wire_is_decoded() -> None:
    data = bytes.fromhex(BODY + "02 00 01 00 03 03 ff ff 00")
    read = Evolving.decode(data, 3)
    assert read == evolving(leader=Leader())
    assert read.encode(3) == bytes.fromhex(BODY + "00")


def test_unknown_tagged_fields_are_kept_and_written_back_among_the_known() -> None:
    data = bytes.fromhex(BODY + "04 00 02 02 72 03 03 01 02 00 07 02 ab cd ac 02 00")
    read = Evolving.decode(data, 3)
    assert read.unknown_tagged_fields == ((7, b"\xab\xcd"), (300, b""))
    assert (read.rack, read.leader) == ("r", Leader(id=1, epoch=2))
    assert read.encode(3) == data


def test_unknown_tagged_fields_are_kept_inside_structs() -> None:
    data = bytes.fromhex("02 6e 02 05 00 01 09 01 ff 00 64 05 6e 6f 6e 65 00")
    read = Evolving.decode(data, 3)
    assert read.parts[0].unknown_tagged_fields == ((9, b"\xff"),)
    assert read.encode(3) == data


def test_many_unknown_tagged_fields_need_a_count_of_two_bytes() -> None:
    message = evolving()
    message.unknown_tagged_fields = tuple((tag, b"") for tag in range(10, 140))
    data = message.encode(3)
    assert data[len(bytes.fromhex(BODY)) :][:2].hex(" ") == "82 01"
    assert Evolving.decode(data, 3) == message


def test_a_classic_version_drops_unknown_tagged_fields_because_it_has_no_place_for_them() -> None:
    message = evolving()
    message.unknown_tagged_fields = ((9, b"x"),)
    assert message.encode(1) == evolving().encode(1)


HOSTILE_TAGS: list[tuple[str, str]] = [
    ("05", "claims more tagged fields than there are bytes"),
    ("ff ff ff ff 0f", "claims more tagged fields than there are bytes"),
    ("01 09 05 00", "has a tagged field past its end"),
    ("01 09 ff ff ff ff 0f", "claims more|past its end"),
    ("01 00 03 02 72 00", "has a rack of another size than its tag says"),
    ("01 00 01 02 72", "has a rack of another size than its tag says"),
    ("01 03 02 01 02 00", "has a leader of another size than its tag says"),
    # The second field's size overlaps what follows the section.
    ("02 09 01 00 0a 07 00", "past its end"),
    ("01 ff ff ff ff ff 00 00", "varint"),
]


@pytest.mark.parametrize(("tags", "message"), HOSTILE_TAGS)
def test_tagged_fields_with_a_wrong_size_are_a_violation(tags: str, message: str) -> None:
    with pytest.raises(ProtocolViolation, match=message):
        Evolving.decode(bytes.fromhex(BODY + tags), 3)


class Fused(Message, versions="0", flexible="0+"):
    """A message with fixed-size fields that are read and written in one call, with a length or a count of tags at the
    end."""

    a: int = int64()
    b: bool = boolean()
    c: Uuid = uuid()
    d: int = int32()
    text: str | None = string(nullable=ALL)
    e: int = int16()
    numbers: list[int] = array("int32")
    f: int = int8()


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 20_000])
@pytest.mark.parametrize("count", [0, 1, 126, 127, 16_383])
@pytest.mark.parametrize("tags", [0, 1, 130])
def test_a_run_of_fixed_fields_before_a_length_of_any_size_is_encoded_correctly(
    size: int, count: int, tags: int
) -> None:
    message = Fused(a=-2, b=True, c=Uuid.of(5), d=3, text="x" * size, e=-4, numbers=list(range(count)), f=-128)
    message.unknown_tagged_fields = tuple((tag, b"t") for tag in range(tags))
    expected = b"\xff" * 7 + b"\xfe" + b"\x01" + (5).to_bytes(16, "big") + (3).to_bytes(4, "big")
    expected += varint(size + 1) + b"x" * size + b"\xff\xfc"
    expected += varint(count + 1) + b"".join(number.to_bytes(4, "big") for number in range(count)) + b"\x80"
    expected += varint(tags) + b"".join(varint(tag) + b"\x01t" for tag in range(tags))
    assert message.encode(0) == expected
    assert Fused.decode(expected, 0) == message


class Arrays(Message, versions="0-1", flexible="1+"):
    """A message with neighbouring arrays of integers, which are written in one call while they are short."""

    id: int = int8()
    replicas: list[int] = array("int32")
    isr: list[int] | None = array("int16", nullable=ALL)
    epoch: int = int8()
    offline: list[int] = array("int8")
    rack: str = string()


@pytest.mark.parametrize("replicas", [0, 3, 126, 127, 300])
@pytest.mark.parametrize("isr", [None, 0, 31, 127])
@pytest.mark.parametrize("offline", [0, 2, 128])
@pytest.mark.parametrize("rack", [0, 127])
def test_adjacent_arrays_of_any_lengths_are_encoded_correctly(
    replicas: int, isr: int | None, offline: int, rack: int
) -> None:
    message = Arrays(
        id=1,
        replicas=[-5] * replicas,
        isr=None if isr is None else [6] * isr,
        epoch=2,
        offline=[7] * offline,
        rack="r" * rack,
    )
    length = -1 if isr is None else isr
    items = [b"\xff\xff\xff\xfb" * replicas, b"\x00\x06" * (isr or 0), b"\x07" * offline, b"r" * rack]
    classic = b"\x01" + replicas.to_bytes(4, "big") + items[0] + length.to_bytes(4, "big", signed=True) + items[1]
    classic += b"\x02" + offline.to_bytes(4, "big") + items[2] + rack.to_bytes(2, "big") + items[3]
    compact = b"\x01" + varint(replicas + 1) + items[0] + varint(length + 1) + items[1]
    compact += b"\x02" + varint(offline + 1) + items[2] + varint(rack + 1) + items[3] + b"\x00"
    for version, expected in enumerate((classic, compact)):
        assert message.encode(version) == expected
        assert Arrays.decode(expected, version) == message


def varint(number: int) -> bytes:
    """Return a varint: a second implementation, for numbers of up to 21 bits."""
    if number < 1 << 7:
        return bytes([number])
    if number < 1 << 14:
        return bytes([number & 127 | 128, number >> 7])
    return bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])


def test_a_field_without_a_default_must_be_given_and_an_unknown_one_may_not() -> None:
    with pytest.raises(TypeError, match="parts"):
        Evolving(name="n")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nonsense"):
        evolving(nonsense=1)


def test_messages_compare_by_value_and_type_and_are_not_hashable() -> None:
    assert evolving() == evolving()
    assert evolving() != evolving(limit=1)
    assert Leader() != Part(index=-1)
    other = evolving()
    other.unknown_tagged_fields = ((9, b""),)
    assert evolving() != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(evolving())


def test_repr_of_a_message_shows_its_fields() -> None:
    assert repr(Leader(id=3)) == "Leader(id=3, epoch=-1)"


def test_a_field_that_some_version_lacks_must_have_a_default() -> None:
    class Careless(Message, versions="0-1", flexible="none"):
        late: int = int8("1+")

    assert Careless(late=1).encode(1) == b"\x01"
    with pytest.raises(AssertionError, match="late is absent and has no default"):
        Careless.decoder(0)


def test_a_codec_is_compiled_once() -> None:
    assert Evolving.decoder(2) is Evolving.decoder(2)
    assert Evolving.encoder(2) is Evolving.encoder(2)
    assert Evolving.encoder(2) is not Evolving.encoder(3)
