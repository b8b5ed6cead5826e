"""The topics of an app: created before its queries start, or refused with the broker's error message."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from pessoa.streams import App, PlanRefused, running
from pessoa.testing import Broker
from tests.support.topics import make_topic


class StartedEngine(Exception):
    """Raised instead of starting Spark: all topics have been created by then."""


def start(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def engine(*_: Any, **__: Any) -> None:
        raise StartedEngine

    monkeypatch.setattr(running, "Engine", engine)
    running.Running(app)


def test_an_app_creates_the_topics_that_it_writes_or_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as broker:
        make_topic(broker.bootstrap_servers, "words")
        app = App("shout", broker.bootstrap_servers, dead_letter_topic="letters", on_error="dead-letter")
        app.stream("words", value="string").to("loud")
        with pytest.raises(StartedEngine):
            start(app, monkeypatch)
        found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics
        assert {"loud", "letters"} <= set(found)
        wrong = App("shout", broker.bootstrap_servers)
        wrong.stream("words", value="string").to("no/topic")
        with pytest.raises(PlanRefused, match="the topic no/topic could not be created: "):
            start(wrong, monkeypatch)
