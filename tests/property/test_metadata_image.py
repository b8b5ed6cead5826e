"""The image depends only on the records, not on how they are divided into batches or on what was read before.

Random histories of the cluster are replayed in three ways: every record by itself, in batches of random sizes, and the
whole log at once, as a starting broker does. A fourth, simple implementation keeps everything in plain dictionaries
that it changes in place. And no image ever changes.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pessoa.base.ids import Uuid
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.loader import MetadataLoader
from pessoa.wire.schema import Message
from pessoa.wire.stored import metadata_records as log

EPOCH = 3


class Dumb:
    """The model: the cluster as dictionaries that are changed in place."""

    def __init__(self) -> None:
        self.topics: dict[Uuid, tuple[str, dict[int, dict[str, Any]]]] = {}
        self.brokers: dict[int, dict[str, Any]] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.quotas: dict[tuple[str | None, str], float] = {}

    def replay(self, record: Message) -> None:
        match record:
            case log.TopicRecord():
                self.topics[record.topic_id] = (record.name, {})
            case log.PartitionRecord():
                self.topics[record.topic_id][1][record.partition_id] = {
                    "replicas": list(record.replicas), "isr": list(record.isr), "leader": record.leader,
                    "leader_epoch": record.leader_epoch, "partition_epoch": record.partition_epoch, "elr": [],
                }  # fmt: skip
            case log.PartitionChangeRecord():
                partition = self.topics[record.topic_id][1][record.partition_id]
                partition["partition_epoch"] += 1
                if record.leader != -2:
                    partition["leader"] = record.leader
                    partition["leader_epoch"] += 1
                for name, value in (
                    ("replicas", record.replicas), ("isr", record.isr), ("elr", record.eligible_leader_replicas)
                ):  # fmt: skip
                    if value is not None:
                        partition[name] = list(value)
            case log.RemoveTopicRecord():
                name, _ = self.topics.pop(record.topic_id)
                self.configs = {key: value for key, value in self.configs.items() if key[:2] != (2, name)}
            case log.ConfigRecord():
                self.configs.pop((record.resource_type, record.resource_name, record.name), None)
                if record.value is not None:
                    self.configs[record.resource_type, record.resource_name, record.name] = record.value
            case log.RegisterBrokerRecord():
                self.brokers[record.broker_id] = {"epoch": record.broker_epoch, "fenced": record.fenced}
            case log.BrokerRegistrationChangeRecord():
                if record.fenced:
                    self.brokers[record.broker_id]["fenced"] = record.fenced > 0
            case log.UnregisterBrokerRecord():
                del self.brokers[record.broker_id]
            case log.ClientQuotaRecord():
                key = (record.entity[0].entity_name, record.key)
                self.quotas.pop(key, None)
                if not record.remove:
                    self.quotas[key] = record.value


def seen(image: MetadataImage) -> Dumb:
    """Return the content of an image in the form of the simple model."""
    dumb = Dumb()
    for topic in image.topics.by_name.values():
        assert image.topics.by_id[topic.id] is topic
        dumb.topics[topic.id] = (
            topic.name,
            {
                index: {
                    "replicas": list(one.replicas), "isr": list(one.isr), "leader": one.leader,
                    "leader_epoch": one.leader_epoch, "partition_epoch": one.partition_epoch, "elr": list(one.elr),
                }
                for index, one in topic.partitions.items()
            },
        )  # fmt: skip
    assert len(image.topics.by_id) == len(image.topics.by_name)
    dumb.brokers = {one.id: {"epoch": one.epoch, "fenced": one.fenced} for one in image.cluster.brokers.values()}
    dumb.configs = {
        (kind, resource, name): value
        for (kind, resource), values in image.configs.by_resource.items()
        for name, value in values.items()
    }
    dumb.quotas = {
        (entity[0][1], key): value for entity, values in image.quotas.by_entity.items() for key, value in values.items()
    }
    return dumb


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Return records that a controller could have written, in their order."""
    dumb = Dumb()
    records: list[Message] = []
    for number in range(draw(st.integers(1, 40))):
        record = _next(draw, dumb, number)
        dumb.replay(record)
        records.append(record)
    return records


def _next(draw: st.DrawFn, dumb: Dumb, number: int) -> Message:
    names = ("orders", "clicks", "x")
    kinds = ["config", "quota", "register"]
    free = sorted(set(names) - {name for name, _ in dumb.topics.values()})
    kinds += ["topic"] * bool(free) + ["partition", "remove"] * bool(dumb.topics)
    kinds += ["change"] * any(partitions for _, partitions in dumb.topics.values())
    kinds += ["fence", "unregister"] * bool(dumb.brokers)
    ids = st.integers(1, 4)
    some = st.lists(ids, max_size=3, unique=True)
    match draw(st.sampled_from(kinds)):
        case "topic":
            return log.TopicRecord(name=draw(st.sampled_from(free)), topic_id=Uuid.of(1000 + number))
        case "partition":
            topic_id = draw(st.sampled_from(sorted(dumb.topics)))
            return log.PartitionRecord(
                partition_id=len(dumb.topics[topic_id][1]), topic_id=topic_id, replicas=draw(some), isr=draw(some),
                removing_replicas=[], adding_replicas=[], leader=draw(ids), leader_epoch=0, partition_epoch=0,
            )  # fmt: skip
        case "change":
            topic_id = draw(st.sampled_from([key for key, (_, parts) in sorted(dumb.topics.items()) if parts]))
            return log.PartitionChangeRecord(
                partition_id=draw(st.sampled_from(sorted(dumb.topics[topic_id][1]))), topic_id=topic_id,
                isr=draw(st.none() | some), leader=draw(st.sampled_from([-2, -1, 1, 2])),
                replicas=draw(st.none() | some), eligible_leader_replicas=draw(st.none() | some),
            )  # fmt: skip
        case "remove":
            return log.RemoveTopicRecord(topic_id=draw(st.sampled_from(sorted(dumb.topics))))
        case "register":
            return log.RegisterBrokerRecord(
                broker_id=draw(ids), incarnation_id=Uuid.of(number + 1), broker_epoch=number, end_points=[],
                features=[], rack=None, fenced=draw(st.booleans()),
            )  # fmt: skip
        case "fence":
            broker_id = draw(st.sampled_from(sorted(dumb.brokers)))
            return log.BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=dumb.brokers[broker_id]["epoch"], fenced=draw(st.integers(-1, 1))
            )
        case "unregister":
            broker_id = draw(st.sampled_from(sorted(dumb.brokers)))
            return log.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=dumb.brokers[broker_id]["epoch"])
        case "quota":
            entity = [log.EntityData(entity_type="user", entity_name=draw(st.sampled_from([None, "a", "b"])))]
            remove = draw(st.booleans())
            return log.ClientQuotaRecord(entity=entity, key=draw(st.sampled_from("kl")), value=1.5, remove=remove)
        case _:
            return log.ConfigRecord(
                resource_type=draw(st.sampled_from([2, 4])), resource_name=draw(st.sampled_from(names)),
                name=draw(st.sampled_from("kl")), value=draw(st.none() | st.sampled_from("vw")),
            )  # fmt: skip


@given(histories(), st.data())
def test_an_image_is_the_same_whether_it_is_loaded_in_batches_or_at_once(
    history: list[Message], data: st.DataObject
) -> None:
    one_by_one, in_batches, at_once = MetadataLoader(), MetadataLoader(), MetadataLoader()
    dumb = Dumb()
    kept: list[tuple[MetadataImage, Dumb]] = []
    for offset, record in enumerate(history):
        (delta,) = one_by_one.load([record], offset, EPOCH)
        assert delta.new is one_by_one.image
        dumb.replay(record)
        kept.append((one_by_one.image, copy.deepcopy(dumb)))
    start = 0
    while start < len(history):
        end = start + data.draw(st.integers(1, len(history) - start))
        in_batches.load(history[start:end], end - 1, EPOCH)
        assert at_once.load(history[start:end], end - 1, EPOCH, defer=True) == []
        start = end
    at_once.finish_deferred()
    assert one_by_one.image == in_batches.image == at_once.image
    assert one_by_one.image.offset == len(history) - 1
    for image, then in kept:
        assert vars(seen(image)) == vars(then), "an image that was kept has changed"


@given(histories(), st.data())
def test_a_metadata_transaction_is_visible_completely_or_not_at_all(
    history: list[Message], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(history)), "where it begins")
    is_committed = data.draw(st.booleans(), "whether it is committed")
    defer = data.draw(st.booleans(), "whether images wait")
    ending: Message = log.EndTransactionRecord() if is_committed else log.AbortTransactionRecord()
    told = [*history[:begin], log.BeginTransactionRecord(), *history[begin:], ending]
    loader = MetadataLoader()
    published = []
    start = 0
    while start < len(told):
        end = start + data.draw(st.integers(1, len(told) - start))
        published += loader.load(told[start:end], end - 1, EPOCH, defer=defer)
        start = end
    loader.finish_deferred()
    assert not loader.in_transaction
    expected = history if is_committed else history[:begin]
    plain = MetadataLoader()
    plain.load(expected, len(told) - 1, EPOCH)
    assert loader.image == plain.image
    states = [vars(seen(delta.new)) for delta in published]
    allowed = [vars(_told(history[:count])) for count in range(begin + 1)] + [vars(_told(expected))]
    assert all(state in allowed for state in states), "an image had a part of the transaction"


def _told(history: list[Message]) -> Dumb:
    dumb = Dumb()
    for record in history:
        dumb.replay(record)
    return dumb
