"""Completions for a line of the shell: commands, options, and values that the live cluster has.

No terminal here: `suggestions(text)` takes the line up to the cursor and answers with words and their explanations, so
that it can be tested by itself. The names of the cluster come from `Live`, which caches them for a few seconds.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pessoa.cli.tools import TOOLS, load
from pessoa.cli.topics import TOPIC_SETTINGS

OWN_COMMANDS = {"exit": "leave the shell", "clear": "clear the screen", "cluster": "say or choose the cluster"}
# Options that may be given again and again.
_REPEATABLE = frozenset(
    "config add-config delete-config property producer-property consumer-property command-property reader-property "
    "formatter-property topic group operation allow-principal deny-principal".split()
)
_CHOICES = {
    "request-required-acks": ("all", "1", "0"),
    "acks": ("-1", "1", "0"),
    "compression-codec": ("none", "gzip", "snappy", "lz4", "zstd"),
    "isolation-level": ("read_uncommitted", "read_committed"),
    "entity-type": ("topics", "brokers", "clients", "users", "ips", "groups", "client-metrics", "broker-loggers"),
    "election-type": ("preferred", "unclean"),
    "resource-pattern-type": ("literal", "prefixed", "match", "any"),
    "offset": ("earliest", "latest"),
    "time": ("latest", "earliest", "max-timestamp"),
}
_SETTING_VALUES = {
    "cleanup.policy": ("delete", "compact", "[compact,delete]"),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "unclean.leader.election.enable": ("true", "false"),
    "preallocate": ("true", "false"),
}
_FRESH_S = 5.0


class Suggestion(NamedTuple):
    text: str
    replaces: int  # how many characters before the cursor it stands for
    help: str = ""


class Live:
    """Names from a cluster, cached for a few seconds; none if the cluster does not answer."""

    def __init__(self, servers: str, now: Callable[[], float] = time.monotonic) -> None:
        self.servers = servers
        self._now = now
        self._cache: dict[str, tuple[float, list[str]]] = {}

    def topics(self) -> list[str]:
        return self._names("topics")

    def groups(self) -> list[str]:
        return self._names("groups")

    def _names(self, kind: str) -> list[str]:
        at, names = self._cache.get(kind, (float("-inf"), []))
        if self._now() - at > _FRESH_S:
            names = self._ask(kind)
            self._cache[kind] = (self._now(), names)
        return names

    def _ask(self, kind: str) -> list[str]:
        from pessoa.client.client_errors import KafkaFailure
        from pessoa.client.cluster_client import Cluster
        from pessoa.client.group_admin import list_groups
        from pessoa.client.topic_admin import list_topics

        # A keystroke must not wait for a cluster that is away.
        try:
            with Cluster(self.servers, {"default.api.timeout.ms": "500"}) as cluster:
                if kind == "topics":
                    return sorted(list_topics(cluster))
                return sorted(group.group_id for group in list_groups(cluster))
        except KafkaFailure:
            return []


def suggestions(text: str, live: Live) -> Iterator[Suggestion]:
    words, word = _split(text)
    if not words:
        for name, explanation in {**dict.fromkeys(TOOLS, ""), **OWN_COMMANDS}.items():
            if name.startswith(word):
                yield Suggestion(name, len(word), explanation)
        return
    tool = words[0].removesuffix(".sh")
    if tool not in TOOLS:
        return
    options = load(tool).completions()
    previous = words[-1].removeprefix("--") if words[-1].startswith("--") else ""
    if previous and options.get(previous, ("", False))[1] and not word.startswith("-"):
        yield from _values(previous, word, live)
        return
    used = {one.removeprefix("--") for one in words if one.startswith("--")}
    for name, (explanation, _) in sorted(options.items()):
        if f"--{name}".startswith(word) and (name not in used or name in _REPEATABLE):
            yield Suggestion(f"--{name}", len(word), explanation)


def _split(text: str) -> tuple[list[str], str]:
    """Return the words before the cursor, and the word that is being typed."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if text and not text[-1].isspace() and words:
        return words[:-1], words[-1]
    return words, ""


def _values(option: str, word: str, live: Live) -> Iterator[Suggestion]:
    if option in ("config", "add-config", "delete-config"):
        key, equals, value = word.partition("=")
        if equals:
            choices = _SETTING_VALUES.get(key, ())
            yield from (Suggestion(one, len(value)) for one in choices if one.startswith(value))
        else:
            end = "" if option == "delete-config" else "="
            yield from (Suggestion(name + end, len(word)) for name in TOPIC_SETTINGS if name.startswith(word))
        return
    if option == "topic":
        names: list[str] | tuple[str, ...] = live.topics()
    elif option == "group":
        names = live.groups()
    elif option == "bootstrap-server":
        names = (live.servers,)
    else:
        names = _CHOICES.get(option, ())
    yield from (Suggestion(name, len(word)) for name in names if name.startswith(word))


def with_cluster(words: list[str], servers: str) -> list[str]:
    """Return the command with this cluster's --bootstrap-server, unless it names another cluster or needs none."""
    options = load(words[0].removesuffix(".sh")).completions()
    named = {"--bootstrap-server", "--broker-list", "--bootstrap-controller", "--zookeeper", "--help", "--version"}
    if "bootstrap-server" not in options or any(word.partition("=")[0] in named for word in words):
        return words
    # Before any subcommand, where such tools want it.
    return [words[0], "--bootstrap-server", servers, *words[1:]]
