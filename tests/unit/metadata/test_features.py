"""The version in which each record is written, for every metadata.version."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.metadata.supported_features import BY_NAME, bootstrap_records, record_version
from pessoa.wire.schema import Message
from pessoa.wire.stored import metadata_records as log

PARTITION = log.PartitionRecord(
    topic_id=Uuid.of(1), replicas=[], isr=[], removing_replicas=[], adding_replicas=[], partition_id=0
)
BROKER = log.RegisterBrokerRecord(
    broker_id=1, incarnation_id=Uuid.of(1), broker_epoch=1, end_points=[], features=[], rack=None
)


@pytest.mark.parametrize(
    ("record", "level", "version"),
    [
        (PARTITION, 7, 0),
        (PARTITION, 17, 1),
        (PARTITION, 22, 1),
        (PARTITION, 23, 2),
        (PARTITION, 30, 2),
        (BROKER, 7, 1),
        (BROKER, 8, 2),
        (BROKER, 17, 3),
        (BROKER, 29, 3),
        (BROKER, 30, 4),
        (log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1), 30, 0),
        (log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1), 30, 1),
        (log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=[Uuid.of(1)]), 30, 2),
        (log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, cordoned_log_dirs=[]), 30, 3),
        (log.NoOpRecord(), 30, 0),
    ],
)
def test_a_record_is_encoded_in_the_version_of_its_metadata_version(record: Message, level: int, version: int) -> None:
    assert record_version(record, level) == version


def test_a_new_cluster_has_every_feature_at_its_newest_level() -> None:
    levels = {one.name: one.feature_level for one in bootstrap_records() if isinstance(one, log.FeatureLevelRecord)}
    assert levels == {name: one.max_level for name, one in BY_NAME.items() if name != "kraft.version"}
    assert next(iter(levels)) == "metadata.version", "what the others may be depends on it"
