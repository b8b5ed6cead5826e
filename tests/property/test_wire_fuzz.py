"""Hostile bytes: a decoder makes a message of any bytes or raises `ProtocolViolation`, within its limits.

There are three attacks: random bytes; mutations of valid messages, which get further into the decoder; and extreme
values at every position of a valid message, so that every length, count and tag in every schema is at some time
negative, huge, an endless varint, or an array of a billion entries.

The bound on memory is a multiple of the frame, because a struct of two bytes becomes a Python object: the worst of
Kafka's schemas costs about 62 bytes of memory per byte (StreamsGroupCurrentMemberAssignmentValue, elements that hold
a list). The bound on time follows from two facts that are tested here: positions only grow, and every element of an
array takes at least one byte.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.wire.codec_compiler import Layout
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.schema import Message, Struct
from tests.support.wire_bombs import amplification, bombs
from tests.support.wire_strategies import message_versions, title
from tests.support.wire_values import random_message

PAIRS = message_versions()
MEMORY_PER_BYTE = 70
# What a decoder costs before the first byte counts: the message object, its error and the traceback.
MEMORY_PER_MESSAGE = 8 * 1024

many = settings(max_examples=max(1500, settings().max_examples))
every_message = pytest.mark.parametrize(("kind", "version"), PAIRS, ids=title)

EXTREMES = (
    b"\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x3b\x9a\xca\x00",  # a billion as int32
    b"\x81\x94\xeb\xdc\x03",  # a billion and one as a varint: an array of a billion
    b"\xff\xff\xff\xff\x0f",  # the largest varint
    b"\xff\xff\xff\xff\x7f",  # more than 32 bits
    b"\xff" * 12,  # a varint that never ends
)


def attack(kind: type[Message], version: int, data: bytes) -> None:
    """Decode the bytes: that must raise ProtocolViolation, or give a message that survives a round trip."""
    try:
        message, pos = kind.decoder(version)(data, 0, len(data))
    except ProtocolViolation:
        return
    assert pos <= len(data)
    encoded = message.encode(version)
    assert kind.decode(encoded, version).encode(version) == encoded


@many
@given(pair=st.sampled_from(PAIRS), data=st.binary(max_size=200))
def test_random_bytes_are_a_message_or_a_violation(pair: tuple[type[Message], int], data: bytes) -> None:
    attack(*pair, data)


mutations = st.lists(
    st.tuples(
        st.sampled_from(("flip", "insert", "delete", "overwrite", "repeat", "cut")),
        st.integers(0, 400),
        st.sampled_from(EXTREMES) | st.binary(min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, what: str, where: int, extra: bytes) -> bytes:
    where %= len(data) + 1
    head, tail = data[:where], data[where:]
    if what == "flip":
        return head + bytes([tail[0] ^ 1 << extra[0] % 8]) + tail[1:] if tail else data
    if what == "insert":
        return head + extra + tail
    if what == "delete":
        return head + tail[len(extra) :]
    if what == "overwrite":
        return head + extra + tail[len(extra) :]
    if what == "repeat":
        return head + tail[:20] * extra[0] + tail
    return head


@many
@given(pair=st.sampled_from(PAIRS), seed=st.integers(0, 1 << 32), changes=mutations)
def test_a_mutated_message_is_a_message_or_a_violation(
    pair: tuple[type[Message], int], seed: int, changes: list[tuple[str, int, bytes]]
) -> None:
    kind, version = pair
    data = random_message(kind, version, Random(seed), unknown_tags=True).encode(version)
    for change in changes:
        data = mutated(data, *change)
    attack(kind, version, data)


@every_message
def test_an_extreme_at_any_position_is_a_message_or_a_violation(kind: type[Message], version: int) -> None:
    # The longest of a few, cut where it gets long: a cut message still holds its first fields.
    data = max((random_message(kind, version, Random(s), unknown_tags=True).encode(version) for s in range(3)), key=len)
    data = data[:200]
    for position in range(len(data)):
        for extreme in EXTREMES:
            attack(kind, version, data[:position] + extreme + data[position + len(extreme) :])


@every_message
def test_a_frame_of_extreme_values_only_is_a_message_or_a_violation(kind: type[Message], version: int) -> None:
    for extreme in (*EXTREMES, b"\x00", b"\x01", b"\x02", b"\x00\x01", b"\x00\x00\x00\x01"):
        for offset in range(8):
            attack(kind, version, bytes(offset) + extreme * 40)


@pytest.mark.parametrize("kind", list(dict.fromkeys(kind for kind, _ in PAIRS)), ids=title)
def test_decoding_takes_memory_within_a_multiple_of_the_frame(kind: type[Message]) -> None:
    # The newest version has the most fields and the shortest lengths. Small frames will do: tracing is slow.
    version = kind.versions.last
    for path, data in bombs(kind, version, frame_bytes=1024):
        allowed = MEMORY_PER_BYTE + MEMORY_PER_MESSAGE / len(data)
        assert amplification(kind, version, data) < allowed, f"version {version}: {path}"


def test_unknown_tagged_fields_take_memory_within_a_multiple_of_the_frame() -> None:
    kind = {kind.__name__: kind for kind, _ in PAIRS}["ApiVersionsRequest"]
    fields = b"".join(bytes([100 + n % 20, 0]) for n in range(2000))
    assert amplification(kind, 3, b"\x01\x01" + b"\xd0\x0f" + fields) < MEMORY_PER_BYTE


@every_message
def test_every_element_of_an_array_takes_a_byte_so_work_is_bounded_by_the_frame(
    kind: type[Message], version: int
) -> None:
    layout = Layout(kind, version)

    def check(struct: type[Struct]) -> None:
        for field in struct.fields:
            if layout.has(field) and field.struct is not None:
                if field.kind == "array":
                    assert layout.smallest(field.struct) > 0, f"{struct.__name__}.{field.name}"
                check(field.struct)

    check(kind)


@every_message
def test_record_data_is_never_tagged_so_that_it_can_pass_through_untouched(kind: type[Message], version: int) -> None:
    layout = Layout(kind, version)

    def check(struct: type[Struct], inside_a_tag: bool) -> None:
        for field in struct.fields:
            if not layout.has(field):
                continue
            tagged = inside_a_tag or layout.is_tagged(field)
            assert not (tagged and field.kind == "records"), f"{struct.__name__}.{field.name}"
            if field.struct is not None:
                check(field.struct, tagged)

    check(kind, inside_a_tag=False)
