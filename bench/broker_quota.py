"""A producer with a quota beside one without: the bytes of each in twenty seconds, compared with Apache Kafka.

Both are librdkafka's, in this process, each with its client id; `producer_byte_rate` of the one is 1 MB/s. Bytes are
those of acknowledged values, counted between two moments: the first is `WARM_UP_S` after the start, when the burst that
every new client may have is over (ten seconds' worth at once, after which it is throttled), and the second is twenty
seconds later. `share of the limit` should be 1, and the quota should have no effect on the other producer.
"""

from __future__ import annotations

import time
from threading import Thread
from typing import TYPE_CHECKING, Any

from bench.apache import QUIET, Figures, Side, compare, create_topic
from tests.support.quota_clients import NamedWire

if TYPE_CHECKING:
    from bench.report import Report

LIMIT_BYTES = 1_000_000
WARM_UP_S = 24.0
MEASURED_S = 20.0
VALUE = b"x" * 1000
# The rate of the producer without a quota, which it also reaches on a busy machine.
FREE_RECORDS_PER_S = 2_000
TOPIC = "quota"


def run(report: Report) -> None:
    compare(report, measure)


class Load(Thread):
    """A producer that sends as fast as it can, or so many records per second, and counts the acknowledged bytes."""

    def __init__(self, side: Side, client_id: str, records_per_s: int | None) -> None:
        super().__init__(daemon=True)
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": side.bootstrap, "client.id": client_id, "acks": "all", "linger.ms": 5}
        small = {"queue.buffering.max.messages": 2_000, "batch.size": 64_000}
        self._producer: Any = Producer({**settings, **small, **QUIET})
        self._records_per_s = records_per_s
        self.acknowledged_bytes = 0
        self.is_ending = False

    def run(self) -> None:
        began_s, count = time.monotonic(), 0
        while not self.is_ending:
            due = self._records_per_s is None or count < (time.monotonic() - began_s) * self._records_per_s
            try:
                if due:
                    self._producer.produce(TOPIC, VALUE, on_delivery=self._delivered)
                    count += 1
                self._producer.poll(0 if due else 0.002)
            except BufferError:
                self._producer.poll(0.01)
        self._producer.purge()
        # librdkafka's producer ends when nothing refers to it.
        self._producer = None

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged_bytes += len(VALUE)


def measure(side: Side) -> Figures:
    create_topic(side, TOPIC, 1)
    with NamedWire(side.port, "admin") as admin:
        admin.alter_quotas({(("client-id", "limited"),): {"producer_byte_rate": float(LIMIT_BYTES)}})
    loads = [Load(side, "limited", None), Load(side, "free", FREE_RECORDS_PER_S)]
    for load in loads:
        load.start()
    time.sleep(WARM_UP_S)
    before, began_s = [load.acknowledged_bytes for load in loads], time.monotonic()
    time.sleep(MEASURED_S)
    after, passed_s = [load.acknowledged_bytes for load in loads], time.monotonic() - began_s
    for load in loads:
        load.is_ending = True
        load.join()
    limited, free = ((end - start) / passed_s for start, end in zip(before, after, strict=True))
    return {
        ("limited to 1 MB/s: share of the limit over 20 s", "×"): limited / LIMIT_BYTES,
        ("beside it, without a quota: share of what it sends", "×"): free / (FREE_RECORDS_PER_S * len(VALUE)),
    }
