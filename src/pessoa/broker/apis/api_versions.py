"""ApiVersions: the first request of every client. Which APIs does this node speak, in which versions?

    v3   the client names its software; the response has tagged fields, but keeps response header v0
    v4   a feature whose lowest level is 0 is listed: clients of version 3 would choke on the 0, and do not hear of it

A version that we do not speak is answered with UNSUPPORTED_VERSION in a v0 body that carries our range for ApiVersions,
so that a newer client can ask again in a version that both know (KIP-511). A name or version of the client's software
that could not stand in the name of a metric is INVALID_REQUEST.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pessoa.broker.api_row import AnyRow, ApiRow
from pessoa.broker.api_table import broker_rows, controller_rows
from pessoa.metadata.supported_features import FEATURES
from pessoa.metadata.table_images import KRAFT_VERSION
from pessoa.wire.api.api_versions import (
    FIRST_API_VERSIONS_WITH_SOFTWARE,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.broker.controller_services import ControllerServices
    from pessoa.broker.services import BrokerServices
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.table_images import FeaturesImage
    from pessoa.wire.request_context import RequestContext

_FIRST_VERSION_WITH_LEVEL_0 = 4
# Whether this may be the name or the version of a client's software.
is_software = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?").fullmatch


def handle(broker: BrokerServices, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    offered = (row for row in broker_rows() if row.is_offered is None or row.is_offered(broker))
    return _respond(offered, broker.image, context, request)


def handle_on_controller(
    node: ControllerServices, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    return _respond(controller_rows(), node.image, context, request)


def _respond(
    rows: Iterable[AnyRow], image: MetadataImage, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    if context.version >= FIRST_API_VERSIONS_WITH_SOFTWARE and not (
        is_software(request.client_software_name) and is_software(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[], throttle_time_ms=0)
    least = 0 if context.version >= _FIRST_VERSION_WITH_LEVEL_0 else 1
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[_entry(row.key, row.advertised) for row in rows],
        throttle_time_ms=0,
        supported_features=[
            SupportedFeatureKey(name=one.name, min_version=one.min_level, max_version=one.max_level)
            for one in FEATURES
            if one.min_level >= least
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _finalized_levels(image.features).items()
        ],
    )


def _finalized_levels(features: FeaturesImage) -> dict[str, int]:
    """Return the finalised levels by feature name. kraft.version belongs to the quorum, not to the metadata, and is
    left out at level 0."""
    levels = dict(features.finalized)
    if features.kraft_version > 0:
        levels[KRAFT_VERSION] = features.kraft_version
    return levels


def respond_unsupported() -> ApiVersionsResponse:
    """Return the response to a version that is not supported, to be encoded as version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(ROW.key, ROW.advertised)], throttle_time_ms=0
    )


def _entry(key: ApiKey, versions: Versions) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)


ROW = ApiRow(
    ApiKey.API_VERSIONS,
    "0-4",
    handle=handle,
    handle_on_controller=handle_on_controller,
    is_served_before_login=True,
)
