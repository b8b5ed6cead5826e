"""Offsets that cannot be read because the log is damaged there, each logged once.

A consumer that meets damage fetches it again many times a second, and so do other consumers. The broker's own log gets
one line when the damage is found, and one when it is over: the replica was repaired, or its damaged part is deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.replication.partition import Partition

log = logging.getLogger("pessoa.broker")

# A thousand lines about a disk that is damaged all over help no reader of the log.
_MAX_PLACES = 1_000


class ReadDamage:
    def __init__(self) -> None:
        # Topic, partition and offset.
        self._places: set[tuple[Uuid, int, int]] = set()

    def __repr__(self) -> str:
        return f"<ReadDamage: {len(self._places)} places>"

    def __bool__(self) -> bool:
        return bool(self._places)

    def report(self, partition: Partition, offset: int, why: Exception) -> None:
        place = (partition.topic_id, partition.index, offset)
        if place not in self._places and len(self._places) < _MAX_PLACES:
            self._places.add(place)
            log.warning("%s-%s cannot be read at %s: %s", partition.topic, partition.index, offset, why)

    def report_repaired(self, partition: Partition, offset: int) -> None:
        """Log that the offset can be read again, if its damage was logged before."""
        self._forget(partition, offset, f"can be read at {offset} again")

    def report_deleted(self, partition: Partition, offset: int) -> None:
        """Log that the damaged offset is no longer in the log, if its damage was logged before."""
        self._forget(partition, offset, f"has nothing at {offset} any more, damaged as it was")

    def _forget(self, partition: Partition, offset: int, what_is: str) -> None:
        place = (partition.topic_id, partition.index, offset)
        if place in self._places:
            self._places.discard(place)
            log.info("%s-%s %s", partition.topic, partition.index, what_is)
