"""A transactional producer announces that the transaction will commit offsets of a consumer group."""

from __future__ import annotations

from pessoa.wire.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, versions="0-4", flexible="3+", api_key=25):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, versions="0-4", flexible="3+", api_key=25):
    throttle_time_ms: int = int32()
    error_code: int = int16()
