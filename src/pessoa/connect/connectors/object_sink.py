"""Files of records, in a folder or in an S3 bucket: JSON lines, Avro, Parquet or raw bytes.

    topics/<topic>/<partition of the layout>/<topic>+<kafka partition>+<first offset, ten digits>.json

A file holds records of one partition of a topic, at most `flush.size` of them, and one place of the layout: by
default `partition=<n>`, or by a field of the value, or by time. A file is whole or not there, and its name follows
from its first offset: a batch that comes again after a crash writes the same files over themselves, so every record
is there exactly once.

A file never waits for the next batch: what is put is delivered. So a slow topic makes small files; a longer
`rotate.schedule.interval.ms`, which is the time between two batches, makes larger ones.
"""

from __future__ import annotations

import gzip
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from pessoa.base.config_values import Value, at_least, one_of
from pessoa.connect.connector import RetriableFailure, SinkConnector
from pessoa.connect.connectors.object_formats import FORMATS, Format
from pessoa.connect.connectors.object_partitioners import PARTITIONERS, Partitioner
from pessoa.connect.data import MISFITS, DataFailure, Record, Schema
from pessoa.connect.definition import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    REQUIRED,
    STRING,
    Config,
    Key,
    Settings,
    Table,
    key,
)


def _is_format(value: Value, _: Settings) -> str | None:
    return None if str(value).rpartition(".")[2] in FORMATS else f"there are {', '.join(FORMATS)}"


def _is_partitioner(value: Value, _: Settings) -> str | None:
    return None if str(value).rpartition(".")[2] in PARTITIONERS else f"there are {', '.join(PARTITIONERS)}"


def storage_keys() -> list[Key]:
    return [
        key("format.class", STRING, "JsonFormat", _is_format, HIGH, "How records are written.", group="Storage",
            recommended=tuple(FORMATS)),
        key("flush.size", INT, REQUIRED, at_least(1), HIGH, "The most records of one file.", group="Connector"),
        key("rotate.interval.ms", LONG, -1, HIGH, "Files are closed with every batch, which is sooner.",
            group="Connector"),
        key("rotate.schedule.interval.ms", LONG, -1, MEDIUM, "The time between two batches.", group="Connector"),
        key("topics.dir", STRING, "topics", HIGH, "The folder above all topics.", group="Storage"),
        key("file.delim", STRING, "+", MEDIUM, "What stands between the parts of a file's name.", group="Storage"),
        key("filename.offset.zero.pad.width", INT, 10, at_least(0), LOW, "The digits of an offset.", group="Connector"),
        key("partitioner.class", STRING, "DefaultPartitioner", _is_partitioner, HIGH, "What decides about folders.",
            group="Partitioner", recommended=tuple(PARTITIONERS)),
        key("partition.field.name", LIST, (), MEDIUM, "The fields that name folders.", group="Partitioner"),
        key("partition.duration.ms", LONG, -1, MEDIUM, "The time of one folder.", group="Partitioner"),
        key("path.format", STRING, "", MEDIUM, "The folder for a time: 'year'=YYYY/'month'=MM.", group="Partitioner"),
        key("locale", STRING, "", MEDIUM, "Names of days and months are English.", group="Partitioner"),
        key("timezone", STRING, "UTC", MEDIUM, "The zone of times; UTC.", group="Partitioner"),
        key("timestamp.extractor", STRING, "Wallclock", one_of("Wallclock", "Record", "RecordField"), MEDIUM,
            "Which time: now, the record's, or a field's.", group="Partitioner"),
        key("timestamp.field", STRING, "timestamp", MEDIUM, "The field, for RecordField.", group="Partitioner"),
        key("directory.delim", STRING, "/", MEDIUM, "What stands between folders.", group="Storage"),
        key("behavior.on.null.values", STRING, "fail", one_of("fail", "ignore", "write"), LOW,
            "What becomes of records "
            "without a value.", group="Connector"),
        key("schema.compatibility", STRING, "NONE", LOW, "A new schema begins a new file.", group="Schema"),
        key("storage.class", STRING, "", LOW, "The storage follows from the connector.", group="Storage"),
        key("avro.codec", STRING, "null", one_of("null", "deflate"), LOW, "The compression inside Avro files.",
            group="Storage"),
        key("parquet.codec", STRING, "snappy", one_of("none", "snappy", "gzip", "zstd"), LOW, "The compression inside "
            "Parquet files.", group="Storage"),
    ]  # fmt: skip


class _ObjectSink(SinkConnector):
    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        layout = settings.get("partitioner.class", "").rpartition(".")[2]
        needed = {"FieldPartitioner": ("partition.field.name",),
                  "TimeBasedPartitioner": ("path.format", "partition.duration.ms")}  # fmt: skip
        missing = [name for name in needed.get(layout, ()) if not settings.get(name)]
        return dict.fromkeys(missing, f"{layout} needs it")

    def start(self, config: Config) -> None:
        self._config = config
        self._format: Format = FORMATS[config.string("format.class").rpartition(".")[2]](config)
        self._partitioner: Partitioner = PARTITIONERS[config.string("partitioner.class").rpartition(".")[2]](config)

    def put(self, records: Sequence[Record]) -> None:
        files: dict[tuple[str, str, int | None, Schema | None], list[Record]] = {}
        for record in records:
            if record.value is None and not self._keeps_null(record):
                continue
            try:
                folder = self._partitioner.folder(record)
            except MISFITS as failure:
                self.report(record, failure)
                continue
            files.setdefault((record.topic, folder, record.partition, record.value_schema), []).append(record)
        size = self._config.integer("flush.size")
        for (topic, folder, partition, _), inside in files.items():
            for first in range(0, len(inside), size):
                self._write_file(topic, folder, partition, inside[first : first + size])

    def _keeps_null(self, record: Record) -> bool:
        behaviour = self._config.string("behavior.on.null.values")
        if behaviour == "fail":
            self.report(record, DataFailure("a record has no value, and behavior.on.null.values=fail"))
        return behaviour == "write"

    def _write_file(self, topic: str, folder: str, partition: int | None, records: Sequence[Record]) -> None:
        config = self._config
        try:
            data = self._format.encode(records)
        except MISFITS as failure:
            if len(records) == 1:
                self.report(records[0], failure)
                return
            for record in records:
                self._write_file(topic, folder, partition, [record])
            return
        offset = str(records[0].offset).zfill(config.integer("filename.offset.zero.pad.width"))
        suffix = self._format.suffix
        if config.get("s3.compression.type") == "gzip" and self._format.may_be_compressed:
            # Without the time in the header: the same records are the same bytes.
            data, suffix = gzip.compress(data, mtime=0), f"{suffix}.gz"
        name = config.string("file.delim").join((topic, str(partition), offset)) + suffix
        self._store("/".join(filter(None, (config.string("topics.dir"), topic, folder, name))), data)

    @abstractmethod
    def _store(self, path: str, data: bytes) -> None: ...


class FileSystemSinkConnector(_ObjectSink):
    """A sink that writes files below a folder of this machine, or of a file system that all executors see."""

    NAMES = ("pessoa.connect.connectors.FileSystemSinkConnector",)
    CONFIG = Table(key("store.url", STRING, REQUIRED, HIGH, "The folder.", group="Storage"), storage_keys())

    def _store(self, path: str, data: bytes) -> None:
        root = Path(self._config.string("store.url").removeprefix("file://"))
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # Under a name of its own until it is whole, so that a reader never sees half of it.
        partial = target.with_name(f".{target.name}.{uuid4().hex}")
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target)


class S3Client(Protocol):
    """The only method of boto3's client that is used."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> object: ...  # noqa: N803


class S3SinkConnector(_ObjectSink):
    """A sink that writes objects to an S3 bucket, by boto3 (`pip install boto3`)."""

    NAMES = ("io.confluent.connect.s3.S3SinkConnector",)
    CONFIG = Table(
        key("s3.bucket.name", STRING, REQUIRED, HIGH, "The bucket.", group="S3"),
        key("s3.region", STRING, "us-west-2", MEDIUM, "Its region.", group="S3"),
        key("store.url", STRING, None, LOW, "The address of another service than Amazon's.", group="S3"),
        key("aws.access.key.id", STRING, "", HIGH, "Who we are; from the environment if empty.", group="S3"),
        key("aws.secret.access.key", PASSWORD, "", HIGH, "Our secret.", group="S3"),
        key("s3.compression.type", STRING, "none", one_of("none", "gzip"), LOW, "For JSON and raw bytes.", group="S3"),
        key("s3.part.size", INT, 26214400, LOW, "Objects are written in one piece.", group="S3"),
        key("s3.path.style.access.enabled", BOOLEAN, True, LOW, "Whether the bucket stands in the path.", group="S3"),
        storage_keys(),
    )

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        from importlib.util import find_spec

        if find_spec("boto3") is None:
            return {"s3.bucket.name": "S3 needs the package boto3: pip install 'pessoa[s3]'"}
        return super().check(settings)

    def start(self, config: Config) -> None:
        super().start(config)
        import boto3
        from botocore.config import Config

        style = "path" if config["s3.path.style.access.enabled"] else "virtual"
        self._client: S3Client = boto3.client(
            "s3",
            region_name=config["s3.region"],
            endpoint_url=config["store.url"] or None,
            aws_access_key_id=config["aws.access.key.id"] or None,
            aws_secret_access_key=config["aws.secret.access.key"] or None,
            config=Config(s3={"addressing_style": style}, retries={"mode": "standard", "max_attempts": 5}),
        )

    def _store(self, path: str, data: bytes) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.put_object(Bucket=self._config.string("s3.bucket.name"), Key=path, Body=data)
        except BotoCoreError as failure:
            raise RetriableFailure(f"S3: {failure}") from None
        except ClientError as refused:
            status = refused.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status >= 500 or status == 429:
                raise RetriableFailure(f"S3: {refused}") from None
            raise
