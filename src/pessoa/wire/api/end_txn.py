"""Commits or aborts a transaction. From version 5 it also bumps the producer epoch (KIP-890)."""

from __future__ import annotations

from pessoa.wire.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, versions="0-5", flexible="3+", api_key=26):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, versions="0-5", flexible="3+", api_key=26):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
