"""Where the other members of the quorum listen.

The voter set tells it of voters, and comes first. Of other nodes their peers have told. A bootstrap server is an
address without an id, so it gets one that stands in for it, below every id and every "none".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.raft.voters import Address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.raft.voters import VoterSet

_FIRST_BOOTSTRAP_ID = -2


class PeerAddresses:
    def __init__(self, bootstrap_servers: Iterable[tuple[str, int]]) -> None:
        self._bootstrap = {
            _FIRST_BOOTSTRAP_ID - number: Address(host, port) for number, (host, port) in enumerate(bootstrap_servers)
        }
        self._learned: dict[int, Address] = {}

    def __repr__(self) -> str:
        return f"<PeerAddresses: {len(self._bootstrap)} of bootstrap servers, learned {self._learned}>"

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        return tuple(self._bootstrap)

    def learn(self, node_id: int, address: Address) -> None:
        self._learned[node_id] = address

    def of(self, node_id: int, voters: VoterSet) -> Address | None:
        voter = voters.by_id.get(node_id)
        if voter is not None and voter.address is not None:
            return voter.address
        return self._learned.get(node_id) or self._bootstrap.get(node_id)
