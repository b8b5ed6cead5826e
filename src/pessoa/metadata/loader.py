"""From committed batches to images: the one place that follows the metadata log.

Outside a transaction every batch makes a new image. Between BeginTransaction and EndTransaction (KIP-868) the changes
gather, over as many batches as there are, and show up together; AbortTransaction drops them. A controller writes a
transaction where the records of one decision do not fit into one batch, or where no reader may see a part of it: the
bootstrap records of a new cluster.

    outside ──Begin──▶ within ──End──▶ outside      changes of the transaction are published
                              ──Abort─▶ outside      they never were
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pessoa.metadata.delta import MetadataDelta, difference
from pessoa.metadata.image import MetadataImage
from pessoa.wire.stored.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

if TYPE_CHECKING:
    from pessoa.wire.schema import Message


class MetadataLoader:
    """The image, built from batches of records. `image` contains all batches loaded so far, except deferred ones and
    those of a transaction that has not ended."""

    def __init__(self, image: MetadataImage = MetadataImage.EMPTY) -> None:
        self.image = image
        # The changes of a transaction that has begun and not ended.
        self._transaction: MetadataDelta | None = None
        # Changes that wait to become an image, and the offset and epoch of the last of them.
        self._deferred: tuple[MetadataDelta, int, int] | None = None

    def __repr__(self) -> str:
        return f"<MetadataLoader {'within' if self.in_transaction else 'outside'} a transaction, {self.image!r}>"

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def load(
        self, records: Sequence[Message], last_offset: int, epoch: int, *, defer: bool = False
    ) -> list[MetadataDelta]:
        """Load one batch, and return its changes, in order: none within a transaction.

        A deferred batch is loaded without making an image for it, which is faster when a long log is read at once.
        """
        published: list[MetadataDelta] = []
        was_deferred = self._deferred is not None
        delta = self._transaction or self._take_deferred() or MetadataDelta(self.image)
        first_offset = last_offset - len(records) + 1
        for offset, record in enumerate(records, first_offset):
            if isinstance(record, BeginTransactionRecord):
                assert self._transaction is None, f"a transaction begins within another at offset {offset}"
                if was_deferred or offset > first_offset:
                    published.append(self._publish(delta, offset - 1, epoch))
                delta = self._transaction = MetadataDelta(self.image)
            elif isinstance(record, EndTransactionRecord):
                assert self._transaction is not None, f"no transaction ends at offset {offset}"
                self._transaction = None
            elif isinstance(record, AbortTransactionRecord):
                assert self._transaction is not None, f"no transaction is aborted at offset {offset}"
                self._transaction = None
                delta = MetadataDelta(self.image)
            else:
                delta.replay(record)
        if self._transaction is None:
            if defer:
                self._deferred = (delta, last_offset, epoch)
            else:
                published.append(self._publish(delta, last_offset, epoch))
        return published

    def finish_deferred(self) -> None:
        """Make the image that contains all deferred batches."""
        if self._deferred is not None:
            delta, offset, epoch = self._deferred
            self._deferred = None
            self._publish(delta, offset, epoch)

    def restart(self, image: MetadataImage) -> MetadataDelta:
        """Replace the image by that of a snapshot, and return the differences."""
        delta = difference(self.image, image)
        self._transaction = self._deferred = None
        self.image = image
        return delta

    def set_kraft_version(self, level: int) -> None:
        """Set kraft.version, which comes from a control record of the quorum and is part of no metadata transaction."""
        self.finish_deferred()
        delta = MetadataDelta(self.image)
        delta.kraft_version = level
        self.image = delta.finish(self.image.offset, self.image.epoch)

    def _take_deferred(self) -> MetadataDelta | None:
        deferred, self._deferred = self._deferred, None
        return None if deferred is None else deferred[0]

    def _publish(self, delta: MetadataDelta, offset: int, epoch: int) -> MetadataDelta:
        self.image = delta.finish(offset, epoch)
        return delta
