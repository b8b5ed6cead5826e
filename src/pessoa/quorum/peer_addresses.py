"""Where the other members of the quorum listen.

The address of a voter comes from the voter set, that of another node from the responses of its peers. A bootstrap
server is an address without an id, so it gets a negative id that no node has.
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
        self._learned_addresses: dict[int, Address] = {}

    def __repr__(self) -> str:
        return f"<PeerAddresses: {len(self._bootstrap)} of bootstrap servers, learned {self._learned_addresses}>"

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        return tuple(self._bootstrap)

    def learn(self, node_id: int, address: Address) -> None:
        self._learned_addresses[node_id] = address

    def of(self, node_id: int, voters: VoterSet) -> Address | None:
        voter = voters.by_id.get(node_id)
        if voter is not None and voter.address is not None:
            return voter.address
        return self._learned_addresses.get(node_id) or self._bootstrap.get(node_id)
