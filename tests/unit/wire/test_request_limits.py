"""Limits of the elements in a request: a frame of a hundred megabytes must not become gigabytes of objects."""

from __future__ import annotations

import struct

import pytest

from pessoa.wire.api.api_versions import ApiVersionsRequest
from pessoa.wire.api.describe_log_dirs import DescribeLogDirsRequest
from pessoa.wire.api.metadata import MetadataRequest
from pessoa.wire.api.offset_fetch import OffsetFetchResponse
from pessoa.wire.api.produce import ProduceRequest
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.message_headers import RequestHeader
from pessoa.wire.primitives import MAX_REQUEST_ITEMS, uvarint
from pessoa.wire.schema import Message

HALF = MAX_REQUEST_ITEMS // 2


def names(count: int) -> bytes:
    """Return a Metadata request of that many topics with empty names."""
    return struct.pack(">i", count) + b"\0\0" * count


def topics_to_produce_to(count: int, partitions: int) -> bytes:
    one = b"\0\0" + struct.pack(">i", partitions) + struct.pack(">ii", 0, -1) * partitions
    return struct.pack(">hhii", -1, 1, 1000, count) + one * count


def partitions_of_topics(count: int, partitions: int) -> bytes:
    one = b"\0\0" + struct.pack(">i", partitions) + bytes(4 * partitions)
    return struct.pack(">i", count) + one * count


def unknown_tags(count: int) -> bytes:
    return uvarint(count) + b"\x63\0" * count


@pytest.mark.parametrize(
    ("kind", "version", "data"),
    [
        pytest.param(MetadataRequest, 0, names(MAX_REQUEST_ITEMS + 1), id="one array"),
        pytest.param(ProduceRequest, 3, topics_to_produce_to(HALF + 1, 1), id="structs in structs"),
        pytest.param(DescribeLogDirsRequest, 1, partitions_of_topics(400, 400), id="numbers in structs"),
        pytest.param(ApiVersionsRequest, 3, b"\x01\x01" + unknown_tags(MAX_REQUEST_ITEMS + 1), id="tagged fields"),
        pytest.param(
            RequestHeader,
            2,
            struct.pack(">hhih", 3, 12, 1, -1) + unknown_tags(MAX_REQUEST_ITEMS + 1),
            id="tagged fields of the header",
        ),
    ],
)
def test_a_request_with_too_many_elements_is_refused_wherever_they_are(
    kind: type[Message], version: int, data: bytes
) -> None:
    with pytest.raises(ProtocolViolation, match="elements"):
        kind.decoder(version)(data, 0, len(data))


def test_a_request_with_exactly_the_allowed_number_of_elements_is_accepted() -> None:
    data = names(MAX_REQUEST_ITEMS)
    found, end = MetadataRequest.decoder(0)(data, 0, len(data))
    assert (len(found.topics), end) == (MAX_REQUEST_ITEMS, len(data))
    data = topics_to_produce_to(HALF, 1)
    produced, _ = ProduceRequest.decoder(3)(data, 0, len(data))
    assert len(produced.topic_data) == HALF


def test_a_response_may_have_more_elements_than_a_request() -> None:
    data = struct.pack(">i", MAX_REQUEST_ITEMS + 1) + (b"\0\0" + struct.pack(">i", 0)) * (MAX_REQUEST_ITEMS + 1)
    found, _ = OffsetFetchResponse.decoder(1)(data, 0, len(data))
    assert len(found.topics) == MAX_REQUEST_ITEMS + 1
