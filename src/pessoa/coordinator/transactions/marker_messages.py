"""The messages between the transaction shard and the marker writer.

`WriteMarkers` goes out when the outcome is committed. `MarkersWritten` comes back, once or several times, until every
partition has its marker; it takes the way of a request, so that its answer waits for the log as any other does.
"""

from __future__ import annotations

from typing import NamedTuple

from pessoa.coordinator.transactions.transaction import ProducerIdentity, TopicPartition
from pessoa.wire.api.write_txn_markers import WritableTxnMarkerTopic
from pessoa.wire.schema import Message, array, int16, int64, string


class WriteMarkers(NamedTuple):
    transactional_id: str
    # As they stand in the prepare record: in version 2 with the epoch raised already.
    producer: ProducerIdentity
    commits: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


class MarkersWritten(Message, versions="0", flexible="none"):
    """The partitions whose markers are written, which may be some of those that the transaction has. Never leaves the
    process."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
