"""The part of the session about transactions, of a producer with transactions version 2 (KIP-890) and of an older one.

The script waits until a commit or abort is complete, so that CONCURRENT_TRANSACTIONS never depends on timing.
"""

from __future__ import annotations

from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest
from pessoa.wire.api.end_txn import EndTxnRequest
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.list_transactions import ListTransactionsRequest
from pessoa.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differential.session_data import READ_COMMITTED, fetch, offsets, produce, producers
from tests.differential.session_groups import committed, ready
from tests.differential.session_stage import Player, neighbour
from tests.support.batches import transactional

NAME, GROUP = "payer", "payers"
UNUSED = neighbour(NAME)
INIT, OLD_ADD, OLD_END, END = 5, 3, 4, 5
PRODUCE, FETCH = 12, 12


def init(name: str | None, timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1)) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )


def add(producer: tuple[int, int], topic: str, *partitions: int) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


def end(producer: tuple[int, int], *, commits: bool, name: str = NAME) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commits)


def wait_for_the_end(player: Player, node: int) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[NAME])
    player.wait_for(
        "the end of a transaction",
        lambda: not player.look(request, to=node).transaction_states[0].transaction_state.startswith("Prepare"),
    )


def transaction_steps(player: Player) -> None:
    node, group_node, leader = player.coordinator(NAME, 1), ready(player, GROUP), player.leader("paid")
    player.wait_for(
        "producer ids", lambda: player.look(init("first"), INIT, to=player.coordinator("first", 1)).error_code == 0
    )
    got = player.until("a transactional producer", lambda answer: answer.error_code == 0, init(NAME), INIT, to=node)
    old = (got.producer_id, got.producer_epoch)
    player.ask("a long time", init(NAME, 1 << 30), INIT, to=node)
    player.ask("no name", init(""), INIT, to=node)
    describe = DescribeTransactionsRequest(transactional_ids=[NAME, UNUSED])
    player.ask("nothing begun", describe, to=node)
    player.ask("partitions", add(old, "paid", 0), OLD_ADD, to=node)
    player.ask("partitions, some unknown", add(old, "paid", 1, 77), OLD_ADD, to=node)
    player.ask("a wrong epoch", add((old[0], 9), "paid", 0), OLD_ADD, to=node)
    player.ask("a wrong producer", add((old[0] + 77, 0), "paid", 0), OLD_ADD, to=node)
    data = produce("paid", transactional(old[0], 0, 2, producer_epoch=old[1]), transactional_id=NAME)
    player.ask("in a transaction", data, 11, to=leader)
    player.ask("begun", describe, to=node)
    player.ask("an open transaction", producers("paid", 0), to=leader)
    player.ask("open, committed alone", fetch("paid", 0, isolation_level=READ_COMMITTED), FETCH, to=leader)
    player.ask("open, everything", fetch("paid", 0), FETCH, to=leader)
    player.ask("the last stable offset", offsets("paid", (0, -1), isolation=READ_COMMITTED), to=leader)
    adding = AddOffsetsToTxnRequest(transactional_id=NAME, producer_id=old[0], producer_epoch=old[1], group_id=GROUP)
    player.ask("a group", adding, 3, to=node)
    wanted = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    sending = TxnOffsetCommitRequest(
        transactional_id=NAME,
        group_id=GROUP,
        producer_id=old[0],
        producer_epoch=old[1],
        topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[wanted])],
    )
    player.ask("offsets of a transaction", sending, 3, to=group_node)
    player.ask("not committed", committed(GROUP, 0), 9, to=group_node)
    player.ask("a wrong epoch", end((old[0], 9), commits=True), OLD_END, to=node)
    player.ask("an unknown transactional id", end(old, commits=True, name=UNUSED), OLD_END, to=node)
    player.ask("commit", end(old, commits=True), OLD_END, to=node)
    wait_for_the_end(player, node)
    player.wait_for_end("paid", 0, 3)
    player.ask("commit again", end(old, commits=True), OLD_END, to=node)
    player.ask("abort what is committed", end(old, commits=False), OLD_END, to=node)
    player.ask("a committed one", fetch("paid", 0, isolation_level=READ_COMMITTED), FETCH, to=leader)
    is_there = lambda answer: answer.groups[0].topics[0].partitions[0].committed_offset == 7  # noqa: E731
    player.until("committed", is_there, committed(GROUP, 0), 9, to=group_node)
    player.ask("ended", describe, to=node)
    newer_transaction_steps(player, node, leader, old)


def newer_transaction_steps(player: Player, node: int, leader: int, old: tuple[int, int]) -> None:
    again = player.ask("the producer again", init(NAME), INIT, to=node)
    new = (again.producer_id, again.producer_epoch)
    data = produce("paid", transactional(new[0], 0, producer_epoch=new[1]), transactional_id=NAME)
    player.ask("a partition that is added by itself", data, PRODUCE, to=leader)
    late = produce("paid", transactional(old[0], 2, producer_epoch=old[1]), transactional_id=NAME)
    player.ask("a zombie", late, PRODUCE, to=leader)
    player.ask("ongoing", ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[]), to=node)
    player.ask("abort", end(new, commits=False), END, to=node)
    wait_for_the_end(player, node)
    player.wait_for_end("paid", 0, 5)
    player.ask("an aborted one, committed alone", fetch("paid", 3, isolation_level=READ_COMMITTED), FETCH, to=leader)
    player.ask("an aborted one, everything", fetch("paid", 3), FETCH, to=leader)
    player.ask("a zombie", end(old, commits=True), END, to=node)
    mine = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=NAME)
    player.ask("by name", mine, to=node)
    player.ask(
        "in a state that does not exist", ListTransactionsRequest(state_filters=["X"], producer_id_filters=[]), to=node
    )
    player.ask("who has ended", producers("paid", 0), to=leader)


ACTS = (transaction_steps,)
