"""The health of the cluster as a sentence that a person can act on.

    Everything is well: 3 brokers, 12 topics, all 96 partitions have their replicas.
    1 partition has lost a replica: broker 2 is away since 14:02.
    2 partitions cannot be reached: orders-1, orders-2 have no leader.

Pure: its arguments are the metadata, the brokers that were seen before, and since when they are away.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pessoa.control_center.texts import Text

SHOWN = 3


class Level(StrEnum):
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class PartitionState(NamedTuple):
    topic: str
    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Health(NamedTuple):
    level: Level
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.sentences)


def report(
    brokers: Iterable[int], away_since_ms: Mapping[int, int], topics: int, partitions: Iterable[PartitionState], t: Text
) -> Health:
    here = set(brokers)
    total, behind, offline = 0, [], []
    for one in partitions:
        total += 1
        if one.leader < 0:
            offline.append(one)
        elif len(one.isr) < len(one.replicas):
            behind.append(one)
    missing = {node for one in (*behind, *offline) for node in one.replicas} - here | set(away_since_ms) - here
    away_sentences = [_away_sentence(node, away_since_ms.get(node), t) for node in sorted(missing)]
    sentences = []
    if offline:
        first_offline = ", ".join(map(str, offline[:SHOWN])) + (" …" if len(offline) > SHOWN else "")
        form = "1 partition cannot be reached: {few} has no leader." if len(offline) == 1 else (
            "{n} partitions cannot be reached: {few} have no leader.")  # fmt: skip
        sentences.append(t(form, n=len(offline), few=first_offline))
    if behind:
        reason = ", ".join(away_sentences) if away_sentences else t("a follower has fallen behind")
        form = "1 partition has lost a replica: {reason}." if len(behind) == 1 else (
            "{n} partitions have lost a replica: {reason}.")  # fmt: skip
        sentences.append(t(form, n=len(behind), reason=reason))
    elif away_sentences:
        sentences.append(", ".join(away_sentences)[:1].upper() + ", ".join(away_sentences)[1:] + ".")
    if sentences:
        return Health(Level.BAD if offline else Level.WARNING, tuple(sentences))
    sentence = t(
        "Everything is well: {brokers}, {topics}, all {partitions} partitions have their replicas.",
        brokers=t.count("broker", len(here)), topics=t.count("topic", topics), partitions=total,
    )  # fmt: skip
    return Health(Level.GOOD, (sentence,))


def _away_sentence(node: int, since_ms: int | None, t: Text) -> str:
    if since_ms is None:
        return t("broker {node} is away", node=node)
    clock = time.strftime("%H:%M", time.localtime(since_ms / 1000))
    return t("broker {node} is away since {clock}", node=node, clock=clock)
