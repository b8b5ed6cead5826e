"""ApiVersions: the first request of every client. Which APIs does this node speak, in which versions?

    v3   the client names its software; the response has tagged fields, but keeps response header v0
    v4   a fix in how feature ranges that start at 0 are reported

A version that we do not speak is answered with UNSUPPORTED_VERSION in a v0 body that carries our range for
ApiVersions, so that a newer client can ask again in a version that both know (KIP-511).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.dispatch import TABLE, advertised
from pessoa.wire.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.versions import Versions

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext


def handle(broker: object, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[_entry(key, versions) for key, versions in advertised()],
        throttle_time_ms=0,
    )


def respond_unsupported() -> ApiVersionsResponse:
    """To be sent as version 0."""
    own = next(row.advertised for row in TABLE if row.key is ApiKey.API_VERSIONS)
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(ApiKey.API_VERSIONS, own)], throttle_time_ms=0
    )


def _entry(key: ApiKey, versions: Versions) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
