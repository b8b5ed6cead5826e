"""Requests to Amazon's services are signed as its published examples are (the suite of Signature Version 4)."""

from __future__ import annotations

import pytest

from pessoa.control_center.aws_signature import AwsKeys, signed_headers

KEYS = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("method", "headers", "body", "names", "signature"),
    [
        ("GET", {}, b"", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", {}, b"", "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "POST",
            FORM,
            b"Param1=value1",
            "content-type;host;x-amz-date",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
    ids=["get-vanilla", "post-vanilla", "post-x-www-form-urlencoded"],
)
def test_aws_signatures_equal_those_of_the_published_test_suite(
    method: str, headers: dict[str, str], body: bytes, names: str, signature: str
) -> None:
    given = {"Host": "example.amazonaws.com", **headers}
    signed = signed_headers(KEYS, "us-east-1", "service", "20150830T123600Z", given, body, method)
    assert signed["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    assert signed["x-amz-date"] == "20150830T123600Z"


def test_the_token_of_temporary_credentials_is_signed() -> None:
    signed = signed_headers(KEYS._replace(token="t0ken"), "us-east-1", "glue", "20150830T123600Z", {"Host": "h"}, b"{}")
    assert signed["x-amz-security-token"] == "t0ken"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token," in signed["authorization"]
    assert "wJalr" not in repr(KEYS)
