"""Every accepted setting is read by some code, or is in a list with the reason why not.

A setting can be accepted without an effect in three ways: no code reads the key; the broker does not pass it on to the
part that it is meant for; that part has it and never reads it. Each has a test.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pessoa
from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS, BROKER_DEFAULTS
from pessoa.base.config_keys.group_keys import GROUP_CONFIGS, validate_group_configs
from pessoa.base.config_keys.no_effect import BROKER_KEYS_WITHOUT_EFFECT, TOPIC_KEYS_WITHOUT_EFFECT
from pessoa.base.config_table import ConfigTable
from pessoa.base.config_values import Value
from pessoa.broker.config import _DERIVED_ATTRIBUTES, BrokerConfig
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.coordinator.groups.share.share_group_config import ShareGroupConfig
from pessoa.coordinator.groups.streams.streams_group_config import StreamsGroupConfig
from pessoa.coordinator.share.share_config import ShareCoordinatorConfig
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.log.compaction.log_to_clean import CleanerSettings
from pessoa.log.log_config import LogConfig
from pessoa.log.topic_config import BROKER_KEYS, TOPIC_CONFIGS
from pessoa.log.upkeep import UpkeepSettings
from pessoa.net.listener import ListenerLimits
from pessoa.net.network import SocketSettings
from pessoa.quorum.quorum_settings import QuorumSettings
from pessoa.replication.replication_settings import ReplicationSettings

SOURCE = Path(pessoa.__file__).parent
# Where the keys are declared, described and put together, and nothing is done with them.
DECLARING = ("base/config_keys/", "broker/config.py", "broker/config_checks.py", "broker/config_entries.py")
# Those that are made of one attribute of the configuration for each of their fields.
BUILT_IN_BROKER = (
    CleanerSettings,
    GroupCoordinatorConfig,
    ListenerLimits,
    ShareCoordinatorConfig,
    ShareGroupConfig,
    SocketSettings,
    StreamsGroupConfig,
    TransactionConfig,
    UpkeepSettings,
)


def names_of(settings: Any) -> Iterable[str]:
    """Return the field names of a named tuple or a dataclass."""
    return settings._fields if hasattr(settings, "_fields") else [one.name for one in fields(settings)]


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of the cluster tower, by file; services have settings of their own."""
    towers = "base broker controller coordinator log metadata net quorum quota raft records replication security share"
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text())
        for tower in towers.split()
        for path in sorted((SOURCE / tower).rglob("*.py"))
    }


@cache
def words(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the strings of a file, and the names of the attributes that it reads."""
    found = list(ast.walk(trees()[path]))
    strings = {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {node.attr for node in found if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    return frozenset(strings), frozenset(names)


def texts(of: Iterable[str]) -> set[str]:
    return {text for path in of for text in words(path)[0]}


def attributes(of: Iterable[str]) -> set[str]:
    return {name for path in of for name in words(path)[1]}


def path_text(path: str) -> str:
    return (SOURCE / path).read_text()


def reading_files(but: Iterable[str] = ()) -> list[str]:
    return [path for path in trees() if not path.startswith((*DECLARING, *but))]


class Recording:
    """Settings that record which of them were read."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def value(self, name: str) -> Value:
        self.asked.add(name)
        return BROKER_DEFAULTS.value(name)


def bounds_of_groups() -> set[str]:
    """Return the broker keys that bound settings of groups; code builds these names, so no source text has them."""
    settings = Recording()
    for key in GROUP_CONFIGS:
        validate_group_configs({key.name: str(key.default)}, settings)
    return settings.asked


def keys_that_are_read() -> set[str]:
    read = texts(path for path in reading_files() if path != "log/topic_config.py")
    in_broker = attributes(path for path in reading_files() if path.startswith("broker/"))
    read |= {name.replace("_", ".") for name in in_broker & set(BrokerConfig.__annotations__)}
    read |= {name.replace("_", ".") for name in ReplicationSettings._fields}
    for name in QuorumSettings._fields:
        read.add((name if name.startswith("metadata_") else f"controller_quorum_{name}").replace("_", "."))
    # What a topic has by default, and what is the same in coarser units.
    read |= {broker for topic, broker in BROKER_KEYS.items() if topic in topic_keys_that_are_read()}
    read |= {name for name in BROKER_CONFIGS_IN_UNITS if name in texts(["log/topic_config.py"])}
    read |= {name for name in texts(["log/topic_config.py"]) if name in OF_EVERY_LOG}
    return (read | bounds_of_groups()) & {key.name for key in BROKER_CONFIGS}


BROKER_CONFIGS_IN_UNITS = (
    "log.retention.minutes log.retention.hours log.roll.hours log.roll.jitter.hours log.flush.scheduler.interval.ms"
).split()
OF_EVERY_LOG = ("producer.id.expiration.ms", "transaction.partition.verification.enable")
# What `BrokerConfig` and its checks take from them is what holds: listeners, directories, the id.
DERIVED = """
    broker.id inter.broker.listener.name listener.security.protocol.map security.inter.broker.protocol log.dir log.dirs
    metadata.log.dir listeners advertised.listeners process.roles
""".split()


def topic_keys_that_are_read() -> set[str]:
    inside = [node for node in trees()["log/topic_config.py"].body if isinstance(node, ast.FunctionDef)]
    read = {
        node.value
        for function in inside
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    read |= texts(path for path in reading_files() if path != "log/topic_config.py")
    # Its name is put together there.
    read |= {f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}
    return read & {key.name for key in TOPIC_CONFIGS}


def patterns(table: dict[str, str]) -> list[str]:
    return [pattern for names in table.values() for pattern in names.split()]


@pytest.mark.parametrize(
    ("table", "read", "excused"),
    [
        (BROKER_CONFIGS, lambda: keys_that_are_read() | {*DERIVED}, BROKER_KEYS_WITHOUT_EFFECT),
        (TOPIC_CONFIGS, topic_keys_that_are_read, TOPIC_KEYS_WITHOUT_EFFECT),
    ],
    ids=["broker", "topic"],
)
def test_every_key_is_read_or_listed_with_the_reason_why_not(
    table: ConfigTable, read: Callable[[], set[str]], excused: dict[str, str]
) -> None:
    unread = {key.name for key in table} - read()
    forgotten = {name for name in unread if not any(fnmatchcase(name, one) for one in patterns(excused))}
    assert not forgotten, "nothing reads these: let them take effect, or say in no_effect.py why they have none"
    needless = [one for one in patterns(excused) if not any(fnmatchcase(name, one) for name in unread)]
    assert not needless, "these are read, and need no excuse in no_effect.py"


def test_every_key_of_groups_is_read() -> None:
    assert {key.name for key in GROUP_CONFIGS} - texts(reading_files()) == set()


def test_every_declared_attribute_of_the_broker_config_is_read() -> None:
    declared = {*BrokerConfig.__annotations__} - {*_DERIVED_ATTRIBUTES, "process_roles"}
    read = attributes(path for path in trees() if path.startswith("broker/") and path != "broker/config.py")
    taken = {name if name.startswith("metadata_") else f"controller_quorum_{name}" for name in QuorumSettings._fields}
    by_key = {name for name in declared if name.replace("_", ".") in texts(reading_files())}
    assert declared - read - taken - by_key - {*ReplicationSettings._fields} == set()


@pytest.mark.parametrize("settings", BUILT_IN_BROKER)
def test_the_broker_sets_every_field_of_the_settings_of_its_components(settings: Any) -> None:
    calls = [
        node
        for path in trees()
        if path.startswith("broker/") and settings.__name__ in path_text(path)
        for node in ast.walk(trees()[path])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == settings.__name__
    ]
    assert len(calls) == 1
    assert {keyword.arg for keyword in calls[0].keywords} == set(names_of(settings))


def test_every_field_of_a_log_config_is_set_from_topic_configs() -> None:
    calls = [
        node
        for node in ast.walk(trees()["log/topic_config.py"])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LogConfig"
    ]
    assert [{keyword.arg for keyword in call.keywords} for call in calls] == [{*LogConfig._fields}]


@pytest.mark.parametrize("settings", [*BUILT_IN_BROKER, LogConfig, ReplicationSettings, QuorumSettings])
def test_every_field_of_the_settings_of_a_component_is_read(settings: Any) -> None:
    read = attributes(path for path in trees() if not path.startswith("broker/"))
    assert set(names_of(settings)) - read == set()
