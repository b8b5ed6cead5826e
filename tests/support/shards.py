"""Requests to the shards of coordinators, called as their coordinator calls them."""

from __future__ import annotations

from typing import Any

from pessoa.coordinator.groups.group_shard import GroupShard
from pessoa.coordinator.groups.share.share_initialisation import SharesInitialised
from pessoa.coordinator.groups.share.share_offsets import SharesDeleted
from pessoa.coordinator.shard import Output
from pessoa.coordinator.transactions.marker_messages import MarkersWritten
from pessoa.coordinator.transactions.transaction_shard import TransactionShard
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from pessoa.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pessoa.wire.api.delete_groups import DeleteGroupsRequest
from pessoa.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from pessoa.wire.api.describe_groups import DescribeGroupsRequest
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest
from pessoa.wire.api.end_txn import EndTxnRequest
from pessoa.wire.api.heartbeat import HeartbeatRequest
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.join_group import JoinGroupRequest
from pessoa.wire.api.leave_group import LeaveGroupRequest
from pessoa.wire.api.list_groups import ListGroupsRequest
from pessoa.wire.api.list_transactions import ListTransactionsRequest
from pessoa.wire.api.offset_commit import OffsetCommitRequest
from pessoa.wire.api.offset_delete import OffsetDeleteRequest
from pessoa.wire.api.offset_fetch import OffsetFetchRequest
from pessoa.wire.api.share_group_describe import ShareGroupDescribeRequest
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeRequest
from pessoa.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from pessoa.wire.api.sync_group import SyncGroupRequest
from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from pessoa.wire.errors import Refusal
from pessoa.wire.request_context import Caller
from pessoa.wire.schema import Message

_METHODS: dict[type[Message], Any] = {
    AddOffsetsToTxnRequest: TransactionShard.add_offsets,
    AddPartitionsToTxnRequest: TransactionShard.add_or_verify_partitions,
    ConsumerGroupDescribeRequest: GroupShard.describe_consumer,
    ConsumerGroupHeartbeatRequest: GroupShard.consumer_heartbeat,
    DeleteGroupsRequest: GroupShard.delete_groups,
    DescribeGroupsRequest: GroupShard.describe_classic,
    DescribeTransactionsRequest: TransactionShard.describe,
    EndTxnRequest: TransactionShard.end,
    HeartbeatRequest: GroupShard.heartbeat,
    InitProducerIdRequest: TransactionShard.begin_producer,
    JoinGroupRequest: GroupShard.join,
    LeaveGroupRequest: GroupShard.leave,
    ListGroupsRequest: GroupShard.list_groups,
    ListTransactionsRequest: TransactionShard.list_transactions,
    MarkersWritten: TransactionShard.note_markers_written,
    OffsetCommitRequest: GroupShard.commit_offsets,
    OffsetDeleteRequest: GroupShard.delete_offsets,
    OffsetFetchRequest: GroupShard.fetch_offsets,
    StreamsGroupDescribeRequest: GroupShard.describe_streams,
    StreamsGroupHeartbeatRequest: GroupShard.streams_heartbeat,
    AlterShareGroupOffsetsRequest: GroupShard.plan_share_alteration,
    DeleteShareGroupOffsetsRequest: GroupShard.plan_share_offset_deletion,
    ShareGroupDescribeRequest: GroupShard.describe_share,
    SharesDeleted: GroupShard.note_shares_deleted,
    ShareGroupHeartbeatRequest: GroupShard.share_heartbeat,
    SharesInitialised: GroupShard.note_shares_initialised,
    SyncGroupRequest: GroupShard.sync,
    TxnOffsetCommitRequest: GroupShard.commit_offsets_in_transaction,
}


def decide(shard: GroupShard | TransactionShard, request: Message, caller: Caller, token: int, now_ms: int) -> Output:
    """Return the decision of the shard; a refusal becomes a reply, as in the runtime."""
    try:
        output: Output = _METHODS[type(request)](shard, request, caller, token, now_ms)
    except Refusal as refusal:
        return Output.reply(token, refusal)
    return output
