"""`kafka-console-share-consumer`: prints records that a share group delivers to it, and acknowledges each one.

What was printed is accepted; with --reject it is refused for good, with --release given back to the group, which
delivers it again until its limit of deliveries. It ends after --max-messages, after --timeout-ms without a record, or
with Ctrl-C, and says on standard error how many records it processed. Records that were fetched and not printed are
released when the consumer closes.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli import renamed_options
from pessoa.cli.command_line import INTEGER, Given, Options, UsageError
from pessoa.cli.console.console_consumer import (
    EndSignals,
    end_consumer,
    formatter_properties,
    leave_librdkafka,
    report,
)
from pessoa.cli.renamed_options import OPTION
from pessoa.cli.tool_run import tool, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import AcknowledgeType, ShareConsumer

    from pessoa.cli.console.formatters import Shown

_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_GROUP = "console-share-consumer"
# Ctrl-C is seen between two polls.
_POLL_S = 0.2
_COMMIT_S = 30.0
_UNKNOWN = "Unknown error when running consumer"


def make_options() -> Options:
    options = Options(
        "kafka-console-share-consumer",
        "This tool helps to read data from Kafka topics using share groups and outputs it to standard output.",
    )
    options.text("topic", "the topic to consume", metavar="topic")
    options.text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    options.text("group", "the share group", metavar="share group id")
    options.flag("reject", "reject every record: it is not delivered again")
    options.flag("release", "release every record: it is delivered again")
    options.text("max-messages", "how many records to print before the end", metavar="num_messages", kind=INTEGER)
    options.text("timeout-ms", "end when no record came for so long", metavar="timeout_ms", kind=INTEGER)
    options.flag("skip-message-on-error", "go on after a record that cannot be printed")
    options.text("key-deserializer", "the class of keys", metavar="deserializer for keys")
    options.text("value-deserializer", "the class of values", metavar="deserializer for values")
    options.text("formatter", "the class that prints records", metavar="class", default=_FORMATTER)
    options.text("formatter-property", "a property of the formatter, repeatable", metavar="prop")
    options.text("property", "the old name of --formatter-property", metavar="prop")
    options.text("formatter-config", "a file of such properties", metavar="config file")
    options.text("command-property", "a property of the consumer, repeatable", metavar="consumer_prop")
    options.text("consumer-property", "the old name of --command-property", metavar="consumer_prop")
    options.text("command-config", "a file of such properties", metavar="config file")
    options.text("consumer-config", "the old name of --command-config", metavar="config file")
    options.flag("enable-systest-events", "say when the tool ends")
    return options


@tool(make_options)
def main(given: Given) -> int:
    if not given.has("topic"):
        raise UsageError("--topic is a required argument")
    line.require(given, "bootstrap-server")
    if given.has("reject") and given.has("release"):
        raise UsageError("At most one of --reject and --release may be specified.")
    given.check_numbers()
    from pessoa.cli.console.formatters import BadData, formatter

    try:
        form = formatter(given.value("formatter"), formatter_properties(given))
    except KeyError:
        raise UsageError(given.value("formatter")) from None
    except BadData as error:
        raise UsageError(str(error)) from None
    return _consume(given, form.format)


def _settings(given: Given) -> dict[str, object]:
    from pessoa.client.librdkafka import check_addresses, to_librdkafka

    own = renamed_options.file_properties(given, "command-config", "consumer-config", OPTION)
    from_file = own.get("group.id")
    own |= renamed_options.properties(given, "command-property", "consumer-property", OPTION)
    groups = {name for name in (given.maybe("group"), own.get("group.id"), from_file) if name}
    if len(groups) > 1:
        listed = ", ".join(f"'{name}'" for name in sorted(groups))
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer-config') do not match. Detected group ids: {listed}"
        )
    servers = given.value("bootstrap-server")
    check_addresses(servers, "consumer")
    return {
        "bootstrap.servers": servers,
        "client.id": _GROUP,
        **to_librdkafka(own, warn),
        "group.id": groups.pop() if groups else _GROUP,
        "share.acknowledgement.mode": "explicit",
        "log_level": 0,
    }


def _consume(given: Given, form: Callable[[Shown], bytes]) -> int:
    from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

    settings = _settings(given)
    try:
        consumer = ShareConsumer(settings)
    except KafkaException as error:
        warn(f"ERROR {_UNKNOWN}: {error.args[0].str()}")
        return 1
    answer = (
        AcknowledgeType.REJECT
        if given.has("reject")
        else AcknowledgeType.RELEASE
        if given.has("release")
        else AcknowledgeType.ACCEPT
    )
    printing = _Printing(given, consumer, form, answer)
    signals = EndSignals()
    try:
        consumer.subscribe([given.value("topic")])
        code = printing.run(signals)
    finally:
        signals.close()
        is_closed = end_consumer(given, consumer, printing.count)
    return code if is_closed else leave_librdkafka(code)


class _Printing:
    """The loop that polls, prints and acknowledges until there are enough records; `count` is how many were
    processed."""

    def __init__(
        self, given: Given, consumer: ShareConsumer, form: Callable[[Shown], bytes], answer: AcknowledgeType
    ) -> None:
        self.count = 0
        self._consumer = consumer
        self._form = form
        self._answer = answer
        limit = given.maybe_number("max-messages")
        self._limit = limit if limit is not None and limit >= 0 else None
        self._timeout_ms = given.maybe_number("timeout-ms")
        self._skips = given.has("skip-message-on-error")

    def run(self, signals: EndSignals) -> int:
        last = time.monotonic()
        while not signals.to_end and (self._limit is None or self.count < self._limit):
            messages = self._consumer.poll(_POLL_S)
            now = time.monotonic()
            if len(messages):
                last = now
            elif self._timeout_ms is not None and 0 <= self._timeout_ms <= (now - last) * 1000:
                return 0
            if not self._take(list(messages)):
                return 1
            sys.stdout.buffer.flush()
        return 0

    def _take(self, messages: list[object]) -> bool:
        """Print and acknowledge the delivered records; return False if a record could not be printed."""
        from confluent_kafka import AcknowledgeType, Message

        from pessoa.cli.console.formatters import BadData, shown

        is_good = True
        for message in messages:
            assert isinstance(message, Message)
            if (error := message.error()) is not None:
                report(error)
                continue
            if not is_good or (self._limit is not None and self.count >= self._limit):
                # More was delivered than is wanted: another member shall have it.
                self._consumer.acknowledge(message, AcknowledgeType.RELEASE)
                continue
            self.count += 1
            try:
                sys.stdout.buffer.write(self._form(shown(message)))
            except BadData as wrong:
                self._consumer.acknowledge(message, AcknowledgeType.REJECT)
                is_good = self._skips
                what = "Error processing message, skipping this message" if is_good else _UNKNOWN
                warn(f"ERROR {what}: {wrong}")
                continue
            self._consumer.acknowledge(message, self._answer)
        if messages:
            self._consumer.commit_sync(_COMMIT_S)
        return is_good
