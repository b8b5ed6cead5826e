"""Round trips of every message in every version, at any position of a buffer and in any chunks.

Each test takes one message and one version, so a failure names them. The examples per pair are few, since there are
some seven hundred pairs; `make fuzz` runs many more.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.schema import Decoder, Message
from tests.support.frame_reader import FrameReader
from tests.support.wire_strategies import message_versions, messages, title

PAIRS = message_versions()
EXAMPLES = max(4, settings().max_examples // 100)

every_message = pytest.mark.parametrize(("kind", "version"), PAIRS, ids=title)
few = settings(max_examples=EXAMPLES)


def test_the_catalogue_has_as_many_messages_and_versions_as_kafka_declares() -> None:
    assert len({kind for kind, _ in PAIRS}) == 272
    assert len(PAIRS) == 728


@every_message
@few
@given(data=st.data())
def test_a_message_survives_a_round_trip_with_and_without_unknown_tagged_fields(
    kind: type[Message], version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(kind, version, unknown_tags=True))
    encoded = message.encode(version)
    again = kind.decode(encoded, version)
    assert again == message
    assert again.encode(version) == encoded


@every_message
@few
@given(data=st.data())
def test_two_messages_decoded_back_to_back_do_not_affect_each_other(
    kind: type[Message], version: int, data: st.DataObject
) -> None:
    first, second = data.draw(messages(kind, version)), data.draw(messages(kind, version, unknown_tags=True))
    one, two = first.encode(version), second.encode(version)
    both = b"before" + one + two + b"behind"
    decode = kind.decoder(version)
    read, pos = decode(both, len(b"before"), len(b"before") + len(one))
    assert (read, pos) == (first, len(b"before") + len(one))
    read, pos = decode(both, pos, pos + len(two))
    assert (read, pos) == (second, len(both) - len(b"behind"))
    # An encoder appends to what is there and leaves it alone.
    assert b"".join(kind.encoder(version)(second, bytearray(one))) == one + two


@every_message
@few
@given(data=st.data())
def test_a_message_that_arrives_byte_by_byte_is_decoded_at_its_last_byte(
    kind: type[Message], version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(kind, version))
    encoded = message.encode(version)
    stream = len(encoded).to_bytes(4, "big") + encoded
    reader = FrameReader()
    for position in range(len(stream) - 1):
        reader.feed(stream[position : position + 1])
        assert reader.next_frame() is None
    reader.feed(stream[-1:])
    frame = reader.next_frame()
    assert frame is not None
    assert kind.decode(frame, version) == message
    assert reader.next_frame() is None


@every_message
@few
@given(data=st.data())
def test_every_truncation_of_a_message_is_a_violation(kind: type[Message], version: int, data: st.DataObject) -> None:
    encoded = data.draw(messages(kind, version, unknown_tags=True)).encode(version)
    decode = kind.decoder(version)
    for cut in range(len(encoded)):
        assert refuses(decode, encoded[:cut], cut), cut
        # The rest lies behind the end, as in a receive buffer: it must not count.
        assert refuses(decode, encoded, cut), cut


def refuses(decode: Decoder, data: bytes, end: int) -> bool:
    try:
        decode(data, 0, end)
    except ProtocolViolation:
        return True
    return False
