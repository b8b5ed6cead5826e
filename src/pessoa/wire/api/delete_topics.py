"""Deletes topics, by name or by id."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string(default=None, nullable=ALL)
    topic_id: Uuid = uuid()


class DeleteTopicsRequest(Message, versions="1-6", flexible="4+", api_key=20):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default=())
    topic_names: list[str] = array("string", "0-5", default=(), ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid("6+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", default=None, nullable=ALL, ignorable=True)


class DeleteTopicsResponse(Message, versions="1-6", flexible="4+", api_key=20):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
