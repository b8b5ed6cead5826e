"""A worker's settings, under Kafka's names: the properties files of Kafka's workers can be used as they are.

    bootstrap.servers  group.id  listeners  rest.advertised.*  plugin.path  key.converter …
    config.storage.topic  offset.storage.topic  status.storage.topic    distributed: state in topics, anywhere
    offset.storage.file.filename                                        standalone: state in this process and one file

What is ours: `pessoa.home` (checkpoints and Spark's files), `pessoa.spark.remote` (a Spark cluster, sc://host:15002)
and `pessoa.pace.ms`; `pessoa.folder` is added for the tasks. Without a `plugin.path` it is the folder `plugins` in the
home, if there is one. A key that means nothing here is accepted and ignored.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pessoa.connect.converters import SIMPLE_HEADER

DEFAULT_PORT = 8083
JSON = "org.apache.kafka.connect.json.JsonConverter"
DEFAULTS = {
    "bootstrap.servers": "localhost:9092",
    "group.id": "connect-cluster",
    "key.converter": JSON,
    "value.converter": JSON,
    "header.converter": SIMPLE_HEADER,
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "3",
    "offset.storage.replication.factor": "3",
    "status.storage.replication.factor": "3",
    "offset.storage.partitions": "25",
    "status.storage.partitions": "5",
    # Between two looks at a source or a topic that has nothing new.
    "pessoa.pace.ms": "500",
    "topic.creation.enable": "true",
    "topic.tracking.enable": "true",
    "topic.tracking.allow.reset": "true",
}
_TOPICS = ("config.storage.topic", "offset.storage.topic", "status.storage.topic")


class BadConfig(Exception):
    """A setting that cannot be used; the sentence names it."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    # Everything, with defaults filled in; tasks get this as it is.
    settings: Mapping[str, str]
    listen_host: str
    listen_port: int
    advertised_host: str
    advertised_port: int | None
    home: Path
    is_standalone: bool = False

    def __getitem__(self, key: str) -> str:
        return self.settings[key]

    @property
    def bootstrap_servers(self) -> str:
        return self.settings["bootstrap.servers"]

    @property
    def spark_remote(self) -> str | None:
        return self.settings.get("pessoa.spark.remote") or self.settings.get("spark.remote") or None

    @property
    def tracks_topics(self) -> bool:
        return self.settings["topic.tracking.enable"].lower() == "true"


def make_config(given: Mapping[str, str], *, is_standalone: bool = False) -> WorkerConfig:
    settings = {**DEFAULTS, **given}
    if is_standalone:
        for topic in _TOPICS:
            settings.pop(topic)
    for name in ("offset.storage.partitions", "status.storage.partitions"):
        if not settings[name].isdigit() or not int(settings[name]):
            raise BadConfig(f"{name}={settings[name]}: it must be a number above 0")
    host, port = _listener(settings)
    advertised = settings.get("rest.advertised.host.name") or (socket.gethostname() if host == "0.0.0.0" else host)  # noqa: S104
    advertised_port = settings.get("rest.advertised.port")
    # Where relative names of files are looked for, wherever a task runs.
    settings["pessoa.folder"] = str(Path.cwd())
    home = settings["pessoa.home"] = str(Path(settings.get("pessoa.home") or _default_home()).expanduser())
    if (Path(home) / "plugins").is_dir():
        settings.setdefault("plugin.path", str(Path(home) / "plugins"))
    return WorkerConfig(
        settings,
        host,
        port,
        advertised,
        int(advertised_port) if advertised_port else None,
        Path(home),
        is_standalone,
    )


def _listener(settings: Mapping[str, str]) -> tuple[str, int]:
    first = settings.get("listeners", "").split(",")[0].strip()
    if not first:
        # The names of old.
        port = settings.get("rest.port", str(DEFAULT_PORT))
        first = f"http://{settings.get('rest.host.name', '')}:{port}"
    parts = urlsplit(first.lower())
    if parts.scheme != "http":
        raise BadConfig(f"listeners={first}: it must be http://host:port")
    try:
        port_number = parts.port
    except ValueError:
        raise BadConfig(f"listeners={first}: the port is no port") from None
    return parts.hostname or "0.0.0.0", DEFAULT_PORT if port_number is None else port_number  # noqa: S104


def _default_home() -> str:
    base = os.environ.get("PESSOA_HOME") or str(Path.home() / ".pessoa")
    return str(Path(base) / "connect")


def stand_where_the_worker_does(worker: Mapping[str, str]) -> None:
    """Spark starts its processes elsewhere, and `file=test.txt` means the folder that the worker was started in.

    On another machine there may be no such folder; then names of files had better be whole.
    """
    folder = worker.get("pessoa.folder")
    if folder is not None and Path(folder).is_dir():
        os.chdir(folder)
