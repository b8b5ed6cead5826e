"""A topic's messages copied to another topic, of this cluster or another: keys, values, headers and timestamps as they
are.

A copy reads up to where the topic ended when it began. Messages with a key go where the producer's partitioner puts the
key, so one key stays in one partition and in order; `progress.scanned` counts what was read, `copied` what the other
cluster has acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import Message as KafkaMessage

from pessoa.control_center.message_decoding import Decoder
from pessoa.control_center.message_reading import Message, MessageQuery, Range, Scan

_FLUSH_S = 30.0


class CopyScan(Scan):
    """A scan that produces every message of a whole topic to another topic."""

    def __init__(
        self, query: MessageQuery, ranges: Mapping[int, Range], open_consumer: Callable[[], Consumer], decoder: Decoder,
        open_producer: Callable[[], Producer], target: str,
    ) -> None:  # fmt: skip
        # The thread begins in the constructor of a scan.
        self.target = target
        self.copied = 0
        self._open_producer = open_producer
        super().__init__(query, ranges, open_consumer, decoder)

    def _read(self) -> None:
        self._producer = self._open_producer()
        try:
            super()._read()
        finally:
            left = self._producer.flush(_FLUSH_S)
        if left and self.progress.error is None:
            self.progress.error = f"{left} messages were not acknowledged within {_FLUSH_S:.0f} s."

    def _examine(self, record: KafkaMessage) -> Message | None:
        self.progress.scanned += 1
        self.progress.bytes += len(record)
        at_ms = record.timestamp()[1]
        while True:
            try:
                self._producer.produce(
                    self.target, record.value(), record.key(), headers=record.headers() or [],
                    timestamp=max(at_ms, 0), on_delivery=self._on_delivery,
                )  # fmt: skip
                break
            except BufferError:
                # The other cluster is slower than this one.
                self._producer.poll(0.5)
        self._producer.poll(0)
        return None

    def _on_delivery(self, error: KafkaError | None, _: KafkaMessage) -> None:
        if error is None:
            self.copied += 1
            return
        self.progress.error = f"{self.target} does not take a message: {error.str()}"
        self.stop()
