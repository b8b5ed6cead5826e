"""PRINT: the records of a topic as readable text, with formats that are guessed from the bytes.

Key format: KAFKA_STRING
Value format: JSON or KAFKA_STRING
rowtime: 2026/11/17 14:00:00.000 Z, key: 1, value: {"a":1}, partition: 0
"""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import AsyncGenerator
from typing import NamedTuple

from pessoa.ksql.operators.records import KafkaRecord
from pessoa.ksql.server.kafka_clients import KafkaClients
from pessoa.ksql.server.query_rows import ResultRow, RowFeed
from pessoa.ksql.server.registry_access import ServerSchemas
from pessoa.ksql.server.topic_reader import SourceReader
from pessoa.ksql.syntax.statement_nodes import PrintTopic

_UNKNOWN = "¯\\_(ツ)_/¯ - no data processed"
_MAGIC = 0


class Guess(NamedTuple):
    format: str
    text: str


def guess(data: bytes | None, schemas: ServerSchemas | None) -> Guess:
    """Return the format that the bytes seem to have, and their text."""
    if data is None:
        return Guess("", "<null>")
    if len(data) > 5 and data[0] == _MAGIC and schemas is not None and (found := _with_schema(data, schemas)):
        return found
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable():
        try:
            json.loads(text)
        except ValueError:
            return Guess("KAFKA_STRING", text)
        return Guess("JSON or KAFKA_STRING", text)
    if len(data) == 4:
        return Guess("KAFKA_INT", str(struct.unpack(">i", data)[0]))
    if len(data) == 8:
        number, real = struct.unpack(">q", data)[0], struct.unpack(">d", data)[0]
        return Guess("KAFKA_BIGINT or KAFKA_DOUBLE", f"{number} or {real}" if abs(number) > 2**53 else str(number))
    return Guess("KAFKA_STRING", text) if text else Guess("UNRECOGNISED BYTES", data.hex())


def _with_schema(data: bytes, schemas: ServerSchemas) -> Guess | None:
    from pessoa.serde.codecs import codec_for
    from pessoa.serde.framing import unframe
    from pessoa.serde.schema_problems import DataProblem, SchemaProblem

    try:
        known = schemas.by_id(struct.unpack(">I", data[1:5])[0])
        if known is None:
            return None
        value = codec_for(known.type, known.text, known.references).to_json(unframe(data).payload)
        return Guess({"JSON": "JSON_SR"}.get(known.type, known.type), json.dumps(value, separators=(", ", ": ")))
    except (DataProblem, SchemaProblem):
        return None


class TopicPrinter:
    def __init__(self, clients: KafkaClients, schemas: ServerSchemas, statement: PrintTopic) -> None:
        self._schemas = schemas if schemas.is_there else None
        self._statement = statement
        self._reader = SourceReader(clients, {statement.topic: statement.from_beginning}, "_confluent-ksql-print")
        self._formats: dict[str, list[str]] = {"Key": [], "Value": []}

    def open(self) -> None:
        self._reader.open()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Yield lines until the limit is reached, or the client disconnects."""
        import threading

        feed = RowFeed()
        thread = threading.Thread(target=self._run, args=(feed,), name="ksql-print", daemon=True)
        thread.start()
        try:
            async for batch in feed.batches():
                yield "".join(f"{row.values[0]!s}\n" for row in batch).encode()
        finally:
            feed.close()
            self._reader.stop.set()

    def _run(self, feed: RowFeed) -> None:
        left = self._statement.limit
        every, seen = self._statement.interval or 1, 0
        for batch in self._reader.read():
            lines: list[str] = []
            for record in batch:
                seen += 1
                if (seen - 1) % every or left == 0:
                    continue
                lines += self._lines_of(record)
                left = None if left is None else left - 1
            if feed.closed.is_set() or (lines and not feed.put([ResultRow([line]) for line in lines])):
                return
            if left == 0:
                break
        feed.end()

    def _lines_of(self, record: KafkaRecord) -> list[str]:
        key, value = guess(record.key, self._schemas), guess(record.value, self._schemas)
        lines = []
        for side, found in (("Key", key), ("Value", value)):
            known = self._formats[side]
            if found.format and found.format not in known:
                known.append(found.format)
                lines.append(f"{side} format: {known[0] if len(known) == 1 else 'MIXED'}")
            elif not known and not found.format:
                lines.append(f"{side} format: {_UNKNOWN}") if record.offset == 0 and side == "Key" else None
        when = datetime.datetime.fromtimestamp(record.timestamp_ms / 1000, datetime.UTC)
        stamp = f"{when:%Y/%m/%d %H:%M:%S}.{record.timestamp_ms % 1000:03d} Z"
        lines.append(f"rowtime: {stamp}, key: {key.text}, value: {value.text}, partition: {record.partition}")
        return lines
