"""Which APIs and versions a node speaks, and the cluster's features. The first request of every client."""

from __future__ import annotations

from pessoa.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string

FIRST_API_VERSIONS_WITH_SOFTWARE = 3


class ApiVersionsRequest(Message, versions="0-4", flexible="3+", api_key=18):
    client_software_name: str = string("3+", default="", ignorable=True)
    client_software_version: str = string("3+", default="", ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, versions="0-4", flexible="3+", api_key=18):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", default=(), tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", default=(), tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", default=False, tag=3, ignorable=True)
