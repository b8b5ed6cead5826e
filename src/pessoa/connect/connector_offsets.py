"""Offsets of connectors, as requests read and change them (KIP-875).

A source's are in the offset topic, in the connector's own words. A sink's are those of its consumer group,
`connect-<name>`:

    {"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 42}}

They can be changed while the connector is stopped. The connector itself is asked whether it could go on from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.connect.clients import client_settings
from pessoa.connect.cluster_state import STOPPED, offset_key
from pessoa.connect.connector import OffsetRefused, SourceConnector
from pessoa.connect.herder import Herder
from pessoa.connect.worker_store import OFFSET
from pessoa.web.problems import HttpProblem

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

TOPIC, PARTITION, KAFKA_OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_TIMEOUT_S = 30.0
ALTERED = "The offsets for this connector have been altered successfully"
RESET = "The offsets for this connector have been reset successfully"


class ConnectorOffset(TypedDict):
    """An offset in the answer of `/connectors/{connector}/offsets`."""

    partition: JsonObject
    offset: JsonObject


class OffsetChange(NamedTuple):
    """The offset that a request sets for a partition; None to reset it."""

    partition: JsonObject
    offset: JsonObject | None


def group_of(connector: str, settings: Mapping[str, str]) -> str:
    return settings.get("consumer.override.group.id", f"connect-{connector}")


def read_offsets(herder: Herder, name: str) -> list[ConnectorOffset]:
    settings = _settings(herder, name)
    if _is_source(herder, settings):
        with herder.store.lock:
            known = dict(herder.store.state.offsets.get(name, {}))
        return [{"partition": json.loads(place), "offset": offset} for place, offset in known.items()]
    return [
        {"partition": {PARTITION: partition, TOPIC: topic}, "offset": {KAFKA_OFFSET: offset}}
        for (topic, partition), offset in sorted(
            group_offsets(herder.config.settings, group_of(name, settings)).items()
        )
    ]


def alter_offsets(herder: Herder, name: str, wanted: list[JsonObject]) -> str:
    settings = _settings_of_stopped(herder, name)
    if not wanted:
        raise HttpProblem(400, "Partitions / offsets need to be provided for an alter offsets request")
    changes = [_change(each) for each in wanted]
    if _is_source(herder, settings):
        _alter_source(herder, name, settings, changes)
    else:
        _alter_sink(herder, name, settings, changes)
    herder.forget_checkpoints(name)
    return ALTERED


def reset_offsets(herder: Herder, name: str) -> str:
    settings = _settings_of_stopped(herder, name)
    if _is_source(herder, settings):
        with herder.store.lock:
            known = list(herder.store.state.offsets.get(name, {}))
        for place in known:
            herder.store.write(OFFSET, offset_key(name, json.loads(place)), None)
    else:
        delete_group(herder.config.settings, group_of(name, settings))
    herder.forget_checkpoints(name)
    return RESET


def _settings(herder: Herder, name: str) -> dict[str, str]:
    with herder.store.lock:
        settings = herder.store.state.configs.get(name)
    if settings is None:
        raise HttpProblem(404, f"Connector {name} not found")
    return settings


def _settings_of_stopped(herder: Herder, name: str) -> dict[str, str]:
    settings = _settings(herder, name)
    with herder.store.lock:
        target = herder.store.state.target(name)
    if target != STOPPED or not herder.wait_until_stopped(name):
        raise HttpProblem(
            400,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
        )
    return settings


def _is_source(herder: Herder, settings: Mapping[str, str]) -> bool:
    return issubclass(herder.plugins.connector(settings["connector.class"]), SourceConnector)


def _change(each: JsonObject) -> OffsetChange:
    partition, offset = each.get("partition"), each.get("offset")
    if not isinstance(partition, dict):
        raise HttpProblem(400, "The partition for a connector offset cannot be null or missing")
    if offset is not None and not isinstance(offset, dict):
        raise HttpProblem(400, "The offset for a connector partition is an object, or null")
    return OffsetChange(partition, offset)


def _alter_source(herder: Herder, name: str, settings: Mapping[str, str], changes: list[OffsetChange]) -> None:
    kind = herder.plugins.connector(settings["connector.class"])
    assert issubclass(kind, SourceConnector)
    for partition, offset in changes:
        if offset is not None:
            try:
                kind.check_offset(partition, offset)
            except OffsetRefused as refused:
                raise HttpProblem(400, str(refused)) from None
    for partition, offset in changes:
        herder.store.write(OFFSET, offset_key(name, partition), offset)


# Sinks.


def _alter_sink(herder: Herder, name: str, settings: Mapping[str, str], changes: list[OffsetChange]) -> None:
    group = group_of(name, settings)
    worker = herder.config.settings
    wanted = dict(group_offsets(worker, group))
    has_removal = False
    for partition, offset in changes:
        place = _kafka_place(partition)
        if offset is None:
            has_removal = True
            wanted.pop(place, None)
        else:
            wanted[place] = _kafka_offset(offset)
    if has_removal:
        # Not every client can delete one offset of a group; every client can recreate the group.
        delete_group(worker, group)
    set_group_offsets(worker, group, wanted)


def _kafka_place(partition: JsonObject) -> tuple[str, int]:
    if TOPIC not in partition or PARTITION not in partition:
        raise HttpProblem(
            400, f"The partition for a sink connector offset must contain the keys '{TOPIC}' and '{PARTITION}'"
        )
    try:
        return str(partition[TOPIC]), _whole_number(partition[PARTITION])
    except (TypeError, ValueError):
        raise HttpProblem(400, f"'{partition[PARTITION]}' is no number of a partition") from None


def _kafka_offset(offset: JsonObject) -> int:
    if KAFKA_OFFSET not in offset:
        raise HttpProblem(400, f"The offset for a sink connector should contain the key '{KAFKA_OFFSET}'")
    try:
        return _whole_number(offset[KAFKA_OFFSET])
    except (TypeError, ValueError):
        raise HttpProblem(400, f"'{offset[KAFKA_OFFSET]}' is no offset") from None


def _whole_number(value: JsonValue) -> int:
    if not isinstance(value, int | float | str):
        raise TypeError
    return int(value)


# Consumer groups.


def group_offsets(worker: Mapping[str, str], group: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    # The client is held until it has answered: one without a reference drops its requests.
    admin = _admin(worker)
    try:
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        found = future.result(_TIMEOUT_S)
    except KafkaException as failure:
        if failure.args[0].name() == "GROUP_ID_NOT_FOUND":
            return {}
        raise
    return {(place.topic, place.partition): place.offset for place in found.topic_partitions if place.offset >= 0}


def set_group_offsets(worker: Mapping[str, str], group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    if places:
        request = ConsumerGroupTopicPartitions(group, places)
        admin = _admin(worker)
        (future,) = admin.alter_consumer_group_offsets([request]).values()
        done = future.result(_TIMEOUT_S)
        for place in done.topic_partitions:
            if place.error is not None:
                raise HttpProblem(400, f"{place.topic}-{place.partition}: {place.error.str()}")


def delete_group(worker: Mapping[str, str], group: str) -> None:
    from confluent_kafka import KafkaException

    admin = _admin(worker)
    try:
        (future,) = admin.delete_consumer_groups([group]).values()
        future.result(_TIMEOUT_S)
    except KafkaException as failure:
        if failure.args[0].name() != "GROUP_ID_NOT_FOUND":
            raise


def _admin(worker: Mapping[str, str]) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return AdminClient(dict(client_settings(worker, "admin")))
