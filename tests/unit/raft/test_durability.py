"""A leader counts its own log for the high watermark only up to what it has synced."""

from __future__ import annotations

from pessoa.raft.messages import Fetch
from pessoa.raft.voters import VoterSet
from tests.unit.raft.test_machine import SECOND, leader, log_of, machine


def test_a_single_voter_commits_synced_records_while_more_are_being_written() -> None:
    log = log_of()
    raft, _ = machine(log, voters=VoterSet.of(1))
    assert raft.is_leader
    log.entries += [(raft.epoch, None)] * 3
    log.durable_end_offset = 1
    raft.flushed(1)
    assert raft.high_watermark == 1
    log.durable_end_offset = 3
    raft.flushed(2)
    assert raft.high_watermark == 3


def test_a_majority_that_includes_the_leader_needs_the_leaders_records_on_its_disk() -> None:
    raft, log = leader()
    log.entries += [(raft.epoch, None)] * 2
    log.durable_end_offset = 1
    raft.flushed(4)
    raft.fetch(5, Fetch(raft.epoch, SECOND, 3, raft.epoch, 0))
    assert raft.high_watermark == 1, "the second has all three, the leader one, the third none"
    log.durable_end_offset = 3
    raft.flushed(6)
    assert raft.high_watermark == 3
