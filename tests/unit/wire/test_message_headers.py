"""Request and response headers, byte by byte, and the header version of each message."""

from __future__ import annotations

import pytest

from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.message_headers import (
    RequestHeader,
    ResponseHeader,
    peek_api,
    request_header_version,
    response_header_version,
)


def header(client_id: str | None) -> RequestHeader:
    return RequestHeader(request_api_key=18, request_api_version=3, correlation_id=258, client_id=client_id)


REQUEST_HEADERS = [
    (1, "cli", "0012 0003 00000102 0003636c69"),
    (1, "", "0012 0003 00000102 0000"),
    (1, None, "0012 0003 00000102 ffff"),
    # The client id keeps its classic form; only the tagged fields are new.
    (2, "cli", "0012 0003 00000102 0003636c69 00"),
    (2, None, "0012 0003 00000102 ffff 00"),
]


@pytest.mark.parametrize(("version", "client_id", "encoded"), REQUEST_HEADERS)
def test_a_request_header_has_the_expected_bytes(version: int, client_id: str | None, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert header(client_id).encode(version) == data
    assert RequestHeader.decode(data, version) == header(client_id)


@pytest.mark.parametrize(("version", "encoded"), [(0, "00000102"), (1, "00000102 00")])
def test_a_response_header_has_the_expected_bytes(version: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert ResponseHeader(correlation_id=258).encode(version) == data
    assert ResponseHeader.decode(data, version) == ResponseHeader(correlation_id=258)


def test_tagged_fields_of_a_header_are_kept() -> None:
    data = bytes.fromhex("00000102 01 05 02 abcd")
    read = ResponseHeader.decode(data, 1)
    assert read.unknown_tagged_fields == ((5, b"\xab\xcd"),)
    assert read.encode(1) == data


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.title)
def test_a_flexible_version_has_the_newer_headers_except_the_response_to_api_versions(key: ApiKey) -> None:
    request = key.request
    for version in request.versions.each():
        flexible = version in request.flexible
        assert request_header_version(request, version) == (2 if flexible else 1)
        expected = 0 if key is ApiKey.API_VERSIONS else int(flexible)
        assert response_header_version(request, version) == expected
        assert response_header_version(key.response, version) == expected


def test_api_version_and_correlation_id_can_be_read_from_the_first_eight_bytes_of_a_request() -> None:
    data = b"\xff" + bytes.fromhex("0012 7fff fffffffe") + b"anything"
    assert peek_api(data, 1, len(data)) == (18, 0x7FFF, -2)


@pytest.mark.parametrize("size", range(8))
def test_a_request_of_fewer_than_eight_bytes_has_no_header(size: int) -> None:
    with pytest.raises(ProtocolViolation, match=f"{size} bytes"):
        peek_api(bytes(20), 2, 2 + size)
