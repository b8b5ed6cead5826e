"""What a connector does, by what Connect and the cluster tell of it: its topics, its throughput, its dead letters.

A source's throughput is what its topics take in; a sink's is how fast the offsets of its group `connect-<name>` move,
and its lag is that group's. Dead letters are the records of the topic that `errors.deadletterqueue.topic.name` names.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pessoa.base.json_value import JsonValue

DEAD_LETTERS = "errors.deadletterqueue.topic.name"
# Headers with the reason why a record was not written, if errors.deadletterqueue.context.headers.enable is set.
REASON_HEADERS = ("__connect.errors.exception.message", "__connect.errors.stage", "__connect.errors.topic")
HIDDEN = "••••"
# `ssl.keystore.key` and `http.headers` are secrets, `key.converter` and `errors.….headers.enable` are none.
_SECRET_KEY = re.compile(
    r"password|passphrase|passwd|pwd|secret|token|credential|private|jaas|user\.info|(api|access)[._-]?key|key\.pem"
    r"|(^|[._-])(key|headers)$"
)
_SECRET_VALUE = re.compile(r"(?i)(password|passwd|pwd|secret|token)\s*=|://[^/\s]*@")


class Task(NamedTuple):
    id: int
    state: str
    worker: str
    trace: str


class ConnectorFacts(NamedTuple):
    name: str
    kind: str  # source, sink, ?
    state: str
    trace: str
    tasks: tuple[Task, ...]
    config: Mapping[str, str]

    @property
    def group(self) -> str:
        return f"connect-{self.name}"

    @property
    def dead_letter_topic(self) -> str | None:
        return self.config.get(DEAD_LETTERS) or None

    @property
    def failed(self) -> int:
        return sum(one.state == "FAILED" for one in self.tasks)


def read_connectors(answer: JsonValue) -> list[ConnectorFacts]:
    """Return the connectors in the response to /connectors?expand=status&expand=info, ordered by name."""
    if not isinstance(answer, dict):
        return []
    return [
        read_connector(name, about.get("status"), (_object(about.get("info"))).get("config"))
        for name, about in sorted(answer.items())
        if isinstance(about, dict)
    ]


def read_connector(name: str, status: JsonValue, config: JsonValue) -> ConnectorFacts:
    status_object = _object(status)
    own = _object(status_object.get("connector"))
    tasks = status_object.get("tasks")
    return ConnectorFacts(
        name, str(status_object.get("type") or "?"), str(own.get("state") or "?"), str(own.get("trace") or ""),
        tuple(_task(one) for one in (tasks if isinstance(tasks, list) else []) if isinstance(one, dict)),
        {key: str(value) for key, value in _object(config).items()},
    )  # fmt: skip


def password_keys(table: JsonValue) -> frozenset[str]:
    """Return the settings that have the type PASSWORD in a plugin's table."""
    rows = [_object(one) for one in (table if isinstance(table, list) else [])]
    return frozenset(str(one.get("name")) for one in rows if one.get("type") == "PASSWORD")


def is_secret(key: str, value: str) -> bool:
    """Whether a setting looks secret: by its name, or by a login in its value."""
    return _SECRET_KEY.search(key.lower()) is not None or _SECRET_VALUE.search(value) is not None


def shown_config(config: Mapping[str, str], passwords: Collection[str] = ()) -> dict[str, str]:
    """Return the configuration with secrets hidden; `passwords` are the settings that the plugin declares secret."""
    return {
        key: HIDDEN if value and (key in passwords or is_secret(key, value)) else value
        for key, value in sorted(config.items())
    }


def _task(given: dict[str, JsonValue]) -> Task:
    number = given.get("id")
    return Task(
        number if isinstance(number, int) else -1, str(given.get("state") or "?"), str(given.get("worker_id") or ""),
        str(given.get("trace") or ""),
    )  # fmt: skip


def _object(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}
