"""What share groups do on this broker, for /metrics: its share partitions, and what members have said of records.

Kafka labels the metrics of a share partition with group, topic and partition. There may be very many of them, as of
groups: those of the first thousand share partitions, and of the first thousand groups, are shown.

Kafka's FetchLockTimeMs and FetchLockRatio have no counterpart: a fetch reads and acquires in one step, so there is no
lock that another could wait for.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from pessoa.broker.metrics.exposition import label_text
from pessoa.broker.share.led_share_partition import LoadState
from pessoa.share.acknowledgement import AcknowledgeType

if TYPE_CHECKING:
    from pessoa.broker.metrics.exposition import Exposition
    from pessoa.broker.services import BrokerServices

_AT_A_TIME = 200
_MOST_PARTITIONS = 1_000
_MOST_GROUPS = 1_000
# Kafka's words for the types that it counts; gaps are no records.
_ACK_TYPES = {
    AcknowledgeType.ACCEPT: "Accept",
    AcknowledgeType.RELEASE: "Release",
    AcknowledgeType.REJECT: "Reject",
    AcknowledgeType.RENEW: "Renew",
}


async def collect_shares(broker: BrokerServices, out: Exposition) -> None:
    """Write the metrics of share groups; none before the first request of a member."""
    shares = broker.coordinators.existing_share_partitions
    if shares is None:
        return
    for kind, word in _ACK_TYPES.items():
        name = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
        out.add(name, shares.acknowledged[int(kind)], ackType=word)
    if shares.load_times_ms:
        mean_ms = sum(shares.load_times_ms) / len(shares.load_times_ms)
        out.add("kafka_server_sharegroupmetrics_partitionloadtimems_mean", round(mean_ms, 3))
        out.add("kafka_server_sharegroupmetrics_partitionloadtimems_max", max(shares.load_times_ms))
    now_ms = broker.clock.monotonic_ms()
    for group_id, fetches in islice(list(shares.fetches.items()), _MOST_GROUPS):
        labels = label_text(group=group_id)
        for name, average in (
            ("requesttopicpartitionsfetchratio", fetches.acquirable_percent),
            ("topicpartitionsacquiretimems", fetches.wait_ms),
        ):
            mean, most = average.read(now_ms)
            out.add_labelled(f"kafka_server_sharegroupmetrics_{name}_mean", round(mean, 3), labels)
            out.add_labelled(f"kafka_server_sharegroupmetrics_{name}_max", most, labels)
    prefix = "kafka_server_sharepartitionmetrics_"
    for number, led in enumerate(islice(shares.all(), _MOST_PARTITIONS), 1):
        if led.state is LoadState.ACTIVE:
            labels = label_text(group=led.key.group_id, topic=led.partition.topic, partition=led.partition.index)
            machine = led.machine
            out.add_labelled(f"{prefix}inflightmessagecount", machine.in_flight.span, labels)
            span, runs = machine.in_flight.span, len(machine.in_flight.runs)
            out.add_labelled(f"{prefix}inflightbatchcount", runs, labels)
            out.add_labelled(f"{prefix}inflightbatchmessagecount_mean", round(span / max(1, runs), 3), labels)
            out.add_labelled(f"{prefix}acquisitionlocktimeout_total", led.lock_timeouts, labels)
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
