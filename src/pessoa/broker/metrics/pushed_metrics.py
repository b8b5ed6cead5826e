"""What clients have pushed (KIP-714), as it is shown on the page of metrics.

A metric keeps its name, with `_` for what Prometheus' names have not: `org.apache.kafka.producer.connection.count` is
`org_apache_kafka_producer_connection_count`. One that is not Kafka's begins with `client_`, so no client can push what
would pass for a metric of the broker. Counters end in `_total`, and are added up from what clients push.

    labels   what the broker knows of the client, `CLIENT_LABELS`, which no client can set itself; then the attributes
             that were pushed, at most `MOST_LABELS`

Everything else is the text of strangers, so it is bounded: `MOST_SAMPLES_OF_CLIENT` and `MOST_TEXT_OF_CLIENT` of names
and labels for a client, `MOST_SAMPLES` and `MOST_TEXT` for all. The client whose push is the oldest makes room for
a new one. What a client has pushed is shown until it has missed two pushes, a minute at least, whether it is still
connected or not.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from pessoa.broker.metrics.exposition import label_text
from pessoa.broker.metrics.families import COUNTER, GAUGE

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.broker.metrics.otlp_metrics import Point

MOST_SAMPLES_OF_CLIENT = 500
MOST_SAMPLES = 10_000
MOST_TEXT_OF_CLIENT = 256 * 1024
MOST_TEXT = 4 * 1024 * 1024
MOST_LABELS = 12
CLIENT_LABELS = ("client_instance_id", "client_id", "client_software_name", "client_software_version", "principal")
_LONGEST_NAME = 128
_LONGEST_LABEL_NAME = 64
_KAFKAS = "org_apache_kafka_"
_OTHERS = "client_"
_not_allowed = re.compile(r"[^a-zA-Z0-9_]")

# The family, and the labels of the point.
Series = tuple[str, str]


class Push:
    """The points of one push, while they are read."""

    __slots__ = ("deltas", "is_full", "values")

    def __init__(self) -> None:
        self.values: dict[Series, float] = {}
        # Which of them are what a counter has grown by.
        self.deltas: set[Series] = set()
        self.is_full = False

    def __repr__(self) -> str:
        return f"<Push of {len(self.values)} samples>"

    def add(self, point: Point) -> None:
        if not math.isfinite(point.value):
            # What a client has had nothing to measure for.
            return
        series = family_name(point.name[:_LONGEST_NAME], is_counter=point.is_counter), _labels(point.attributes)
        self.values[series] = point.value
        if point.is_delta:
            self.deltas.add(series)
        self.is_full = len(self.values) >= MOST_SAMPLES_OF_CLIENT


class _Client:
    __slots__ = ("expires_ms", "labels", "text_size", "values")

    def __init__(self) -> None:
        # Without the closing brace: those of its points follow.
        self.labels = ""
        self.expires_ms = 0
        self.values: dict[Series, float] = {}
        # Of the names and labels of its samples, in characters.
        self.text_size = 0

    def replace(self, push: Push) -> None:
        """Replace the client's metrics by the pushed ones; counters that the push leaves out have not grown, and
        stay."""
        before = self.values
        self.values, self.text_size = {}, 0
        for series, value in push.values.items():
            self._add(series, value + before.get(series, 0) if series in push.deltas else value)
        for series, value in before.items():
            if series not in push.values and series[0].endswith("_total"):
                self._add(series, value)

    def _add(self, series: Series, value: float) -> None:
        size = len(series[0]) + len(series[1])
        if len(self.values) < MOST_SAMPLES_OF_CLIENT and self.text_size + size <= MOST_TEXT_OF_CLIENT:
            self.values[series] = value
            self.text_size += size


class PushedMetrics:
    def __init__(self) -> None:
        # By their last push, the oldest first.
        self._clients: OrderedDict[Uuid, _Client] = OrderedDict()
        self._sample_count = 0
        self._text_size = 0
        # Clients that made room for others before their time.
        self.evicted_count = 0

    def __repr__(self) -> str:
        return f"<PushedMetrics: {self._sample_count} samples of {len(self._clients)} clients>"

    def put(self, instance_id: Uuid, labels: dict[str, str], push: Push, now_ms: int, expires_ms: int) -> None:
        """Show the pushed metrics of a client: counters are added up, all others replaced."""
        self.forget_old(now_ms)
        client = self._remove_client(instance_id) or _Client()
        client.replace(push)
        client.labels = label_text(**labels)[:-1]
        client.expires_ms = expires_ms
        self._clients[instance_id] = client
        self._sample_count += len(client.values)
        self._text_size += client.text_size
        while self._sample_count > MOST_SAMPLES or self._text_size > MOST_TEXT:
            self._remove_client(next(iter(self._clients)))
            self.evicted_count += 1

    def forget_old(self, now_ms: int) -> None:
        for instance_id in [one for one, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._remove_client(instance_id)

    def lines_of_clients(self) -> Iterator[list[tuple[str, str]]]:
        """Yield the lines of the page, client by client, each line with its family."""
        for client in list(self._clients.values()):
            samples = client.values.items()
            yield [(family, f"{family}{client.labels}{labels} {value!r}\n") for (family, labels), value in samples]

    def _remove_client(self, instance_id: Uuid) -> _Client | None:
        client = self._clients.pop(instance_id, None)
        if client is not None:
            self._sample_count -= len(client.values)
            self._text_size -= client.text_size
        return client


def family_text(family: str, lines: list[str]) -> str:
    kind = COUNTER if family.endswith("_total") else GAUGE
    return f"# HELP {family} Pushed by clients.\n# TYPE {family} {kind}\n{''.join(lines)}"


@lru_cache(maxsize=4096)
def family_name(name: str, *, is_counter: bool) -> str:
    """Return the name of a client's metric on the page. Only counters end in `_total`."""
    family = _not_allowed.sub("_", name)
    if not family.startswith(_KAFKAS):
        family = _OTHERS + family
    if is_counter:
        return family if family.endswith("_total") else f"{family}_total"
    return f"{family}_gauge" if family.endswith("_total") else family


def _labels(attributes: list[tuple[str, str]]) -> str:
    """Return the labels, each with a comma before it, and the closing brace."""
    shown: dict[str, str] = {}
    for key, value in attributes:
        name = _not_allowed.sub("_", key[:_LONGEST_LABEL_NAME]).lstrip("_0123456789")
        if name and name not in CLIENT_LABELS and len(shown) < MOST_LABELS:
            shown[name] = value
    return "," + label_text(**shown)[1:] if shown else "}"
