from __future__ import annotations

from pessoa.quorum.quorum_settings import QuorumSettings
from pessoa.raft.machine import Raft
from pessoa.raft.messages import ReplicaKey
from pessoa.raft.voters import VoterSet
from tests.property.raft_world import ListLog


def test_a_voter_with_timeouts_of_0_has_nothing_due_after_tick() -> None:
    settings = QuorumSettings(election_timeout_ms=0, fetch_timeout_ms=0, election_backoff_max_ms=0, retry_backoff_ms=0)
    raft = Raft(ReplicaKey(1), VoterSet.of(1, 2, 3), ListLog([]), settings.timeouts, lambda _: 0)
    raft.start(0, None)
    for now_ms in range(5):
        raft.tick(now_ms)
        raft.take_ready()
        assert raft.deadline_ms > now_ms
