"""Encoding of messages as frames."""

from __future__ import annotations

import pytest

from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse
from pessoa.wire.errors import EncodeError
from pessoa.wire.frames import request_frame, response_frame


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


REQUESTS = [
    # size, api key, version, correlation id, client id, and in flexible versions the header's tagged fields
    (8, "cli", "00000014 0003 0008 00000102 0003 636c69 ffffffff 01 00 00"),
    (9, "cli", "00000013 0003 0009 00000102 0003 636c69 00 00 01 00 00 00"),
    (9, None, "00000010 0003 0009 00000102 ffff 00 00 01 00 00 00"),
]


@pytest.mark.parametrize(("version", "client_id", "expected"), REQUESTS)
def test_a_request_frame_has_the_expected_bytes(version: int, client_id: str | None, expected: str) -> None:
    request = MetadataRequest(topics=None)
    assert b"".join(request_frame(request, version, 258, client_id)) == bytes.fromhex(expected)


def test_a_response_frame_has_the_header_of_its_version() -> None:
    response = MetadataResponse(brokers=[], topics=[])
    for version, header in ((8, b"\x00\x00\x01\x02"), (9, b"\x00\x00\x01\x02\x00")):
        body = header + response.encode(version)
        assert b"".join(response_frame(response, version, 258)) == framed(body)


@pytest.mark.parametrize("version", range(5))
def test_the_response_to_api_versions_never_has_tagged_fields_in_its_header(version: int) -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    body = b"\x00\x00\x01\x02" + response.encode(version)
    assert b"".join(response_frame(response, version, 258)) == framed(body)


def test_the_flexible_request_header_of_api_versions_has_tagged_fields() -> None:
    request = ApiVersionsRequest(client_software_name="p", client_software_version="1")
    assert b"".join(request_frame(request, 3, 1, None)) == framed(
        bytes.fromhex("0012 0003 00000001 ffff 00") + request.encode(3)
    )


def test_record_data_passes_through_a_response_frame_untouched() -> None:
    slices = [memoryview(bytes([n]) * 1000) for n in range(3)]
    partitions = [
        PartitionData(partition_index=n, error_code=0, high_watermark=9, aborted_transactions=None, records=records)
        for n, records in enumerate(slices)
    ]
    response = FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    buffers = response_frame(response, 12, 7)
    assert [buffer for buffer in buffers if isinstance(buffer, memoryview)] == slices
    assert all(any(buffer is piece for buffer in buffers) for piece in slices)
    whole = b"".join(buffers)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert FetchResponse.decode(whole[9:], 12) == response


def test_a_message_that_cannot_be_encoded_raises_before_a_frame_is_made() -> None:
    with pytest.raises(EncodeError):
        request_frame(MetadataRequest(topics=None), 0, 1, None)
    with pytest.raises(EncodeError):
        request_frame(MetadataRequest(topics=None), 99, 1, None)
