"""The history of what the clients of a simulation wrote and read, and the check that it is consistent.

Every value is written once, by one producer, so the write of every value that is read is known. A write is

    OPEN ─▶ OK        acknowledged, at this offset: it must stay at this offset for ever, and be at no other
         ─▶ FAILED    refused, or part of an aborted transaction: no read_committed consumer may see it
         (stays OPEN) without a response: the log has it once, or not at all

and all records of a transaction are visible or none. What readers see is checked at once against everything that was
seen before: an offset has one value, for ever, on every replica.

In a compacted topic a write may be missing in the end if a later one with its key is present, or has deleted the key.
The remaining records keep their offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection


_ANYWHERE = 1 << 62


class Violation(Exception):
    """An invariant does not hold; the message names it, with topics, nodes and offsets."""


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
    """A transaction; its `outcome` is OK if it was committed, FAILED if it was aborted, and OPEN if that is unknown."""

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
    # When the producer created the write.
    begun_s: float = 0.0


class History:
    """The history of one run. Records of the topics `compacted` may be removed, with `drops_tombstones` also
    tombstones."""

    def __init__(self, compacted: Collection[str] = (), *, drops_tombstones: bool = False) -> None:
        self._compacted = compacted
        self._drops_tombstones = drops_tombstones
        self.writes: dict[bytes, Write] = {}
        self.transactions: list[Transaction] = []
        # What readers have seen, by partition: offset → value
        self.seen: dict[TopicPartition, dict[int, bytes]] = {}
        # The same for read_committed readers.
        self.seen_committed: dict[TopicPartition, dict[int, bytes]] = {}
        # Value → offset, to find a value at two offsets.
        self._places: dict[bytes, tuple[TopicPartition, int]] = {}
        # Group → partition → the largest offset whose commit was acknowledged.
        self._committed_offsets: dict[str, dict[TopicPartition, int]] = {}
        # (group, generation, partition) → member
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        # (group, partition) → the newest generation in which the partition has an owner, and that owner
        self._newest_owners: dict[tuple[str, TopicPartition], tuple[int, str]] = {}
        # (reader, partition, isolation level) → the largest end offset that ListOffsets returned to the reader
        self._latest_offsets: dict[tuple[str, TopicPartition, int], int] = {}
        # Value of a copy → where its copier read the original
        self.copies: dict[bytes, tuple[TopicPartition, int]] = {}
        self.acknowledged = 0

    def __repr__(self) -> str:
        return f"<History: {len(self.writes)} writes, {self.acknowledged} acknowledged>"

    # Calls of clients.

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
        """Note that a write was acknowledged; `offset` is -1 if the broker knows the batch as a duplicate without its
        offset."""
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
        """Return the lowest end offset that ListOffsets may return to this reader from now on: it never goes back
        (KIP-207).

        That holds for one reader, which sends the highest leader epoch that it knows (KIP-320). A deposed leader that
        does not know of the new epoch goes on answering readers that do not know of it either.
        """
        return self._latest_offsets.get((reader, partition, isolation), 0)

    def latest_floor_of_all(self, partition: TopicPartition, isolation: int) -> int:
        """Return the lowest end offset that any reader may get once every broker knows the leader."""
        told = [end for (_, *where), end in self._latest_offsets.items() if where == [partition, isolation]]
        return max(told, default=0)

    def see_latest(self, reader: str, partition: TopicPartition, isolation: int, offset: int, asked_floor: int) -> None:
        """Note an end offset that ListOffsets returned, and check it against `asked_floor`, the floor when the request
        was sent: responses may overtake each other."""
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
        """Return the newest generation in which a member owned the partition, and that member; there must be one."""
        return self._newest_owners[group, partition]

    def check_owner(
        self, group: str, generation: int, partition: TopicPartition, member: str, newest: tuple[int, str]
    ) -> None:
        """Check a commit that was accepted: `newest`, the `newest_owner` when it was sent, must not be another member
        of a later generation."""
        if newest[0] > generation and newest[1] != member:
            raise Violation(
                f"{member} commits for {partition} in generation {generation} of {group}, "
                f"and {newest[1]} had got it in {newest[0]} before"
            )

    def commit_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        offsets = self._committed_offsets.setdefault(group, {})
        offsets[partition] = max(offset, offsets.get(partition, 0))

    def committed_floor(self, group: str, partition: TopicPartition) -> int:
        """Return the lowest offset that OffsetFetch may return from now on: members commit in the order in which they
        read."""
        return self._committed_offsets.get(group, {}).get(partition, 0)

    # At the end, when everything has been read.

    def check_complete(
        self, uncommitted: dict[TopicPartition, dict[int, bytes]], committed: dict[TopicPartition, dict[int, bytes]]
    ) -> None:
        """Check what readers of each isolation level have found after everything has healed: nothing acknowledged is
        missing, nothing is there twice or out of order, and transactions are visible as a whole."""
        present = {value for records in uncommitted.values() for value in records.values()}
        visible = {value for records in committed.values() for value in records.values()}
        superseded = self._superseded(committed)
        self._check_writes(present | superseded | self._aborted_and_compacted(), visible | superseded)
        self._check_transactions(visible, superseded)
        # A read_uncommitted consumer may have seen records that were aborted later and then removed by compaction.
        self._check_what_was_seen(uncommitted, self.seen, "was read", superseded | self._aborted_and_compacted())
        self._check_what_was_seen(committed, self.seen_committed, "was read as committed", superseded)
        self._check_order(uncommitted)

    def _superseded(self, committed: dict[TopicPartition, dict[int, bytes]]) -> set[bytes]:
        """Return the values that compaction may have removed, of writes that were not aborted and whose offset is
        known."""
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
                    # A tombstone that was neither seen nor acknowledged with an offset may be at any offset.
                    offset = self._places.get(write.value, (write.partition, _ANYWHERE))[1]
                    place = (write.partition, write.key)
                    # The tombstone itself may have been removed.
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
        """Check that every committed record of a source below its committed offset in `offsets` has one visible copy,
        and no record from that offset on has any."""
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
                # The original of a copy may have been removed by compaction since.
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
            # A record that was never acknowledged may be missing from any transaction: its producer did not wait for
            # it.
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
        """Check that the records of one producer are in a partition in the order in which they were written."""
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
