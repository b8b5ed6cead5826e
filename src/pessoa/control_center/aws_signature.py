"""Signature Version 4, with which requests to Amazon's services prove who sends them. Pure: the time is an argument.

    canonical request   method, path, query, headers by name, their names, SHA-256 of the body
    text to sign        AWS4-HMAC-SHA256, time, scope (day/region/service/aws4_request), SHA-256 of the above
    key                 HMAC of day, region, service and "aws4_request" in turn, beginning with the secret

Only what a POST without a query needs is here. The test has the vectors that Amazon publishes.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

ALGORITHM = "AWS4-HMAC-SHA256"


class AwsKeys(NamedTuple):
    key_id: str
    secret: str
    # Of temporary credentials.
    token: str = ""

    def __repr__(self) -> str:
        return f"<AwsKeys {self.key_id}>"


def signed_headers(
    keys: AwsKeys, region: str, service: str, at: str, headers: Mapping[str, str], body: bytes, method: str = "POST"
) -> dict[str, str]:
    """Return the headers with X-Amz-Date and Authorization added. `at` is the time in UTC as 20260131T235959Z;
    `headers` must have the Host, and all of them are signed."""
    given = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    given["x-amz-date"] = at
    if keys.token:
        given["x-amz-security-token"] = keys.token
    names = ";".join(sorted(given))
    lines = "".join(f"{name}:{given[name]}\n" for name in sorted(given))
    canonical = f"{method}\n/\n\n{lines}\n{names}\n{sha256(body).hexdigest()}"
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    text = f"{ALGORITHM}\n{at}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in (at[:8], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    given["authorization"] = (
        f"{ALGORITHM} Credential={keys.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return given
