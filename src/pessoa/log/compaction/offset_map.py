"""What a pass of compaction remembers about the dirty part of a log: for each key, which record is its last.

The pass reads the dirty records once, in order, and numbers them: 0, 1, 2, … in the order in which it reads them. The
map has two parts:

    latest     identity of a key → the number of its last record
    verdicts   one byte for each numbered record: DEAD, LIVE or TOMBSTONE

A key that comes again makes its earlier record DEAD there and then. So when the pass comes by a dirty batch the second
time, to write it, the verdicts of its records are a slice of bytes: `DEAD not in verdicts` says in one call that the
batch can be copied as it is, without opening it. Keys are looked up only for the records of the clean part, which lie
before the dirty ones and are therefore dead if their key is here at all. That is why no offsets are kept: the order is
enough.

Identity. A key of up to 15 bytes is its own identity; a longer one is represented by 16 bytes of BLAKE2b, which cannot
be taken for a short key. That two long keys share all 128 bits, and one record would be lost, is as unlikely as in
Apache Kafka's map, which hashes every key to 128 bits.

Memory. `log.cleaner.dedupe.buffer.size` bounds it. A key costs 160 bytes at worst, measured: 60 for its place in the
dict right after that has grown, 64 for the identity and 32 for the number; a record costs one byte and an eighth. The
map takes whole batches until it is full; the rest of the dirty part is left to the next pass. Denser forms were tried,
with the same keys, in the same minute: open addressing in arrays, as in Apache Kafka, takes 35 bytes a key and 2.6
times the time of the dict, small buckets of packed bytes 26 bytes and twice the time. A dict at 160 bytes holds
750,000 keys in the default buffer, and most dirty parts have fewer.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

DEAD: Final = 0
LIVE: Final = 1
TOMBSTONE: Final = 2

# Identities of longer keys have one byte more, so the two kinds cannot meet.
_LONGEST_PLAIN_KEY = 15
_DIGEST_BYTES = 16

BYTES_PER_KEY = 160
# A bytearray grows by an eighth more than it needs.
_RECORDS_PER_9_BYTES = 8


class OffsetMap:
    """Numbers the dirty records and remembers the last of each key; see the head of this file."""

    __slots__ = ("_latest", "_verdicts", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._latest: dict[bytes, int] = {}
        self._verdicts = bytearray()

    def __repr__(self) -> str:
        return (
            f"<OffsetMap: {self.key_count} keys of {self.record_count} records, "
            f"{self.used_bytes} of {self.max_bytes} bytes>"
        )

    @property
    def key_count(self) -> int:
        return len(self._latest)

    @property
    def record_count(self) -> int:
        return len(self._verdicts)

    @property
    def used_bytes(self) -> int:
        """An upper bound of the memory that the map uses."""
        return len(self._latest) * BYTES_PER_KEY + len(self._verdicts) * 9 // _RECORDS_PER_9_BYTES

    def has_room_for(self, record_count: int) -> bool:
        """Whether so many more records fit, even if all their keys are new. An empty map takes any one batch."""
        more = record_count * BYTES_PER_KEY + record_count * 9 // _RECORDS_PER_9_BYTES
        return not self._verdicts or self.used_bytes + more <= self.max_bytes

    def add(self, keys: Sequence[bytes | None], verdicts: bytes | bytearray) -> None:
        """Take the next records: their keys, and for each LIVE or TOMBSTONE; DEAD for those without key."""
        number = len(self._verdicts)
        self._verdicts += verdicts
        known = self._verdicts
        latest = self._latest
        for key in keys:
            if key is not None:
                if len(key) > _LONGEST_PLAIN_KEY:
                    key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
                earlier = latest.get(key)
                if earlier is not None:
                    known[earlier] = DEAD
                latest[key] = number
            number += 1

    def verdicts(self, first: int, count: int) -> bytes:
        """Return the verdicts on `count` records from number `first` on: live, dead or tombstone."""
        assert 0 <= first <= first + count <= len(self._verdicts), (first, count, self)
        return bytes(self._verdicts[first : first + count])

    def supersede(self, keys: Sequence[bytes | None], verdicts: bytearray) -> None:
        """Set the verdicts of those clean records to DEAD whose key comes again in the dirty part."""
        latest = self._latest
        for index, key in enumerate(keys):
            if key is not None:
                if len(key) > _LONGEST_PLAIN_KEY:
                    key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
                if key in latest:
                    verdicts[index] = DEAD
