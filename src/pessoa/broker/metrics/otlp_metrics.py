"""The metrics that a client pushes: OTLP's `MetricsData`, read from protobuf's bytes point by point, within bounds.

    MetricsData      1 ResourceMetrics…      ResourceMetrics  1 Resource, 2 ScopeMetrics…
    Resource         1 KeyValue…             ScopeMetrics     2 Metric…
    Metric           1 name, 5 Gauge, 7 Sum  (and others, which Kafka's clients do not send)
    Gauge            1 NumberDataPoint…      Sum              1 NumberDataPoint…, 2 temporality, 3 is monotonic
    NumberDataPoint  4 double, 6 integer, 7 KeyValue…
    KeyValue         1 key, 2 AnyValue       AnyValue         1 string, 2 boolean, 3 integer, 4 double

Other fields are passed over. A sum that only grows is a counter; with delta temporality a point is what it has grown by
since the last push. Nothing is nested deeper than this table, and no more than `MOST_FIELDS` fields are looked at, so
a push takes some hundredths of a second at most, whatever a client sends; a reader may stop between any two points.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

MOST_FIELDS = 50_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_DELTA = 1
_read_double = Struct("<d").unpack_from
_read_long = Struct("<q").unpack_from

# Longer text is truncated here; the metrics page shows still less of it.
_LONGEST_TEXT = 512
_MOST_ATTRIBUTES = 16


class MalformedMetrics(Exception):
    """The pushed bytes are not a `MetricsData`, or have too many fields."""


class Point(NamedTuple):
    name: str
    # Those of the client first, then those of the point.
    attributes: list[tuple[str, str]]
    value: float
    is_counter: bool
    # Whether a counter's value is what it has grown by.
    is_delta: bool


# Where a nested message or a text begins and ends.
Span = tuple[int, int]


def read_points(data: bytes) -> Iterator[Point]:
    """Yield the data points. Raises MalformedMetrics."""
    return _Reader(data).points()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._fields_left = MOST_FIELDS

    def points(self) -> Iterator[Point]:
        for _, resource_metrics in self._messages((0, len(self._data)), 1):
            attributes: list[tuple[str, str]] = []
            for number, span in self._messages(resource_metrics, 1, 2):
                if number == 1:
                    attributes += self._attributes(one for _, one in self._messages(span, 1))
                    continue
                for _, metric in self._messages(span, 2):
                    yield from self._metric(metric, attributes)

    def _metric(self, metric: Span, attributes: list[tuple[str, str]]) -> Iterator[Point]:
        name = ""
        for number, span in self._messages(metric, 1, 5, 7):
            if number == 1:
                name = self._text(span)
                continue
            is_counter = is_delta = False
            points: list[Span] = []
            for field, kind, start, end in self._fields(span):
                if field == 1 and kind == _BYTES:
                    points.append((start, end))
                elif field == 2 and kind == _VARINT:
                    is_delta = start == _DELTA
                elif field == 3 and kind == _VARINT:
                    is_counter = number == 7 and bool(start)
            for point in points:
                value, own = self._point(point)
                if value is not None:
                    # A sum that may shrink is shown as it is: a gauge.
                    yield Point(name, attributes + own, value, is_counter, is_delta and is_counter)

    def _point(self, point: Span) -> tuple[float | None, list[tuple[str, str]]]:
        value: float | None = None
        attributes: list[Span] = []
        for number, kind, start, end in self._fields(point):
            if number == 4 and kind == _FIXED64:
                value = _read_double(self._data, start)[0]
            elif number == 6 and kind == _FIXED64:
                value = _read_long(self._data, start)[0]
            elif number == 7 and kind == _BYTES:
                attributes.append((start, end))
        return value, self._attributes(attributes)

    def _attributes(self, spans: Iterator[Span] | list[Span]) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for span in spans:
            key = value = ""
            for number, part in self._messages(span, 1, 2):
                if number == 1:
                    key = self._text(part)
                else:
                    value = self._value(part)
            if len(found) < _MOST_ATTRIBUTES:
                found.append((key, value))
        return found

    def _value(self, span: Span) -> str:
        for number, kind, start, end in self._fields(span):
            if number == 1 and kind == _BYTES:
                return self._text((start, end))
            if number == 2 and kind == _VARINT:
                return "true" if start else "false"
            if number == 3 and kind == _VARINT:
                return str(start - (start >> 63 << 64))
            if number == 4 and kind == _FIXED64:
                return repr(_read_double(self._data, start)[0])
        return ""

    def _text(self, span: Span) -> str:
        start, end = span
        return self._data[start : min(end, start + _LONGEST_TEXT)].decode("utf-8", "replace")

    def _messages(self, span: Span, *numbers: int) -> Iterator[tuple[int, Span]]:
        """Yield the number and the span of each length-delimited field that has one of these numbers."""
        for number, kind, start, end in self._fields(span):
            if kind == _BYTES and number in numbers:
                yield number, (start, end)

    def _fields(self, span: Span) -> Iterator[tuple[int, int, int, int]]:
        """Yield the number and the wire type of each field; for a varint its value, otherwise the range of its
        bytes."""
        position, last = span
        while position < last:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise MalformedMetrics(f"it has more than {MOST_FIELDS} fields")
            tag, position = self._varint(position, last)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, position = self._varint(position, last)
                yield number, kind, value, -1
                continue
            if kind == _BYTES:
                size, position = self._varint(position, last)
            elif kind == _FIXED64:
                size = 8
            elif kind == _FIXED32:
                size = 4
            else:
                raise MalformedMetrics(f"field {number} is of kind {kind}, which there is not")
            end = position + size
            if end > last:
                raise MalformedMetrics(f"field {number} has {size} bytes, and {last - position} are left")
            yield number, kind, position, end
            position = end

    def _varint(self, position: int, last: int) -> tuple[int, int]:
        data = self._data
        if position < last and (first := data[position]) < 0x80:
            return first, position + 1
        value = shift = 0
        for at in range(position, min(last, position + _LONGEST_VARINT)):
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
            shift += 7
        raise MalformedMetrics(f"a number at byte {position} does not end")
