"""Gives a producer its id and epoch, and fences older ones with the same transactional id."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, versions="0-6", flexible="2+", api_key=22):
    transactional_id: str | None = string(nullable=ALL)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+", default=False)
    keep_prepared_txn: bool = boolean("6+", default=False)


class InitProducerIdResponse(Message, versions="0-6", flexible="2+", api_key=22):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
