"""Envelopes with forwarded requests, in the format that Apache's controllers also read."""

from __future__ import annotations

import pytest

from pessoa.broker.envelope_format import open_response, parse_principal, render_address, render_principal, seal
from pessoa.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import SIZE_BYTES, response_frame
from pessoa.wire.message_headers import RequestHeader, peek_api
from pessoa.wire.request_context import ANONYMOUS


def test_an_envelope_contains_the_request_with_its_own_header() -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
    envelope = seal(request, 4, "client", "User:alice", "10.0.0.7")
    data = envelope.request_data
    assert peek_api(data, 0, len(data))[:2] == (20, 4)
    header, pos = RequestHeader.decoder(2)(data, 0, len(data))
    assert header.client_id == "client"
    assert DeleteTopicsRequest.decode(data[pos:], 4) == request
    assert envelope.client_host_address == bytes((10, 0, 0, 7))


def test_an_envelope_principal_is_encoded_as_a_version_and_two_strings() -> None:
    rendered = render_principal("User:alice")
    # Version 0, "User" and "alice" in compact form, no token, no tagged fields.
    assert rendered == b"\x00\x00" + b"\x05User" + b"\x06alice" + b"\x00" + b"\x00"
    assert parse_principal(rendered) == "User:alice"
    assert parse_principal(None) == ANONYMOUS


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x09junk", b"\x00\x00\x05Us"])
def test_an_envelope_principal_of_an_unknown_version_is_a_protocol_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        parse_principal(data)


def test_an_envelope_address_has_four_or_sixteen_bytes() -> None:
    assert render_address(bytes((127, 0, 0, 1))) == "127.0.0.1"
    assert render_address(bytes(15) + b"\x01") == "::1"
    with pytest.raises(ProtocolViolation):
        render_address(b"abc")


def test_an_envelope_response_decodes_to_the_original_response() -> None:
    response = DeleteTopicsResponse(throttle_time_ms=0, responses=[DeletableTopicResult(name="t", error_code=3)])
    data = b"".join(response_frame(response, 4, 7))[SIZE_BYTES:]
    assert open_response(DeleteTopicsRequest(timeout_ms=1), 4, data) == response
