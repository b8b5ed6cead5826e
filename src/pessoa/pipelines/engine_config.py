"""The settings of `pessoa pipelines serve`, and which of them are for whom.

    security. sasl. ssl.                          Kafka's clients, Spark's among them
    schema.registry. basic.auth. bearer.auth.     the schema registry, and the login there
    listeners  listeners.https.  pessoa.authentication. …    the service (web/http_settings.py)
    spark.                                        Spark, as they are

What stands without the prefix `listeners.https.` is for Kafka's clients as well, as in Connect and ksql.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pessoa.base.home_folder import pessoa_home
from pessoa.client.librdkafka import security_settings, serialiser_settings
from pessoa.web.http_settings import LISTENERS, HttpSettings, Listener, read_http_settings
from pessoa.web.settings import log_unknown, read_settings, setting, settings_below

log = logging.getLogger("pessoa.pipelines")

DEFAULT_PORT = 8084
_OF_HTTPS = "listeners.https."
_SPARK = "spark."
_REMOTE = "spark.remote"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    # A caller that reaches the engine can run code, so it listens on the loopback unless it is told otherwise.
    http: HttpSettings = HttpSettings(Listener("http", "127.0.0.1", DEFAULT_PORT))  # noqa: RUF009 - frozen
    bootstrap_servers: str = setting("bootstrap.servers", "localhost:9092", "Where Kafka is: host:port,…")
    registry_url: str = setting("schema.registry.url", "", "The schema registry, for formats that need one.")
    home_path: str | None = setting("pessoa.home", None, "Checkpoints and logs.")
    spark_remote: str | None = setting(
        "pessoa.spark.remote", None, "A Spark Connect server to use instead of our own.", also=_REMOTE
    )
    spark_master: str = setting("pessoa.spark.master", "local[*]", "Or spark://host:port, a cluster.")
    spark_memory: str = setting("pessoa.spark.memory", "1g", "The most that Spark's driver may take.")
    checkpoints: str | None = setting("pessoa.checkpoints", None, "Where a cluster keeps checkpoints.")
    state_topic: str = setting("pessoa.state.topic", "_pessoa_queries", "Remembers what should run.")
    # For Kafka's clients and the client of the registry, under the names of the Java clients.
    kafka_options: Mapping[str, str] = field(default_factory=dict)
    spark_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return (Path(self.home_path).expanduser() if self.home_path else pessoa_home() / "pipelines").absolute()


def make_config(given: Mapping[str, str]) -> EngineConfig:
    """Return the settings of an engine. Raises a `ConfigProblem`."""
    config = read_settings(EngineConfig(), given)
    options = {**security_settings(given), **serialiser_settings(given)}
    log_unknown(log, given, (EngineConfig, HttpSettings), (LISTENERS, _SPARK, *options))
    http = read_http_settings({**given, **settings_below(given, _OF_HTTPS)}, config.http.listener, realm="pipelines")
    spark = {key: value for key, value in given.items() if key.startswith(_SPARK) and key != _REMOTE}
    return replace(config, http=http, kafka_options=options, spark_options=spark)
