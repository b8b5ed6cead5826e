"""Samples as Prometheus' text format. Names of topics and groups come from clients: they are escaped and cut.

There are two dialects of names for Kafka's meters. The table of families has that of the JMX exporter's examples and of
Strimzi (`bytesin_total`, `avgidle_percent`); Confluent's has `bytesinpersec`, which is a counter all the same, and
`avgidlepercent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from pessoa.base.printable import printable
from pessoa.broker.metrics.families import FAMILIES

JMX_EXPORTER, CONFLUENT = "jmx-exporter", "confluent"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LONGEST_LABEL = 256


class Exposition:
    """Samples by family; a family that is in no table is a bug."""

    def __init__(self, dialect: str = JMX_EXPORTER) -> None:
        self._samples: dict[str, list[str]] = {name: [] for name in FAMILIES}
        self._names = {name: name if dialect == JMX_EXPORTER else confluent_name(name) for name in FAMILIES}

    def __repr__(self) -> str:
        return f"<Exposition of {sum(map(len, self._samples.values()))} samples>"

    def add(self, name: str, value: float, **labels: str | int) -> None:
        self.add_labelled(name, value, label_text(**labels) if labels else "")

    def add_labelled(self, name: str, value: float, labels: str, suffix: str = "") -> None:
        """Add a sample. `labels` is a `label_text`, which many samples share."""
        self._samples[name].append(f"{self._names[name]}{suffix}{labels} {value!r}\n")

    def lines(self) -> Iterator[str]:
        for key, samples in self._samples.items():
            name, family = self._names[key], FAMILIES[key]
            yield f"# HELP {name} {family.meaning}\n# TYPE {name} {family.kind}\n"
            yield from samples


def confluent_name(name: str) -> str:
    if not name.startswith("kafka_"):
        return name
    if name.endswith("_total"):
        return name.removesuffix("_total") + "persec"
    return name.removesuffix("_percent") + "percent" if name.endswith("_percent") else name


def label_text(**labels: str | int) -> str:
    return "{" + ",".join(f'{name}="{_escape_label(str(value))}"' for name, value in labels.items()) + "}"


@lru_cache(maxsize=4096)
def _escape_label(value: str) -> str:
    """Return the label value with control characters as Python writes them, and then escaped for the format."""
    shown = value if len(value) <= _LONGEST_LABEL else value[: _LONGEST_LABEL - 1] + "…"
    return printable(shown).replace("\\", "\\\\").replace('"', '\\"')
