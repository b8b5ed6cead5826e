"""What a new leader writes first.

The first record of an epoch names its leader and the voters that elected it. In a new log with kraft.version 1, the
first batch also holds the voters: nodes that fetch the log have not seen what it was formatted with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.raft.voters import KRAFT_VERSION_STATIC
from pessoa.wire.stored.control_record_bodies import KRaftVersionRecord, LeaderChangeMessage, Voter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.raft.voters import VoterHistory
    from pessoa.records.control_records import QuorumMessage


def opening_messages(leader_id: int, history: VoterHistory, granting: Sequence[int]) -> list[QuorumMessage]:
    """Return the control records with which a new leader begins its epoch. `granting` are the ids of the voters that
    elected it."""
    voters = history.voters
    version = 1 if history.kraft_version > KRAFT_VERSION_STATIC else 0

    def voters_by_id(ids: Sequence[int]) -> list[Voter]:
        return [
            Voter(voter_id=one, voter_directory_id=voters.by_id[one].key.directory_id if version else ZERO_UUID)
            for one in ids
            if one in voters.by_id
        ]

    change = LeaderChangeMessage(
        version=version, leader_id=leader_id, voters=voters_by_id(voters.ids), granting_voters=voters_by_id(granting)
    )
    messages: list[QuorumMessage] = [change]
    if version and history.voters_offset < 0:
        messages += [KRaftVersionRecord(version=0, kraft_version=history.kraft_version), voters.record()]
    return messages
