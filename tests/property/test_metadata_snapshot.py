"""A replayed snapshot gives the image from which it was made, and a delta between two images has every difference."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from pessoa.metadata.delta import difference
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.snapshot import snapshot_records
from pessoa.quorum.snapshot_file import SnapshotReader, render_snapshot
from pessoa.raft.messages import OffsetAndEpoch
from pessoa.wire.schema import Message
from tests.property.test_metadata_image import EPOCH, histories


def through_a_file(image: MetadataImage) -> MetadataImage:
    snapshot = OffsetAndEpoch(image.offset + 1, image.epoch)
    data = b"".join(render_snapshot(snapshot, snapshot_records(image), 0, 0))
    reader = SnapshotReader(snapshot, data)
    assert reader.is_complete
    records = [record for batch in reader.batches() for record in batch.records]
    return MetadataImage.EMPTY.apply(records, image.offset, image.epoch)


@given(histories())
def test_the_records_of_an_image_rebuild_the_image(history: list[Message]) -> None:
    image = MetadataImage.EMPTY.apply(history, len(history) - 1, EPOCH)
    assert through_a_file(image) == image


@given(histories(), histories())
def test_the_difference_of_two_images_names_exactly_what_differs(first: list[Message], second: list[Message]) -> None:
    old = MetadataImage.EMPTY.apply(first, len(first) - 1, EPOCH)
    new = MetadataImage.EMPTY.apply(second, len(second) - 1, EPOCH)
    delta = difference(old, new)
    assert (delta.old, delta.new) == (old, new)
    assert set(delta.deleted_topics) == set(old.topics.by_id) - set(new.topics.by_id)
    assert set(delta.changed_topics) == {
        key for key, topic in new.topics.by_id.items() if old.topics.by_id.get(key) != topic
    }
    brokers = {**old.cluster.brokers, **new.cluster.brokers}
    assert {one: delta.cluster.changed_brokers.get(one, new.cluster.brokers.get(one)) for one in brokers} == {
        one: new.cluster.brokers.get(one) for one in brokers
    }
    same = {key for key, value in old.configs.by_resource.items() if new.configs.by_resource.get(key) == value}
    assert set(delta.changed_configs) == ({*old.configs.by_resource, *new.configs.by_resource} - same)
    assert not difference(old, replace(old, offset=99)).changed_configs
