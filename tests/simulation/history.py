"""What the clients of a simulation did and saw, and whether it can be true.

Every value is written once, by one producer, so wherever it turns up it is known where it came from. A write is

    OPEN ─▶ OK        acknowledged, at this offset: it has to be there for ever, there and nowhere else
         ─▶ FAILED    refused, or part of a transaction that was aborted: no read_committed consumer may see it
         (stays OPEN) without a response: it may be there once, or not at all

and a transaction is seen whole or not at all. What readers see is checked on the spot against everything that was seen
before: an offset has one value, for ever, on every replica.

In a compacted topic a write may be gone in the end, if a later one with its key is there, or has deleted the key. What
is there stands where it always stood.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection


_ANYWHERE = 1 << 62


class Violation(Exception):
    """An invariant does not hold. The message says which, with names and offsets."""


class TopicPartition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Outcome(Enum):
    OPEN = "open"
    OK = "ok"
    FAILED = "failed"


@dataclass(slots=True)
class Transaction:
    """`outcome` OK is committed, FAILED is aborted for sure, OPEN is one of both."""

    name: str
    writes: list[Write] = field(default_factory=list)
    outcome: Outcome = Outcome.OPEN


@dataclass(slots=True)
class Write:
    value: bytes
    partition: TopicPartition
    producer: str
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.OPEN
    offset: int = -1
    key: bytes | None = None
    is_tombstone: bool = False
    # When its producer began with it.
    begun_s: float = 0.0


class History:
    """`compacted` are the topics of which a part may go, `drops_tombstones` whether those go as well."""

    def __init__(self, compacted: Collection[str] = (), *, drops_tombstones: bool = False) -> None:
        self._compacted = compacted
        self._drops_tombstones = drops_tombstones
        self.writes: dict[bytes, Write] = {}
        self.transactions: list[Transaction] = []
        # What any reader has seen, by partition: offset → value
        self.seen: dict[TopicPartition, dict[int, bytes]] = {}
        # The same for readers of committed data.
        self.seen_committed: dict[TopicPartition, dict[int, bytes]] = {}
        # Value → offset, to find what was written twice.
        self._places: dict[bytes, tuple[TopicPartition, int]] = {}
        # Group → partition → the largest offset whose commit was acknowledged.
        self._committed_offsets: dict[str, dict[TopicPartition, int]] = {}
        # (group, generation, partition) → member
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        # (group, partition) → the newest generation in which it has an owner, and that one
        self._newest_owners: dict[tuple[str, TopicPartition], tuple[int, str]] = {}
        # (reader, partition, isolation level) → the largest end of the partition that the reader was told
        self._latest_offsets: dict[tuple[str, TopicPartition, int], int] = {}
        # What a copier wrote → where it had read that
        self.copies: dict[bytes, tuple[TopicPartition, int]] = {}
        self.acknowledged = 0

    def __repr__(self) -> str:
        return f"<History: {len(self.writes)} writes, {self.acknowledged} acknowledged>"

    # What clients report.

    def begin_write(
        self, value: bytes, partition: TopicPartition, producer: str, transaction: Transaction | None = None
    ) -> Write:
        assert value not in self.writes, "every value is written once"
        write = self.writes[value] = Write(value, partition, producer, transaction)
        if transaction is not None:
            transaction.writes.append(write)
        return write

    def begin_transaction(self, name: str) -> Transaction:
        transaction = Transaction(name)
        self.transactions.append(transaction)
        return transaction

    def acknowledge(self, write: Write, offset: int) -> None:
        """`offset` is -1 where the broker remembers the batch but not its place."""
        self.acknowledged += 1
        write.outcome, write.offset = Outcome.OK, offset
        if offset >= 0:
            self._place(write.partition, offset, write.value, f"the acknowledgement to {write.producer}")

    def see(self, reader: str, partition: TopicPartition, offset: int, value: bytes, *, is_committed: bool) -> None:
        self._place(partition, offset, value, reader)
        transaction = self.writes[value].transaction
        if is_committed and transaction is not None and transaction.outcome is Outcome.FAILED:
            raise Violation(
                f"aborted read: {reader} sees {value!r} at {partition}@{offset}, and {transaction.name} was aborted"
            )
        self.seen.setdefault(partition, {})[offset] = value
        if is_committed:
            self.seen_committed.setdefault(partition, {})[offset] = value

    def _place(self, partition: TopicPartition, offset: int, value: bytes, witness: str) -> None:
        write = self.writes.get(value)
        if write is None:
            raise Violation(f"{witness} sees {value!r} at {partition}@{offset}, which was never written")
        if write.partition != partition:
            raise Violation(f"{witness} sees {value!r} in {partition}; it was written to {write.partition}")
        known = self._places.setdefault(value, (partition, offset))
        if known != (partition, offset):
            raise Violation(
                f"duplicate: {value!r} is at {partition}@{offset} for {witness}, and was at {known[0]}@{known[1]}"
            )
        if write.outcome is Outcome.OK and write.offset >= 0 and write.offset != offset:
            raise Violation(
                f"inconsistent offsets: {value!r} was acknowledged at {partition}@{write.offset}, "
                f"and {witness} sees it at {offset}"
            )
        other = self.seen.get(partition, {}).get(offset)
        if other is not None and other != value:
            raise Violation(f"inconsistent offsets: {partition}@{offset} was {other!r}, and {witness} sees {value!r}")

    def latest_floor(self, reader: str, partition: TopicPartition, isolation: int) -> int:
        """The lowest end of the partition that this reader may be told from now on: the end never goes back (KIP-207).

        That holds for one reader, who asks with the highest leader epoch that it knows (KIP-320). A leader that was
        deposed and does not hear of it goes on answering readers that do not know of the new one either.
        """
        return self._latest_offsets.get((reader, partition, isolation), 0)

    def latest_floor_of_all(self, partition: TopicPartition, isolation: int) -> int:
        """The lowest end that any reader may be told once every broker knows who leads."""
        told = [end for (_, *where), end in self._latest_offsets.items() if where == [partition, isolation]]
        return max(told, default=0)

    def see_latest(self, reader: str, partition: TopicPartition, isolation: int, offset: int, asked_floor: int) -> None:
        """ListOffsets tells where the partition ends. `asked_floor` is the floor when the question was asked: answers
        may overtake each other."""
        if offset < asked_floor:
            raise Violation(
                f"{reader} is told that {partition} ends at {offset}, and before it was told {asked_floor} "
                f"(isolation level {isolation})"
            )
        key = (reader, partition, isolation)
        self._latest_offsets[key] = max(offset, self._latest_offsets.get(key, 0))

    # Groups.

    def own(self, group: str, generation: int, partitions: list[TopicPartition], member: str) -> None:
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                raise Violation(f"{partition} belongs to {owner} and to {member} in generation {generation} of {group}")
            newest = self._newest_owners.get((group, partition))
            if newest is None or newest[0] <= generation:
                self._newest_owners[group, partition] = (generation, member)

    def newest_owner(self, group: str, partition: TopicPartition) -> tuple[int, str]:
        """The newest generation in which a member owned the partition, and that member. There must have been one."""
        return self._newest_owners[group, partition]

    def check_owner(
        self, group: str, generation: int, partition: TopicPartition, member: str, newest: tuple[int, str]
    ) -> None:
        """A commit was accepted; `newest` is the `newest_owner` of when it was sent."""
        if newest[0] > generation and newest[1] != member:
            raise Violation(
                f"{member} commits for {partition} in generation {generation} of {group}, "
                f"and {newest[1]} had got it in {newest[0]} before"
            )

    def commit_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        offsets = self._committed_offsets.setdefault(group, {})
        offsets[partition] = max(offset, offsets.get(partition, 0))

    def committed_floor(self, group: str, partition: TopicPartition) -> int:
        """The lowest offset that OffsetFetch may return from now on: members commit in the order in which they read."""
        return self._committed_offsets.get(group, {}).get(partition, 0)

    # At the end, when everything has been read.

    def check_complete(
        self, uncommitted: dict[TopicPartition, dict[int, bytes]], committed: dict[TopicPartition, dict[int, bytes]]
    ) -> None:
        """`uncommitted` and `committed` are what a reader of each kind finds after everything has healed."""
        present = {value for records in uncommitted.values() for value in records.values()}
        visible = {value for records in committed.values() for value in records.values()}
        superseded = self._superseded(committed)
        self._check_writes(present | superseded | self._aborted_and_compacted(), visible | superseded)
        self._check_transactions(visible, superseded)
        # A read_uncommitted consumer sees what is aborted later and then compacted away.
        self._check_what_was_seen(uncommitted, self.seen, "was read", superseded | self._aborted_and_compacted())
        self._check_what_was_seen(committed, self.seen_committed, "was read as committed", superseded)
        self._check_order(uncommitted)

    def _superseded(self, committed: dict[TopicPartition, dict[int, bytes]]) -> set[bytes]:
        """What compaction may have taken, of writes whose place is known and that were not aborted."""
        last: dict[tuple[TopicPartition, bytes], int] = {}
        for partition, records in committed.items():
            for offset, value in records.items():
                key = self.writes[value].key
                if partition.topic in self._compacted and key is not None:
                    last[partition, key] = max(offset, last.get((partition, key), -1))
        if self._drops_tombstones:
            for write in self.writes.values():
                is_aborted = write.transaction is not None and write.transaction.outcome is Outcome.FAILED
                if write.is_tombstone and write.key is not None and not is_aborted:
                    # A tombstone that was neither seen nor acknowledged with its offset may be anywhere.
                    offset = self._places.get(write.value, (write.partition, _ANYWHERE))[1]
                    place = (write.partition, write.key)
                    # It may itself be gone.
                    last[place] = max(offset + 1, last.get(place, -1))
        return {
            write.value
            for write in self.writes.values()
            if write.partition.topic in self._compacted
            and write.key is not None
            and (write.transaction is None or write.transaction.outcome is not Outcome.FAILED)
            and self._places.get(write.value, (write.partition, -1))[1] < last.get((write.partition, write.key), -1)
        }

    def _aborted_and_compacted(self) -> set[bytes]:
        return {
            write.value
            for transaction in self.transactions
            if transaction.outcome is not Outcome.OK
            for write in transaction.writes
            if write.partition.topic in self._compacted
        }

    def check_copies(
        self, committed: dict[TopicPartition, dict[int, bytes]], offsets: dict[TopicPartition, int]
    ) -> None:
        """`offsets` are how far the copiers have committed to have read each source: up to there, every committed
        record has one visible copy, and behind it none has any."""
        copied: dict[TopicPartition, dict[int, bytes]] = {source: {} for source in offsets}
        for records in committed.values():
            for value in records.values():
                if value in self.copies:
                    source, offset = self.copies[value]
                    first = copied[source].setdefault(offset, value)
                    if first != value:
                        raise Violation(f"copied twice: {source}@{offset} is {first!r} and {value!r}")
        for source, end in offsets.items():
            due = {offset for offset in committed.get(source, {}) if offset < end}
            missing, early = due - copied[source].keys(), copied[source].keys() - due
            if source.topic in self._compacted:
                # What was copied may be gone since.
                early = {offset for offset in early if offset >= end}
            if missing:
                raise Violation(f"the offset {end} of {source} is committed, and {min(missing)} was not copied")
            if early:
                raise Violation(f"{source}@{min(early)} was copied, and the committed offset is {end}")

    def _check_writes(self, present: set[bytes], visible: set[bytes]) -> None:
        for write in self.writes.values():
            if write.outcome is not Outcome.OK:
                continue
            if write.value not in present:
                raise Violation(f"lost: {write.value!r} was acknowledged at {write.partition}@{write.offset}")
            if write.transaction is None and write.value not in visible:
                raise Violation(
                    f"{write.value!r} at {write.partition}@{write.offset} is hidden from who reads committed"
                )

    def _check_transactions(self, visible: set[bytes], superseded: set[bytes]) -> None:
        for transaction in self.transactions:
            shown = [write for write in transaction.writes if write.value in visible]
            if shown and transaction.outcome is Outcome.FAILED:
                raise Violation(f"aborted read: {transaction.name} was aborted, and {shown[0].value!r} is visible")
            # What was never acknowledged may be missing from any transaction: its producer did not wait for it.
            due = [write for write in transaction.writes if write.outcome is Outcome.OK]
            hidden = [write for write in due if write.value not in visible and write.value not in superseded]
            if hidden and (transaction.outcome is Outcome.OK or shown):
                raise Violation(
                    f"torn: of {transaction.name} ({transaction.outcome.value}) {hidden[0].value!r} is missing "
                    f"and {len(shown)} of {len(due)} are visible"
                )

    def _check_what_was_seen(
        self,
        final: dict[TopicPartition, dict[int, bytes]],
        seen: dict[TopicPartition, dict[int, bytes]],
        how: str,
        gone: set[bytes],
    ) -> None:
        for partition, records in seen.items():
            there = final.get(partition, {})
            for offset, value in records.items():
                if there.get(offset) != value and not (offset not in there and value in gone):
                    raise Violation(
                        f"lost: {value!r} {how} at {partition}@{offset}, where {there.get(offset)!r} is now"
                    )

    def _check_order(self, final: dict[TopicPartition, dict[int, bytes]]) -> None:
        """Assert that the records of one producer are in a partition in the order in which they were written."""
        rank = {value: number for number, value in enumerate(self.writes)}
        for partition, records in final.items():
            last: dict[str, bytes] = {}
            for offset in sorted(records):
                value = records[offset]
                producer = self.writes[value].producer
                before = last.get(producer)
                if before is not None and rank[before] > rank[value]:
                    raise Violation(f"order: in {partition} {value!r} stands behind {before!r} of the same producer")
                last[producer] = value
