"""The table client × feature: which features of Kafka each client uses successfully with our broker.

A module of tests names the client that it drives, a test names the feature that it shows:

    pytestmark = pytest.mark.client("aiokafka")

    @pytest.mark.feature("headers")
    def test_headers_are_consumed_in_the_order_in_which_they_were_produced(...) -> None: ...

Everything else is derived from these two marks. After a run the table is printed with passed and failed tests; and
`python -m tests.conformance.features` writes docs/CLIENTS.md, in which a tick means that a test shows it. All of these
tests run in `make test`; a test compares the page with the marks.

What a client cannot do (kcat creates no topics) stands in `BEYOND`, and in the page with its reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

OTHER_LANGUAGES = "test_other_languages"
CLIENTS = {
    "confluent-kafka": "test_confluent_kafka",
    "kafka-python": "test_kafka_python",
    "aiokafka": "test_aiokafka",
    "Java 4.3.1": "test_java_tools",
    "kcat": "test_kcat",
    "sarama": OTHER_LANGUAGES,
    "sarama (Debian)": OTHER_LANGUAGES,
    "franz-go": OTHER_LANGUAGES,
    "kafka-go": OTHER_LANGUAGES,
    "kafkajs": OTHER_LANGUAGES,
    "rdkafka (Rust)": OTHER_LANGUAGES,
    "Spring": OTHER_LANGUAGES,
}

# In the order of the table.
FEATURES = {
    "topics": "topics: create, describe, add partitions, delete",
    "configs": "configurations: describe, alter",
    "errors": "unknown topics and wrong requests are told with Kafka's errors",
    "acks": "produce with acks 0, 1 and all",
    "codecs": "gzip, snappy, lz4, zstd",
    "keys": "a key always goes to the same partition",
    "headers": "headers",
    "timestamps": "timestamps: CreateTime and LogAppendTime",
    "sizes": "large records, `max.message.bytes`, small fetches",
    "seek": "seek to the beginning, to the end and by time",
    "groups": "groups of 1 to 4 members on 3 partitions",
    "rebalances": "rebalances when members come and go",
    "commits": "commit and resume",
    "new groups": "the consumer protocol of KIP-848",
    "group admin": "list, describe and delete groups; read and reset their offsets",
    "share groups": "share groups (KIP-932): records are shared, released and accepted",
    "idempotence": "lost answers are retried without duplicates",
    "transactions": "transactions, committed and aborted, under both isolation levels",
    "exactly once": "consume, transform, produce with the offsets in the transaction",
    "restart": "the broker restarts in the middle",
}

BEYOND: Mapping[tuple[str, str], str] = {
    ("kafka-python", "new groups"): "it speaks the classic protocol only",
    ("aiokafka", "new groups"): "it speaks the classic protocol only",
    ("aiokafka", "group admin"): "its admin client has no delete and no reset",
    ("kafka-python", "share groups"): "it has no share consumer",
    ("aiokafka", "share groups"): "it has no share consumer",
    ("kcat", "share groups"): "it has no share consumer",
    ("Java 4.3.1", "exactly once"): "Apache ships it as an example program, not as a tool",
    ("kcat", "topics"): "it lists topics and changes nothing",
    ("kcat", "configs"): "it has no admin commands",
    ("kcat", "new groups"): "the librdkafka of Debian's kcat is older than the protocol",
    ("kcat", "group admin"): "it has no admin commands",
    ("kcat", "exactly once"): "it cannot add offsets to a transaction",
    ("kafkajs", "codecs"): "gzip alone is built in, the others are packages with compiled parts",
    ("sarama", "new groups"): "it speaks the classic protocol only",
    ("kafka-go", "new groups"): "it speaks the classic protocol only",
    ("kafkajs", "new groups"): "it speaks the classic protocol only",
    ("sarama (Debian)", "codecs"): "its zstd wants a C compiler",
    ("sarama (Debian)", "new groups"): "it speaks the classic protocol only",
    ("sarama (Debian)", "share groups"): "it has no share consumer",
    ("sarama (Debian)", "transactions"): "it is older than sarama's transactions",
    ("sarama (Debian)", "exactly once"): "it is older than sarama's transactions",
    ("sarama", "share groups"): "it has no share consumer",
    ("kafka-go", "share groups"): "it has no share consumer",
    ("kafkajs", "share groups"): "it has no share consumer",
    ("rdkafka (Rust)", "share groups"): "the crate does not wrap librdkafka's share consumer",
    ("kafka-go", "timestamps"): "it shows the producer's time also where the topic says LogAppendTime",
    ("kafka-go", "transactions"): "its writer has no transactions",
    ("kafka-go", "exactly once"): "its writer has no transactions",
}
# Features of which the drivers of other languages need no test.
NOT_ASKED = frozenset({"configs", "sizes", "seek", "group admin", "idempotence"})

PAGE = Path(__file__).parents[2] / "docs" / "CLIENTS.md"

_HEAD = """\
# Which clients work, and what each was seen to do

Made by `python -m tests.conformance.features` from the tests in `tests/conformance/`, which run real clients against a
really started broker. ✓: a test shows it. –: the client cannot do it, for the reason below. Empty: not tested.
The clients of Go (sarama 1.61.1, franz-go 1.22.2, kafka-go 0.4.51) and of Rust are fetched from the registries of these
languages, and so run only with `make test PESSOA_OTHER_REGISTRIES=1`. "sarama (Debian)" is the package of Debian 12,
sarama 1.22.1 of 2019, and runs in every `make test`; its groups commit only with `Consumer.Offsets.Retention` set, as
with every Kafka 4. Debian's kafka-go (0.2.1) uses versions of Produce and Fetch that Kafka 4 has given up, and Debian
has no package of franz-go or of the Rust crate.
"""


class Shown(NamedTuple):
    """A test that shows a feature of a client."""

    client: str
    feature: str


def shown_by(item: pytest.Item) -> list[Shown]:
    client = item.get_closest_marker("client")
    if client is None:
        return []
    return [checked(client.args[0], feature) for mark in item.iter_markers("feature") for feature in mark.args]


def checked(client: str, feature: str) -> Shown:
    assert client in CLIENTS, f"{client} is not among the clients of features.py"
    assert feature in FEATURES, f"{feature} is not among the features of features.py"
    assert (client, feature) not in BEYOND, f"{client} shows {feature!r}, which features.py takes to be beyond it"
    return Shown(client, feature)


def all_shown() -> Iterator[Shown]:
    """Yield client and feature of every mark in the modules, without running a test."""
    for module_name in dict.fromkeys(CLIENTS.values()):
        module = importlib.import_module(f"tests.conformance.{module_name}")
        of_module = _client_of(_marks(module))
        for name, function in vars(module).items():
            if name.startswith("test_"):
                for marks in _sets_of_marks(function):
                    client = _client_of(marks) or of_module
                    for feature in (feature for mark in marks if mark.name == "feature" for feature in mark.args):
                        assert client is not None, f"{name} of {module_name} does not say which client it drives"
                        yield checked(client, feature)


def _client_of(marks: Iterable[pytest.Mark]) -> str | None:
    return next((str(mark.args[0]) for mark in marks if mark.name == "client"), None)


def _marks(marked: object) -> list[pytest.Mark]:
    """Return the marks of a test or of a module; its `pytestmark` is one mark or a list."""
    found = getattr(marked, "pytestmark", [])
    return [_mark(one) for one in (found if isinstance(found, list) else [found])]


def _mark(one: pytest.Mark | pytest.MarkDecorator) -> pytest.Mark:
    return one.mark if isinstance(one, pytest.MarkDecorator) else one


def _sets_of_marks(function: object) -> Iterator[list[pytest.Mark]]:
    """Yield the marks of a test, then those of each of its parameters."""
    marks = _marks(function)
    yield marks
    for mark in marks:
        if mark.name == "parametrize":
            for parameter in mark.args[1]:
                yield [_mark(inner) for inner in getattr(parameter, "marks", ())]


def table(cells: Mapping[Shown, str]) -> list[str]:
    rows = [["", *CLIENTS]]
    for feature, sentence in FEATURES.items():
        words = (cells.get(Shown(client, feature), "–" if (client, feature) in BEYOND else "") for client in CLIENTS)
        rows.append([sentence, *words])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def page(shown: Iterable[Shown]) -> str:
    reasons = [f"- {client}, {FEATURES[feature]}: {why}." for (client, feature), why in BEYOND.items()]
    return "\n".join([_HEAD, *table(dict.fromkeys(shown, "✓")), "", *reasons, ""])


if __name__ == "__main__":
    PAGE.write_text(page(all_shown()), encoding="utf-8")
