"""Raises or lowers the finalised levels of features (KIP-584)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0", default=False)
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, versions="0-2", flexible="0+", api_key=57):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)


class UpdateFeaturesResponse(Message, versions="0-2", flexible="0+", api_key=57):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", default=(), ignorable=True)
