"""The metadata image of a node: replays the committed batches, and calls the subscribers with each delta.

    quorum ──committed batch──▶ ImagePublisher ──delta──▶ replicas, coordinators, configuration, …

While a node starts it reads the whole log, and subscribers have no use for topics that were deleted long ago. So the
publisher calls none at first; `go_live` publishes the whole image as one delta, and later each batch is a delta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pessoa.metadata.delta import MetadataDelta, full_delta
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.loader import MetadataLoader

if TYPE_CHECKING:
    from pessoa.quorum.batches import MetadataBatch
    from pessoa.quorum.snapshot_file import SnapshotReader


class ImagePublisher:
    """Keeps the metadata image and publishes its changes. `listen` is for `quorum.listeners`. Subscribers are called in
    their order, with `delta.new` as the image."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.subscribers: list[Callable[[MetadataDelta], None]] = []
        self._is_live = False

    def __repr__(self) -> str:
        return f"<ImagePublisher {'live' if self._is_live else 'loading'}: {self.loader!r}>"

    @property
    def image(self) -> MetadataImage:
        return self.loader.image

    def listen(self, batch: MetadataBatch) -> None:
        if batch.kraft_version is not None:
            self.loader.set_kraft_version(batch.kraft_version)
        for delta in self.loader.load(batch.records, batch.last_offset, batch.epoch, defer=not self._is_live):
            self._publish(delta)

    def load_snapshot(self, reader: SnapshotReader) -> None:
        """Replace the image by that of a snapshot, and publish the difference. Called by `quorum.on_snapshot`."""
        delta = MetadataDelta(MetadataImage.EMPTY)
        for batch in reader.batches():
            for record in batch.records:
                delta.replay(record)
        delta.kraft_version = reader.kraft_version
        image = delta.finish(reader.snapshot.offset - 1, reader.snapshot.epoch)
        self._publish(self.loader.restart(image))

    def go_live(self) -> None:
        """Publish the whole image as one delta, after the log has been read, and from then on the delta of each
        batch."""
        assert not self._is_live
        self._is_live = True
        self.loader.finish_deferred()
        self._publish(full_delta(self.loader.image))

    def _publish(self, delta: MetadataDelta) -> None:
        if self._is_live:
            for subscriber in self.subscribers:
                subscriber(delta)
