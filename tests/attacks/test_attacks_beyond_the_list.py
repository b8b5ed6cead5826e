"""Attacks that need knowledge of the source: a client that may write to one topic tries to block the event loop."""

from __future__ import annotations

import pytest

from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.record import Record
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pessoa.wire.errors import ErrorCode
from tests.attacks.attack_stage import COMPACTED, LOGIN, MALLORY, MIB, MINE, AttackStage
from tests.attacks.attack_wires import connect
from tests.attacks.test_attacks_on_limits import batch_around, zstd_bomb
from tests.support.crash_wire import now_ms, produce

MAX_TIMESTAMP = -3
CHURNED = 2_000


def test_batches_that_decompress_to_many_bytes_do_not_delay_a_search_by_timestamp(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    """Produce appends these batches without decompressing them; only the search by timestamp decompresses them."""
    with stage.attack("on searches by time", request, max_mib=300), stage.as_user(MALLORY) as wire:
        for _ in range(30):
            assert produce(wire, MINE, batch_around(zstd_bomb(), Codec.ZSTD)).error_code == ErrorCode.NONE
        for timestamp in (MAX_TIMESTAMP, now_ms() - 60_000):
            wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=MINE, partitions=[wanted])])
            answer = wire.ask(asked, ListOffsetsResponse, 7).topics[0].partitions[0]
            assert answer.error_code == ErrorCode.NONE
            assert answer.offset >= 0


def test_a_batch_of_very_many_records_does_not_delay_other_clients(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    records = [Record(index, now_ms(), b"k", b"") for index in range(300_000)]
    batch = bytes(build_batch(records, codec=Codec.ZSTD))
    assert len(batch) < MIB
    with stage.attack("with 300,000 records in a batch", request, max_mib=64), stage.as_user(MALLORY) as wire:
        for _ in range(3):
            assert produce(wire, COMPACTED, batch).error_code == ErrorCode.NONE


def test_connections_that_open_and_close_leave_no_memory_in_use(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    with stage.attack(f"of {CHURNED} connections that come and go", request, max_mib=16):
        for number in range(CHURNED):
            with connect(stage.ports[LOGIN], f"127.0.0.{20 + number % 200}") as churned:
                if number % 2:
                    churned.sendall(b"\0\0\0\x20\0\x11")
