"""The share coordinator as the broker's handlers see it: a request of an API goes in, its response comes out.

A request names many share partitions of one group, and each of them has a shard of its own by its key. So a request is
cut into one for each share partition (`state_messages`), and the response is put together again.
"""

from __future__ import annotations

import asyncio

from pessoa.base.clock import Clock
from pessoa.coordinator.coordinator_log import CoordinatorLog
from pessoa.coordinator.runtime import CoordinatorRuntime, Decide
from pessoa.coordinator.shard import Delta, Image
from pessoa.coordinator.shard_answers import all_of, ask
from pessoa.coordinator.share.share_config import ShareCoordinatorConfig
from pessoa.coordinator.share.share_shard import ShareShard
from pessoa.coordinator.share.share_state import ShareKey
from pessoa.coordinator.share.state_messages import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    R,
    StateApi,
    split,
)
from pessoa.records.compression import Codec
from pessoa.wire.api.delete_share_group_state import DeleteShareGroupStateRequest
from pessoa.wire.api.initialize_share_group_state import InitializeShareGroupStateRequest
from pessoa.wire.api.read_share_group_state import ReadShareGroupStateRequest
from pessoa.wire.api.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from pessoa.wire.api.write_share_group_state import WriteShareGroupStateRequest
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import Answer, Caller
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import SHARE_LOG


class ShareCoordinator:
    def __init__(
        self,
        config: ShareCoordinatorConfig,
        log: CoordinatorLog,
        clock: Clock,
        image: Image,
        codec: Codec = Codec.NONE,
    ) -> None:
        self.runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            SHARE_LOG,
            log,
            lambda _: ShareShard(config),
            clock,
            image,
            config.share_coordinator_write_timeout_ms,
            codec,
        )

    def __repr__(self) -> str:
        return f"<ShareCoordinator: {self.runtime!r}>"

    # ── election, resignation, metadata, shutdown ──

    def elect(self, partition: int, epoch: int) -> asyncio.Task[None] | None:
        """Load a partition of `__share_group_state` that this broker leads in that leader epoch."""
        return self.runtime.elect(partition, epoch)

    def resign(self, partition: int, epoch: int | None = None) -> None:
        self.runtime.resign(partition, epoch)

    def publish(self, image: Image, delta: Delta) -> None:
        self.runtime.publish(image, delta)

    def close(self) -> None:
        self.runtime.close()

    # ── requests ──

    def initialize(self, request: InitializeShareGroupStateRequest, context: Caller) -> Answer[Message]:
        return self._ask_shards(INITIALIZE, ShareShard.initialize, request, context)

    def read(self, request: ReadShareGroupStateRequest, context: Caller) -> Answer[Message]:
        return self._ask_shards(READ, ShareShard.read, request, context)

    def write(self, request: WriteShareGroupStateRequest, context: Caller) -> Answer[Message]:
        return self._ask_shards(WRITE, ShareShard.write, request, context)

    def delete(self, request: DeleteShareGroupStateRequest, context: Caller) -> Answer[Message]:
        return self._ask_shards(DELETE, ShareShard.delete, request, context)

    def summarize(self, request: ReadShareGroupStateSummaryRequest, context: Caller) -> Answer[Message]:
        return self._ask_shards(SUMMARY, ShareShard.summarize, request, context)

    def _ask_shards(
        self, api: StateApi[R], decide: Decide[ShareShard, R], request: R, context: Caller
    ) -> Answer[Message]:
        return all_of([self._ask_shard(api, decide, key, single, context) for key, single in split(request)], api.join)

    def _ask_shard(
        self, api: StateApi[R], decide: Decide[ShareShard, R], key: ShareKey, request: R, context: Caller
    ) -> Answer[Message]:
        if not key.group_id:
            return api.error(key, ErrorCode.INVALID_REQUEST, "The group id must be specified and non-empty.")

        def failed(code: ErrorCode, message: str | None) -> Message:
            return api.error(key, code, message)

        partition = self.runtime.partition_for(str(key))
        return ask(self.runtime, partition, decide, request, context, Message, failed)
