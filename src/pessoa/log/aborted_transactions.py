"""The `.txnindex` file: the aborted transactions whose marker stands in a segment.

A reader that asks for committed records only must pass over those of aborted transactions, so Fetch tells it which of
them overlap what it gets. Entries have 34 bytes each, and the file does not exist before there is one:

    position  size  field
           0     2  version, 0
           2     8  producer id
          10     8  first offset         of the transaction in this partition
          18     8  last offset          its marker's
          26     8  last stable offset   after this transaction was decided

Entries are in the order of their markers. A transaction belongs to the segment of its marker, though it may have begun
in an older one; so the search begins in the segment that is read and goes on into later ones. The last stable offset
says when it may stop: everything below it was decided when the entry was written, hence no transaction that was
decided later begins below it.

A damaged index is worse than none, because leaving an entry out hands aborted records to a reader as committed. So
content that does not look like this file raises `CorruptTransactionIndex`, a piece of an entry at the end included, and
opening the segment rebuilds the index from the log. (Apache Kafka passes over such a piece.)
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERSION = 0

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
assert ENTRY_SIZE == 34


class CorruptTransactionIndex(Exception):
    """These bytes are no transaction index, or not this segment's; the message says why."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction of one producer in this partition: its first offset, and that of its marker
    (`last_offset`). Invariant: first_offset <= last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedSearch(NamedTuple):
    """The aborted transactions that were found in one segment. `is_complete`: no later segment can hold one that
    overlaps the range."""

    found: list[AbortedTransaction]
    is_complete: bool


def encode_aborted_transaction(transaction: AbortedTransaction, previous: AbortedTransaction | None = None) -> bytes:
    """Return the index entry of `transaction`, which follows the entry of `previous`."""
    assert transaction.first_offset <= transaction.last_offset, transaction
    assert previous is None or previous.last_offset < transaction.last_offset, (previous, transaction)
    return _ENTRY.pack(VERSION, *transaction)


def decode_aborted_transactions(data: bytes, base_offset: int = 0) -> list[AbortedTransaction]:
    """The entries of a whole index, whose segment begins at `base_offset`."""
    if len(data) % ENTRY_SIZE:
        raise CorruptTransactionIndex(f"{len(data)} bytes are not a whole number of entries of {ENTRY_SIZE}")
    transactions: list[AbortedTransaction] = []
    least_last_offset = base_offset
    for number, (version, *fields) in enumerate(_ENTRY.iter_unpack(data)):
        transaction = AbortedTransaction(*fields)
        if version != VERSION:
            raise CorruptTransactionIndex(f"entry {number} has version {version}, and only {VERSION} is known")
        if transaction.last_offset < least_last_offset:
            where = "before the segment" if number == 0 else "before or with the one ahead of it"
            raise CorruptTransactionIndex(f"entry {number} ends {where}: {transaction}")
        if not 0 <= transaction.first_offset <= transaction.last_offset:
            raise CorruptTransactionIndex(f"entry {number} begins behind its end, or nowhere: {transaction}")
        transactions.append(transaction)
        least_last_offset = transaction.last_offset + 1
    return transactions


def overlapping(transactions: Iterable[AbortedTransaction], fetch_offset: int, end_offset: int) -> AbortedSearch:
    """Return the aborted transactions of one segment that overlap the offsets from `fetch_offset` up to, and without,
    `end_offset`."""
    found: list[AbortedTransaction] = []
    for transaction in transactions:
        if transaction.last_offset >= fetch_offset and transaction.first_offset < end_offset:
            found.append(transaction)
        if transaction.last_stable_offset >= end_offset:
            return AbortedSearch(found, is_complete=True)
    return AbortedSearch(found, is_complete=False)


def overlapping_in_segments(
    segments: Iterable[Iterable[AbortedTransaction]], fetch_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap these offsets, from the indexes of several segments, beginning with
    the one that holds `fetch_offset`."""
    found: list[AbortedTransaction] = []
    for transactions in segments:
        search = overlapping(transactions, fetch_offset, end_offset)
        found += search.found
        if search.is_complete:
            break
    return found


def count_below(transactions: Sequence[AbortedTransaction], offset: int) -> int:
    """The number of transactions whose markers are below `offset`: those that are left after a truncation to it."""
    count = len(transactions)
    while count and transactions[count - 1].last_offset >= offset:
        count -= 1
    return count
