"""`pessoa demo` on a broker: which topics it creates, and what it prints if that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from pessoa.cli.demo import demo
from pessoa.client import topic_creation
from pessoa.client.topic_creation import TopicSpec, TopicUnavailable, ensure_topic
from pessoa.platform.shop import PARTITIONS, TOPICS
from pessoa.testing import Broker


def test_the_demo_creates_missing_topics_and_uses_existing_ones_unchanged() -> None:
    with Broker() as broker:
        words = ["--bootstrap-server", broker.bootstrap_servers, "--events", "5"]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        first, *others = TOPICS
        ensure_topic(admin, TopicSpec(first, 1, 1))
        done = CliRunner().invoke(demo, words)
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        assert done.stdout.splitlines()[0] == f"made the topics {', '.join(others)}"
        found = admin.list_topics(timeout=30).topics
        assert [len(found[name].partitions) for name in TOPICS] == [1, *[PARTITIONS] * len(others)]
        again = CliRunner().invoke(demo, words)
        assert again.stdout.splitlines()[0] == "the topics of the shop are there"


def test_the_demo_names_the_topic_that_could_not_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: AdminClient, wanted: TopicSpec, *__: Any) -> None:
        raise TopicUnavailable(f"the topic {wanted.name} could not be created: not authorised")

    monkeypatch.setattr(topic_creation, "ensure_topic", refuse)
    with Broker() as broker:
        refused = CliRunner().invoke(demo, ["--bootstrap-server", broker.bootstrap_servers, "--events", "5"])
    assert refused.exit_code == 1
    sentence = f"the topic {next(iter(TOPICS))} could not be created: not authorised"
    assert refused.stderr == f"Error: {broker.bootstrap_servers}: {sentence}\n"
