"""Names, records and translated offsets of mirrors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.base.json_value import JsonObject
from pessoa.connect.connector import OffsetRefused, Offsets
from pessoa.connect.connectors import mirror_clusters
from pessoa.connect.connectors.mirror_names import (
    MOST_SYNCS,
    Checkpoint,
    Heartbeat,
    NameFilter,
    OffsetSync,
    ReplicationPolicy,
    SyncedPartition,
    checkpoints_topic,
    offset_syncs_topic,
)
from pessoa.connect.connectors.mirror_source import MirrorSourceConnector


def test_mirrored_topics_are_named_after_their_source_cluster_and_are_not_mirrored_in_cycles() -> None:
    policy = ReplicationPolicy()
    assert policy.remote_topic("porto", "pedidos") == "porto.pedidos"
    assert policy.source_of("porto.pedidos") == "porto"
    assert policy.source_of("pedidos") is None
    assert policy.goes_through("aqui", "porto.aqui.pedidos")
    assert not policy.goes_through("aqui", "aqui")
    identity = ReplicationPolicy(is_identity=True, source="porto")
    assert identity.remote_topic("porto", "pedidos") == "pedidos"
    assert identity.remote_topic("porto", "heartbeats") == "porto.heartbeats"
    assert offset_syncs_topic("aqui") == "mm2-offset-syncs.aqui.internal"
    assert checkpoints_topic("porto") == "porto.checkpoints.internal"


def test_an_excluded_topic_or_group_is_not_mirrored() -> None:
    names = NameFilter(("pedidos.*", "a"), ("__.*", r".*[\-\.]internal"))
    assert [each for each in ("pedidos-1", "a", "ab", "pedidos.internal", "__a") if names.takes(each)] == [
        "pedidos-1",
        "a",
    ]


def test_heartbeats_checkpoints_and_offset_syncs_have_the_bytes_of_mirrormaker() -> None:
    sync = OffsetSync("t", 2, 5, 7)
    assert (sync.key().hex(), sync.value().hex()) == ("00017400000002", "00000000000000050000000000000007")
    checkpoint = Checkpoint("g", "t", 2, 5, 7, "m")
    assert checkpoint.key().hex() == "00016700017400000002"
    assert checkpoint.value().hex() == "00000000000000000005000000000000000700016d"
    beat = Heartbeat("a", "b", 9)
    assert (beat.key().hex(), beat.value().hex()) == ("000161000162", "00000000000000000009")
    for each in (sync, checkpoint, beat):
        assert type(each).read(each.key(), each.value()) == each


def test_a_malformed_offset_sync_record_is_refused() -> None:
    with pytest.raises(ValueError, match="a string of"):
        OffsetSync.read(b"\x00\x09t", b"")


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=300), st.integers(0, 20_000))
def test_a_translated_offset_never_skips_a_record(steps: list[tuple[int, int]], wanted: int) -> None:
    """Here a record is at least as far along as there: markers of transactions stand between them."""
    synced, where = SyncedPartition(), {0: 0}
    upstream = downstream = 0
    for copied, markers in steps:
        for _ in range(copied):
            where[upstream] = downstream
            upstream, downstream = upstream + 1, downstream + 1
        downstream += markers
        where[upstream] = downstream
        synced.add(upstream, downstream)
    assert len(synced.syncs) <= MOST_SYNCS
    assert synced.translate(upstream) == downstream
    found = synced.translate(min(wanted, upstream))
    if found is not None:
        assert found <= where[min(wanted, upstream)]


def test_offset_syncs_of_a_topic_that_was_created_again_are_discarded() -> None:
    synced = SyncedPartition()
    synced.add(100, 100)
    synced.add(5, 5)
    assert synced.translate(4) is None
    assert synced.translate(100) == 6


def test_an_unreachable_cluster_is_retried_and_ends_no_mirror_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_clusters, "TIMEOUT_S", 0.1)
    settings = {
        "source.cluster.alias": "a", "source.cluster.bootstrap.servers": "127.0.0.1:1", "target.cluster.alias": "b",
        "target.cluster.bootstrap.servers": "127.0.0.1:1",
    }  # fmt: skip
    source = MirrorSourceConnector()
    source.start(MirrorSourceConnector.CONFIG.parse(settings), Offsets())
    assert source.poll() == []
    assert source.poll() == []
    source.stop()


def test_partitions_are_dealt_out_to_tasks_and_an_offset_is_that_of_the_last_record() -> None:
    tasks = MirrorSourceConnector.tasks({"topics": "t"}, 3)
    assert [each["pessoa.task"] for each in tasks] == ["0", "1", "2"]
    taken = []
    for each in tasks:
        source = MirrorSourceConnector()
        clusters = {"source.cluster.alias": "a", "source.cluster.bootstrap.servers": "h:1",
                    "target.cluster.bootstrap.servers": "h:1"}  # fmt: skip
        source.start(MirrorSourceConnector.CONFIG.parse({**each, **clusters}), Offsets())
        taken += list(source._own_places("t", 100))
    assert sorted(taken) == [("t", number) for number in range(100)]
    place: JsonObject = {"cluster": "a", "topic": "t", "partition": 0}
    MirrorSourceConnector.check_offset(place, {"offset": 41})
    offsets: tuple[JsonObject, ...] = ({"offset": -1}, {}, {"offset": []})
    for wrong in offsets:
        with pytest.raises(OffsetRefused):
            MirrorSourceConnector.check_offset(place, wrong)
