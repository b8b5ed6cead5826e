"""Coordinators without a broker, and requests to them as a broker's handlers hand them over: by API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pessoa.base.clock import Clock
from pessoa.base.entropy import SystemEntropy, new_uuid
from pessoa.broker.api_table import row_of
from pessoa.coordinator.coordinator_log import CoordinatorLog
from pessoa.coordinator.group_coordinator import FeatureLevels, GroupConfigs, GroupCoordinator
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.coordinator.groups.share.share_group_config import DEFAULT_SHARE_CONFIG
from pessoa.coordinator.groups.streams.streams_group_config import DEFAULT_STREAMS_CONFIG
from pessoa.coordinator.groups.streams.topology_configuration import InternalTopic
from pessoa.coordinator.runtime import WRITE_TIMEOUT_MS
from pessoa.coordinator.shard import Image
from pessoa.coordinator.share.state_messages import StateApi
from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from pessoa.records.compression import Codec
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Answer, Caller
from pessoa.wire.schema import Message


def submit(coordinator: GroupCoordinator | TransactionCoordinator, request: Message, caller: Caller) -> Answer[Message]:
    handle: Any = row_of(request.api_key).handle
    services = SimpleNamespace(groups=coordinator, transactions=coordinator, authorizer=None)
    answer: Answer[Message] = handle(services, caller, request)
    return answer


def group_coordinator(
    config: GroupCoordinatorConfig, log: CoordinatorLog, clock: Clock, image: Image
) -> GroupCoordinator:
    """Return a group coordinator without share coordinators, leaders and controller: for tests of other groups."""
    return GroupCoordinator(
        GroupConfigs(config, DEFAULT_SHARE_CONFIG, DEFAULT_STREAMS_CONFIG),
        log,
        clock,
        image,
        new_uuid=lambda: new_uuid(SystemEntropy()),
        write_timeout_ms=WRITE_TIMEOUT_MS,
        codec=Codec.NONE,
        levels=FeatureLevels(groups=lambda: 1, share=lambda: 0, streams=lambda: 0),
        may_describe=lambda _member, _topic: True,
        persister=NoPersister(),
        latest_offsets=no_latest_offsets,
        create_topics=create_nothing,
    )


class NoPersister:
    """The share state persister of a group coordinator that has no share coordinators."""

    async def ask(self, api: StateApi[Any], request: Any) -> Message:
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def no_latest_offsets(_partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
    return {}


async def create_nothing(topics: Sequence[InternalTopic], _caller: Caller) -> Mapping[str, str]:
    """Create no internal topics: there is no controller."""
    return {topic.name: "there is no controller" for topic in topics}
