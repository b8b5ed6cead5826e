"""The connector commands of `confluent`, by the REST API of Connect."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from pessoa.cli import confluent_services as services
from pessoa.cli.confluent_services import Mistake
from pessoa.cli.running import read_properties

PREDEFINED = ("elasticsearch-sink", "file-source", "file-sink", "jdbc-source", "jdbc-sink", "hdfs-sink", "s3-sink")
_TIMEOUT_S = 30.0


def _ask(method: str, path: str, body: object = None) -> Any:
    """The answer as a value. An error of Connect is an answer too: it is shown as it is."""
    url = f"http://localhost:{services.port('connect')}{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            text = answer.read()
    except urllib.error.HTTPError as error:
        text = error.read()
    except OSError:
        raise Mistake(
            "connect is [DOWN]\nTo get the status of connectors try starting 'connect' service first."
        ) from None
    return json.loads(text) if text else None


def _show(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_plugins() -> None:
    plugins = _ask("GET", "/connector-plugins")
    print("Available Connector Plugins: ")
    _show(plugins)


def print_status(connector: str | None) -> None:
    _show(_ask("GET", "/connectors" if connector is None else f"/connectors/{connector}/status"))


def load(name: str, path: str | None) -> None:
    if path is None:
        raise Mistake(
            f"{name} is not a predefined connector name.\nUse -d <file> to load a connector from a properties or "
            "JSON file."
            if name not in PREDEFINED
            else f"There is no configuration of {name} in this installation; give one with -d <file>."
        )
    content = _read(path)
    _show(_ask("POST", "/connectors", content if "config" in content else {"name": name, "config": content}))


def unload(name: str) -> None:
    answer = _ask("DELETE", f"/connectors/{name}")
    if answer is not None:
        _show(answer)


def configure(name: str, path: str | None) -> None:
    if path is None:
        config = _ask("GET", f"/connectors/{name}/config")
        print(f"Current configuration of '{name}' connector:")
        _show(config)
    else:
        content = _read(path)
        _show(_ask("PUT", f"/connectors/{name}/config", content.get("config", content)))


def _read(path: str) -> dict[str, Any]:
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
