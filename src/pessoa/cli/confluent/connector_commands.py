"""The connector commands of `confluent`, by the REST API of Connect.

The predefined connectors are those of Confluent's platform, with its settings. The first `confluent load file-source`
writes them to `etc/file-source.properties` in the directory that `confluent current` names, and the next one reads what
the user has made of them.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.cli.confluent import confluent_services as services
from pessoa.cli.confluent.confluent_services import Mistake
from pessoa.cli.tool_run import read_properties

# None: its plugin is not one of ours.
PREDEFINED: dict[str, str | None] = {
    "elasticsearch-sink": (
        "connector.class=io.confluent.connect.elasticsearch.ElasticsearchSinkConnector\ntasks.max=1\n"
        "topics=test-elasticsearch-sink\nkey.ignore=true\nconnection.url=http://localhost:9200\ntype.name=kafka-connect\n"
    ),
    "file-source": "connector.class=FileStreamSource\ntasks.max=1\nfile=test.txt\ntopic=connect-test\n",
    "file-sink": "connector.class=FileStreamSink\ntasks.max=1\nfile=test.sink.txt\ntopics=connect-test\n",
    "jdbc-source": (
        "connector.class=io.confluent.connect.jdbc.JdbcSourceConnector\ntasks.max=1\nconnection.url=jdbc:sqlite:test.db\n"
        "mode=incrementing\nincrementing.column.name=id\ntopic.prefix=test-sqlite-jdbc-\n"
    ),
    "jdbc-sink": (
        "connector.class=io.confluent.connect.jdbc.JdbcSinkConnector\ntasks.max=1\ntopics=orders\n"
        "connection.url=jdbc:sqlite:test.db\nauto.create=true\n"
    ),
    "hdfs-sink": None,
    "s3-sink": (
        "connector.class=io.confluent.connect.s3.S3SinkConnector\ntasks.max=1\ntopics=s3_topic\ns3.region=us-west-2\n"
        "s3.bucket.name=confluent-kafka-connect-s3-testing\nflush.size=3\n"
        "format.class=io.confluent.connect.s3.format.avro.AvroFormat\n"
    ),
}
_TIMEOUT_S = 30.0


def _ask(method: str, path: str, body: object = None) -> JsonValue:
    """Return the decoded response of Connect; an error response is returned as well, to be shown as it is."""
    access = services.access()
    url = f"{access.scheme}://localhost:{services.port('connect')}{path}"
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **access.headers}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=access.context) as answer:  # noqa: S310
            text = answer.read()
    except urllib.error.HTTPError as error:
        text = error.read()
    except OSError:
        raise Mistake(
            "connect is [DOWN]\nTo get the status of connectors try starting 'connect' service first."
        ) from None
    value: JsonValue = json.loads(text) if text else None
    return value


def _show(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_plugins() -> None:
    plugins = _ask("GET", "/connector-plugins")
    print("Available Connector Plugins: ")
    _show(plugins)


def print_status(connector: str | None) -> None:
    _show(_ask("GET", "/connectors" if connector is None else f"{_path(connector)}/status"))


def _path(connector: str) -> str:
    return f"/connectors/{urllib.parse.quote(connector, safe='')}"


def load(name: str, path: str | None) -> None:
    content = _read(str(_predefined_path(name)) if path is None else path)
    _show(_ask("POST", "/connectors", content if "config" in content else {"name": name, "config": content}))


def _predefined_path(name: str) -> Path:
    """Return the file with the settings of a predefined connector, which is created if it is missing."""
    if name not in PREDEFINED:
        raise Mistake(
            f"{name} is not a predefined connector name.\nUse -d <file> to load a connector from a properties or "
            "JSON file."
        )
    settings = PREDEFINED[name]
    if settings is None:
        raise Mistake(
            f"There is no plugin for {name} in this installation. 'confluent list plugins' shows those that there are."
        )
    path = services.run_directory() / "etc" / f"{name}.properties"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(settings, encoding="utf-8")
    return path


def unload(name: str) -> None:
    answer = _ask("DELETE", _path(name))
    if answer is not None:
        _show(answer)


def configure(name: str, path: str | None) -> None:
    if path is None:
        config = _ask("GET", f"{_path(name)}/config")
        print(f"Current configuration of '{name}' connector:")
        _show(config)
    else:
        content = _read(path)
        _show(_ask("PUT", f"{_path(name)}/config", content.get("config", content)))


def _read(path: str) -> JsonObject:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    try:
        content = json.loads(text)
    except ValueError:
        content = read_properties(path)
    if not isinstance(content, dict):
        raise Mistake(f"{path} is neither a JSON object nor a properties file")
    return content
