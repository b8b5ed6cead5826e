"""Messages of a topic: browsed, searched or followed, by a thread with a consumer of its own.

    MessageQuery → plan_ranges (pure: from where to where in each partition) → Scan (the thread) → batches of Message

A scan hands over batches through a bounded queue. Where the page is slower than the topic the thread waits, and so does
librdkafka behind it: a live tail falls behind, and drops nothing. What a scan holds is bounded by bytes as well as by
count, so that a topic of 5 MB messages does not take the memory of the service. `stop` ends it within a poll.

The consumer joins no group and commits nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from pessoa.base.json_value import JsonValue
from pessoa.control_center.filter_expressions import Filter
from pessoa.control_center.masking import ANYWHERE, HIDDEN, masked
from pessoa.control_center.message_decoding import Decoded, Decoder
from pessoa.control_center.offset_reset import Ends
from pessoa.net.freed_memory import return_freed_memory

log = logging.getLogger(__name__)

MAX_LIMIT = 1000
_POLL_S = 0.2
_BATCH = 500
# Decoded messages take several times their bytes.
_BATCH_BYTES = 2 << 20
_WAITING_BATCHES = 4
SHOWN_BYTES = 16 * 1024
# Indentation makes of 16 KB of brackets 29 MB, and a value of some hundred levels cannot be encoded again.
_SHOWN_LEVELS = 64
# A reading of less leaves little behind.
_TRIM_BYTES = 4 << 20
# So long is waited only if a broker fails.
_SILENCE_S = 20.0


_SIGN = re.compile(r'["{}\[\]:,]')
_WORD = re.compile(r"[a-z0-9_]+")
_EXPONENT = re.compile(rb"[0-9]e[+-]?[0-9]")


class Message(msgspec.Struct, frozen=True):
    partition: int
    offset: int
    timestamp: int
    key: JsonValue
    value: JsonValue
    headers: list[tuple[str, JsonValue]]
    size: int
    key_format: str = "text"
    value_format: str = "text"
    schema_id: int | None = None
    trouble: str | None = None
    # The value was truncated for the list; reading the message alone returns all of it.
    is_cut: bool = False

    def fields(self, topic: str) -> dict[str, JsonValue]:
        """Return the fields of the message that a filter can refer to."""
        return {
            "key": self.key, "value": self.value, "headers": dict(self.headers), "partition": self.partition,
            "offset": self.offset, "timestamp": self.timestamp, "topic": topic, "size": self.size,
        }  # fmt: skip


@dataclass(frozen=True)
class MessageQuery:
    """The messages to read: `start` is newest, earliest, offset, time or live; `amount` is the offset or the time
    (ms)."""

    topic: str
    start: str = "newest"
    amount: int = 0
    partitions: tuple[int, ...] | None = None
    limit: int = 50
    search: str = ""
    passes: Filter | None = None
    key_format: str = "auto"
    value_format: str = "auto"
    hidden: tuple[tuple[str, ...], ...] = ()
    whole_values: bool = False

    @property
    def is_selective(self) -> bool:
        return bool(self.search) or self.passes is not None


class Range(NamedTuple):
    start: int
    end: int


@dataclass
class Progress:
    """The progress of a scan, written by its thread and shown by the page."""

    total: int = 0
    scanned: int = 0
    matched: int = 0
    bytes: int = 0
    is_done: bool = False
    error: str | None = None
    seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)


def plan_ranges(query: MessageQuery, ends: Mapping[int, Ends], at_time: Mapping[int, int]) -> dict[int, Range]:
    """Return the offset range to read of each partition. `newest` reads the last `limit` records of each partition, but
    all of a partition if messages are filtered, since the matches may be anywhere."""
    found = {}
    for partition, (earliest, latest) in ends.items():
        if query.partitions is not None and partition not in query.partitions:
            continue
        match query.start:
            case "live":
                start = latest
            case "offset":
                start = min(max(query.amount, earliest), latest)
            case "time":
                start = latest if at_time.get(partition, -1) < 0 else at_time[partition]
            case "newest" if not query.is_selective:
                start = max(earliest, latest - query.limit)
            case _:
                start = earliest
        if start < latest or query.start == "live":
            found[partition] = Range(start, latest)
    return found


class Scan:
    """A scan of a topic's messages in a thread. `async for batch in scan.batches()`; leaving the loop early needs
    `stop()`."""

    def __init__(
        self, query: MessageQuery, ranges: Mapping[int, Range], open_consumer: Callable[[], Consumer], decoder: Decoder
    ) -> None:
        self.query = query
        self.progress = Progress(total=sum(one.end - one.start for one in ranges.values()))
        self._ranges = dict(ranges)
        self._open_consumer = open_consumer
        self._decoder = decoder
        self._words = search_words(query.search) if query.search.isascii() else ()
        self._shows_words_of_bytes = all(
            decoder.shows_words_of_bytes(query.topic, part, wanted)
            for part, wanted in (("key", query.key_format), ("value", query.value_format))
        )
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[list[Message] | None] = asyncio.Queue()
        self._room = threading.Semaphore(_WAITING_BATCHES)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="message-scan", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Scan of {self.query.topic}: {self.progress}>"

    def stop(self) -> None:
        self._stopped.set()
        self._room.release()

    async def batches(self) -> AsyncIterator[list[Message]]:
        try:
            while (batch := await self._batches.get()) is not None:
                self._room.release()
                yield batch
        finally:
            self.stop()

    def take_waiting(self) -> list[Message]:
        """Return the messages that are queued, without waiting for more."""
        found: list[Message] = []
        while not self._batches.empty():
            batch = self._batches.get_nowait()
            if batch is not None:
                self._room.release()
                found += batch
        return found

    # The thread.

    def _run(self) -> None:
        try:
            if self._ranges:
                self._read()
        except KafkaException as failure:
            self.progress.error = failure.args[0].str()
        except Exception as failure:
            log.exception("reading %s failed", self.query.topic)
            self.progress.error = str(failure) or type(failure).__name__
        finally:
            self.progress.seconds = time.monotonic() - self.progress.started
            self.progress.is_done = True
            self._put_batch(None)
            if self.progress.bytes > _TRIM_BYTES:
                return_freed_memory()

    def _read(self) -> None:
        consumer = self._open_consumer()
        try:
            consumer.assign([TopicPartition(self.query.topic, at, one.start) for at, one in self._ranges.items()])
            self._consume(consumer)
        finally:
            consumer.close()

    def _consume(self, consumer: Consumer) -> None:
        is_live = self.query.start == "live"
        open_ends = {at: one.end for at, one in self._ranges.items() if one.end > one.start or is_live}
        batch: list[Message] = []
        taken_bytes, last_record_s = 0, time.monotonic()
        while open_ends and not self._stopped.is_set():
            records = consumer.consume(_BATCH, _POLL_S)
            for record in records:
                if self._is_past_end(record, open_ends, is_live):
                    continue
                message = self._examine(record)
                if message is not None:
                    batch.append(message)
                    taken_bytes += min(message.size, 4 * SHOWN_BYTES)
                if taken_bytes > _BATCH_BYTES:
                    self._hand_over(batch)
                    batch, taken_bytes = [], 0
                if not is_live and self.query.start != "newest" and self.progress.matched >= self.query.limit:
                    open_ends.clear()
                    break
            if batch and (len(batch) >= _BATCH or is_live or not records or self.query.is_selective):
                self._hand_over(batch)
                batch, taken_bytes = [], 0
            if records:
                last_record_s = time.monotonic()
            elif not is_live:
                self._close_ends_at_gaps(consumer, open_ends)
                if time.monotonic() - last_record_s > _SILENCE_S:
                    raise TimeoutError("The brokers have not sent anything for a while; is the leader of it away?")
        if batch:
            self._hand_over(batch)

    def _is_past_end(self, record: KafkaMessage, open_ends: dict[int, int], is_live: bool) -> bool:
        """Note how far the partition was read; return True if the record lies outside of the range to show."""
        error = record.error()
        if error is not None:
            raise KafkaException(error)
        partition, offset = record.partition() or 0, record.offset() or 0
        if is_live:
            return False
        end = open_ends.get(partition)
        if end is not None and offset >= end - 1:
            del open_ends[partition]
        return end is None or offset >= end

    def _close_ends_at_gaps(self, consumer: Consumer, open_ends: dict[int, int]) -> None:
        """Close partitions in which only offsets without a record (compaction, control records) are left."""
        for at in consumer.position([TopicPartition(self.query.topic, number) for number in open_ends]):
            if at.offset >= open_ends[at.partition]:
                del open_ends[at.partition]

    def _examine(self, record: KafkaMessage) -> Message | None:
        self.progress.scanned += 1
        self.progress.bytes += len(record)
        query = self.query
        # What is masked must not be found, so only what is shown counts where something is.
        is_found = not query.search or (not query.hidden and _has_raw_text(record, query.search))
        if not is_found and not self._may_match(record, query.search):
            return None
        message = to_message(record, query, self._decoder)
        if not is_found and not _has_text(message, query.search.casefold()):
            return None
        if query.passes is not None and not query.passes(message.fields(query.topic)):
            return None
        self.progress.matched += 1
        message = _flatten(message)
        return message if query.whole_values else _truncate(message)

    def _may_match(self, record: KafkaMessage, text: str) -> bool:
        """Whether the raw bytes can match the search: most messages are dropped here, before they are decoded."""
        if not self._shows_words_of_bytes or not text.isascii() or "\\" in text:
            return True
        if any(data and may_show(data, self._words) for data in (record.value(), record.key())):
            return True
        return bool(record.headers())

    def _hand_over(self, batch: list[Message]) -> None:
        while not self._room.acquire(timeout=1.0):
            if self._stopped.is_set():
                return
        if not self._stopped.is_set():
            self._put_batch(batch)

    def _put_batch(self, batch: list[Message] | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._batches.put_nowait, batch)
        except RuntimeError:
            log.debug("the loop has ended before the scan of %s", self.query.topic)


def search_words(text: str) -> tuple[bytes, ...]:
    """Return the byte strings that a message must contain to match an ASCII search text: the whole text; or, where the
    text has JSON punctuation, its words, since the message may have other spaces between them."""
    lowered = text.lower()
    if _SIGN.search(lowered) is None:
        return (lowered.encode(),)
    return tuple(dict.fromkeys(one.encode() for one in _WORD.findall(lowered)))


def may_show(data: bytes, words: tuple[bytes, ...]) -> bool:
    """Return False if these bytes, decoded and shown as text, cannot contain all the words. Text and JSON without
    escapes and exponents are shown as they are; other formats are not known before they are decoded, so the result
    is True."""
    if data[0] < 9 or data[0] > 127 or b"\\" in data:
        return True
    lowered = data.lower()
    return all(one in lowered for one in words) or _EXPONENT.search(lowered) is not None


def to_message(record: KafkaMessage, query: MessageQuery, decoder: Decoder) -> Message:
    key = _read_part(record.key(), query.key_format, query, "key", decoder)
    value = _read_part(record.value(), query.value_format, query, "value", decoder)
    headers = [(name, decoder.decode(data).value) for name, data in _headers(record)]
    if query.hidden:
        shown = masked(dict(headers), "headers", query.hidden)
        headers = [(name, shown[name] if isinstance(shown, dict) else HIDDEN) for name, _ in headers]
    return Message(
        partition=record.partition() or 0,
        offset=record.offset() or 0,
        timestamp=record.timestamp()[1],
        key=key.value,
        value=value.value,
        headers=headers,
        size=len(record.value() or b"") + len(record.key() or b""),
        key_format=key.format,
        value_format=value.format,
        schema_id=value.schema_id,
        trouble=value.trouble or key.trouble,
    )


def _read_part(data: bytes | None, wanted: str, query: MessageQuery, part: str, decoder: Decoder) -> Decoded:
    """Return the decoded key or value with the reader's masks applied. Masks name the fields of the format that the
    bytes have; decoded in another format the same bytes may have other field names, so all of the value is hidden
    then. The error of a masked value is dropped, since it may quote the bytes."""
    found = decoder.decode(data, wanted, query.topic, part)
    if not any(path[0] in (part, ANYWHERE) for path in query.hidden):
        return found
    shown = masked(found.value, part, query.hidden)
    if wanted != "auto" and decoder.decode(data, "auto", query.topic, part).format != found.format:
        shown = HIDDEN
    return found if shown is found.value else found._replace(value=shown, trouble=None)


def _has_raw_text(record: KafkaMessage, text: str) -> bool:
    """Whether the bytes contain the text as it was typed, ignoring the case of ASCII letters."""
    wanted = text.lower().encode()
    return any(data is not None and wanted in data.lower() for data in (record.value(), record.key()))


def _headers(record: KafkaMessage) -> list[tuple[str, bytes | None]]:
    # The stubs say that headers may be an object of texts as well, which is how one may be given to a producer.
    return cast("list[tuple[str, bytes | None]]", record.headers() or [])


def as_text(value: JsonValue) -> str:
    if value is None:
        return ""
    try:
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except RecursionError:
        return "[…]"


def _has_text(message: Message, wanted: str) -> bool:
    return (
        wanted in as_text(message.value).casefold()
        or wanted in as_text(message.key).casefold()
        or any(wanted in name.casefold() or wanted in as_text(value).casefold() for name, value in message.headers)
    )


def newest(messages: Iterable[Message], limit: int) -> list[Message]:
    """Return the newest messages of all partitions, the newest first."""
    return sorted(messages, key=lambda one: (one.timestamp, one.offset), reverse=True)[:limit]


def _flatten(message: Message) -> Message:
    """Return the message with values that are nested too deeply for pages and the API as JSON text."""
    parts = (message.key, message.value, *(value for _, value in message.headers))
    if not any(_is_deeper(one, _SHOWN_LEVELS) for one in parts):
        return message
    key, value, *headers = (as_text(one) if _is_deeper(one, _SHOWN_LEVELS) else one for one in parts)
    named = [(name, one) for (name, _), one in zip(message.headers, headers, strict=True)]
    trouble = message.trouble or f"This is nested more than {_SHOWN_LEVELS} deep, and is shown as text."
    return msgspec.structs.replace(message, key=key, value=value, headers=named, trouble=trouble)


def _is_deeper(value: JsonValue, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in items)


def _truncate(message: Message) -> Message:
    if message.size <= SHOWN_BYTES:
        return message
    text = as_text(message.value)
    return msgspec.structs.replace(message, value=text[:SHOWN_BYTES], is_cut=len(text) > SHOWN_BYTES)
