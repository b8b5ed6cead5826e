"""The voters of the quorum, and how they have changed along the log.

The voters come from the configuration (`controller.quorum.voters`, kraft.version 0) or stand in the log itself, in a
KRaftVersion and a Voters record (kraft.version 1, KIP-853). In the log, the latest Voters record counts from the moment
it is written, committed or not, and stops counting when it is cut off. Voters change one at a time, so that every
majority of the old ones and every majority of the new ones have a voter in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pessoa.base.ids import Uuid
from pessoa.raft.messages import ReplicaKey
from pessoa.wire.stored.control_record_bodies import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter

KRAFT_VERSION_STATIC = 0
KRAFT_VERSION_DYNAMIC = 1
_PORT_MAX = (1 << 16) - 1


class Address(NamedTuple):
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    # By the name of the listener.
    listeners: Mapping[str, Address]
    # The levels of kraft.version that it can work with.
    min_version: int = KRAFT_VERSION_STATIC
    max_version: int = KRAFT_VERSION_DYNAMIC

    @property
    def address(self) -> Address | None:
        """The address at which other members reach this voter: its first listener, as with Kafka's controllers."""
        return next(iter(self.listeners.values()), None)


class VoterSet:
    """An immutable set of voters, in the order of their ids."""

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.by_id: Mapping[int, Voter] = {voter.key.id: voter for voter in sorted(voters, key=lambda one: one.key.id)}

    @classmethod
    def of(cls, *ids: int) -> VoterSet:
        """Return voters of which only the ids are known."""
        return cls(Voter(ReplicaKey(node_id), {}) for node_id in ids)

    @classmethod
    def static(cls, addresses: Mapping[int, tuple[str, int]], listener_name: str) -> VoterSet:
        """Return the voters that a configuration names."""
        return cls(
            Voter(ReplicaKey(node_id), {listener_name: Address(*address)}) for node_id, address in addresses.items()
        )

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(f'{one.key.id}@{one.address}' for one in self)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.by_id == other.by_id

    __hash__ = None  # type: ignore[assignment]  # nothing needs it

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.by_id.values())

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.by_id)

    @property
    def majority(self) -> int:
        """How many voters a majority is."""
        return len(self.by_id) // 2 + 1

    def has(self, key: ReplicaKey) -> bool:
        voter = self.by_id.get(key.id)
        return voter is not None and voter.key.matches(key)

    def with_voter(self, voter: Voter) -> VoterSet:
        return VoterSet([*(one for one in self if one.key.id != voter.key.id), voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(one for one in self if one.key.id != node_id)

    def record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecordVoter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        Endpoint(name=name, host=address.host, port=address.port)
                        for name, address in voter.listeners.items()
                    ],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.min_version, max_supported_version=voter.max_version
                    ),
                )
                for voter in self
            ],
        )


def voters_of(record: VotersRecord) -> VoterSet:
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            {one.name: Address(one.host, one.port) for one in voter.endpoints},
            voter.kraft_version_feature.min_supported_version,
            voter.kraft_version_feature.max_supported_version,
        )
        for voter in record.voters
    )


def parse_dynamic_voter(text: str, listener: str) -> Voter:
    """Return the voter in an entry of `--initial-controllers`: id@host:port:directory. Raises ValueError, with Kafka's
    message, if it is something else."""
    node_id, at, rest = text.partition("@")
    if not at:
        raise ValueError("No @ found in dynamic voter string.")
    if not node_id.isascii() or not node_id.isdigit():
        raise ValueError("Failed to parse node id in dynamic voter string.")
    if rest.startswith("["):
        host, bracket, rest = rest[1:].partition("]")
        if not bracket:
            raise ValueError("Hostname began with left bracket, but no right bracket was found.")
        if not rest.startswith(":"):
            raise ValueError("No colon following hostname could be found.")
        rest = rest[1:]
    else:
        host, colon, rest = rest.partition(":")
        if not colon:
            raise ValueError("No colon following hostname could be found.")
    port, colon, directory = rest.partition(":")
    if not colon:
        raise ValueError("No colon following port could be found.")
    if not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise ValueError("Failed to parse port in dynamic voter string.")
    try:
        key = ReplicaKey(int(node_id), Uuid.parse(directory))
    except ValueError:
        raise ValueError("Failed to parse directory ID in dynamic voter string.") from None
    return Voter(key, {listener: Address(host, int(port))})


class VoterHistory:
    """The voter sets and levels of kraft.version in the log, each with its offset."""

    def __init__(self, static: VoterSet) -> None:
        # Until the log says otherwise.
        self.static = static
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"<VoterHistory {self.voters!r} from offset {self.voters_offset}, kraft.version {self.kraft_version}>"

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1] if self._voters else self.static

    @property
    def voters_offset(self) -> int:
        """The offset of the latest VotersRecord in the log; -1 if there is none."""
        return self._voters[-1][0] if self._voters else -1

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else KRAFT_VERSION_STATIC

    def voters_before(self, end_offset: int) -> VoterSet | None:
        """Return the latest voter set in the log below `end_offset`; None if the log has none there."""
        return next((voters for offset, voters in reversed(self._voters) if offset < end_offset), None)

    def version_before(self, end_offset: int) -> int:
        known = (level for offset, level in reversed(self._versions) if offset < end_offset)
        return next(known, KRAFT_VERSION_STATIC)

    def is_leaving(self, key: ReplicaKey, high_watermark: int) -> bool:
        """Return whether a change that may not be committed removes this voter. There is at most one: a leader writes
        the next change when the last is committed."""
        if self.voters_offset < high_watermark or self.voters.has(key):
            return False
        return (self.voters_before(self.voters_offset) or self.static).has(key)

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        self._voters.append((offset, voters))

    def add_version(self, offset: int, level: int) -> None:
        self._versions.append((offset, level))

    def truncate_to(self, end_offset: int) -> None:
        """Remove the changes from `end_offset` on: the log was truncated there."""
        self._voters = [entry for entry in self._voters if entry[0] < end_offset]
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]

    def restart(self, end_offset: int, voters: VoterSet | None, level: int) -> None:
        """Replace the history by the voters and the level of a snapshot that ends at `end_offset`."""
        self._voters = [] if voters is None else [(end_offset - 1, voters)]
        self._versions = [(end_offset - 1, level)] if level else []
