"""Transforms of a record's topic, and the one that drops records."""

from __future__ import annotations

from pessoa.connect.data import DataFailure, Record, from_millis
from pessoa.connect.definition import HIGH, REQUIRED, STRING, Config, Table, key
from pessoa.connect.java_dates import JavaDateFormat
from pessoa.connect.java_regex import JavaPattern, pattern_complaint
from pessoa.connect.transforms.transform import Transform


class RegexRouter(Transform):
    CONFIG = Table(
        key("regex", STRING, REQUIRED, pattern_complaint, HIGH, "Regular expression to use for matching."),
        key("replacement", STRING, REQUIRED, HIGH, "Replacement string."),
    )

    def configure(self, config: Config) -> None:
        self._pattern = JavaPattern(config.string("regex"))
        self._replacement = config.string("replacement")

    def apply(self, record: Record) -> Record:
        topic = self._pattern.replace_whole(record.topic, self._replacement)
        return record if topic is None else record.but(topic=topic)


class TimestampRouter(Transform):
    CONFIG = Table(
        key(
            "topic.format",
            STRING,
            "${topic}-${timestamp}",
            HIGH,
            "Format string which can contain <code>${topic}</code> and <code>${timestamp}</code> as placeholders.",
        ),
        key(
            "timestamp.format",
            STRING,
            "yyyyMMdd",
            HIGH,
            "Format string for the timestamp, as in SimpleDateFormat, in UTC.",
        ),
    )

    def configure(self, config: Config) -> None:
        self._topic = config.string("topic.format")
        self._format = JavaDateFormat(config.string("timestamp.format"))

    def apply(self, record: Record) -> Record:
        if record.timestamp is None:
            raise DataFailure(f"Timestamp missing on record: {record.topic}")
        moment = self._format.format(from_millis(record.timestamp))
        return record.but(topic=self._topic.replace("${topic}", record.topic).replace("${timestamp}", moment))


class Filter(Transform):
    """Drops every record that it is applied to; its predicate selects them."""

    def apply(self, record: Record) -> None:
        return None
