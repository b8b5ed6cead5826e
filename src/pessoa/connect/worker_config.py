"""A worker's settings, under Kafka's names: the properties files of Kafka's workers can be used as they are.

    bootstrap.servers  group.id  listeners  rest.advertised.*  plugin.path  key.converter …
    config.storage.topic  offset.storage.topic  status.storage.topic    distributed: state in topics, anywhere
    offset.storage.file.filename                                        standalone: state in this process and one file

    listeners.https.ssl.keystore.location …    of an https listener; without the prefix, of the worker's clients as well

What is ours: `pessoa.home` (checkpoints and Spark's files), `pessoa.spark.remote` (a Spark cluster, sc://host:15002)
and `pessoa.pace.ms`; `pessoa.folder` is added for the tasks. Without a `plugin.path` it is the folder `plugins` in the
home, if there is one. A key that means nothing here is accepted and ignored.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pessoa.base.config_values import at_least
from pessoa.base.home_folder import pessoa_home
from pessoa.connect.converters import SIMPLE_HEADER
from pessoa.web.http_settings import (
    ANY_ADDRESS,
    LISTENERS,
    HttpSettings,
    Listener,
    parse_listeners,
    read_http_settings,
)
from pessoa.web.settings import default_texts, log_unknown, read_settings, setting, settings_below

log = logging.getLogger("pessoa.connect")

DEFAULT_PORT = 8083
_OF_HTTPS = "listeners.https."
JSON = "org.apache.kafka.connect.json.JsonConverter"
_TOPICS = ("config.storage.topic", "offset.storage.topic", "status.storage.topic")
# Read elsewhere: by clients, converters, tasks and providers of configuration.
_ELSEWHERE = (
    "producer.", "consumer.", "admin.", "key.converter", "value.converter", "header.converter", "config.providers",
    "security.", "sasl.", "ssl.", "session.timeout.ms", "heartbeat.interval.ms", LISTENERS, "pessoa.folder",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    # Everything as text, with defaults filled in; tasks get this as it is.
    settings: Mapping[str, str] = field(default_factory=dict)
    http: HttpSettings = HttpSettings(Listener("http", ANY_ADDRESS, DEFAULT_PORT))  # noqa: RUF009 - frozen
    is_standalone: bool = False
    bootstrap_servers: str = setting("bootstrap.servers", "localhost:9092", "Where Kafka is: host:port,…")
    group_id: str = setting("group.id", "connect-cluster", "Workers with the same group share the work.")
    key_converter: str = setting("key.converter", JSON, "What makes bytes of keys, unless a connector says another.")
    value_converter: str = setting("value.converter", JSON, "What makes bytes of values.")
    header_converter: str = setting("header.converter", SIMPLE_HEADER, "What makes bytes of headers.")
    config_topic: str = setting("config.storage.topic", "connect-configs", "What the connectors are.")
    offset_topic: str = setting("offset.storage.topic", "connect-offsets", "How far sources have got.")
    status_topic: str = setting("status.storage.topic", "connect-status", "How connectors and tasks are.")
    config_replicas: int = setting("config.storage.replication.factor", 3, "The replicas of that topic, if it is new.")
    offset_replicas: int = setting("offset.storage.replication.factor", 3, "The replicas of that topic, if it is new.")
    status_replicas: int = setting("status.storage.replication.factor", 3, "The replicas of that topic, if it is new.")
    offset_partitions: int = setting("offset.storage.partitions", 25, "Of a new topic.", rule=at_least(1))
    status_partitions: int = setting("status.storage.partitions", 5, "Of a new topic.", rule=at_least(1))
    offsets_file: str | None = setting("offset.storage.file.filename", None, "Where a standalone worker keeps them.")
    pace_ms: int = setting("pessoa.pace.ms", 500, "Between two looks at a source or topic that has nothing new.")
    creates_topics: bool = setting("topic.creation.enable", True, "Whether sources may have topics created.")
    tracks_topics: bool = setting("topic.tracking.enable", True, "Whether a connector's topics are written down.")
    forgets_topics: bool = setting("topic.tracking.allow.reset", True, "Whether they may be forgotten on request.")
    shutdown_timeout_ms: int = setting("task.shutdown.graceful.timeout.ms", 5000, "How long a stop waits for tasks.")
    plugin_path: str = setting("plugin.path", "", "Where connectors are looked for.")
    home_path: str | None = setting("pessoa.home", None, "Checkpoints, and Spark's files.")
    spark_remote: str | None = setting(
        "pessoa.spark.remote", None, "A Spark cluster, sc://host:15002.", also="spark.remote"
    )
    rest_host: str = setting("rest.host.name", "", "Where to listen, if there are no listeners.")
    rest_port: int = setting("rest.port", DEFAULT_PORT, "Where to listen, if there are no listeners.")
    advertised_host: str = setting("rest.advertised.host.name", "", "How other workers reach this one.")
    advertised_port: int = setting("rest.advertised.port", 0, "The port for that, if it is another.")

    def __getitem__(self, key: str) -> str:
        return self.settings[key]

    @property
    def home(self) -> Path:
        return Path(self.settings["pessoa.home"])


def make_config(given: Mapping[str, str], *, is_standalone: bool = False) -> WorkerConfig:
    config = read_settings(WorkerConfig(), given)
    log_unknown(log, given, (WorkerConfig, HttpSettings), _ELSEWHERE)
    first = given.get(LISTENERS, "").split(",")[0].lower() or f"http://{config.rest_host}:{config.rest_port}"
    (listener,) = parse_listeners(first, default_port=DEFAULT_PORT)
    # Kafka's workers take an https listener's settings with this prefix, and without it those of their clients.
    http = read_http_settings({**given, **settings_below(given, _OF_HTTPS), LISTENERS: str(listener)}, listener)
    default_host = socket.gethostname() if listener.host == ANY_ADDRESS else listener.host
    settings = {**default_texts(config), **given}
    if is_standalone:
        for topic in _TOPICS:
            settings.pop(topic)
    # Where relative names of files are looked for, wherever a task runs.
    settings["pessoa.folder"] = str(Path.cwd())
    home = settings["pessoa.home"] = str(Path(config.home_path or default_home()).expanduser())
    if (Path(home) / "plugins").is_dir():
        settings.setdefault("plugin.path", str(Path(home) / "plugins"))
    return replace(
        config,
        settings=settings,
        http=http,
        is_standalone=is_standalone,
        advertised_host=config.advertised_host or default_host,
        plugin_path=settings.get("plugin.path", ""),
    )


def default_home() -> Path:
    return pessoa_home() / "connect"


def change_to_worker_folder(worker: Mapping[str, str]) -> None:
    """Change to the folder in which the worker was started: `file=test.txt` is relative to it, and Spark starts
    processes elsewhere.

    On another machine the folder may not exist; then file names must be absolute.
    """
    folder = worker.get("pessoa.folder")
    if folder is not None and Path(folder).is_dir():
        os.chdir(folder)
