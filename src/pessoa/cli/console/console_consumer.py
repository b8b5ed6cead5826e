"""`kafka-console-consumer`: prints the records of topics to standard output.

With --topic or --include it joins a group, one of its own (`console-consumer-12345`) unless --group names one; with
--partition it reads that partition and no group is involved. It ends after --max-messages, after --timeout-ms without
a record, or with Ctrl-C, and says on standard error how many records it processed. A group's offsets are committed
for what was printed, no further.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from pessoa.cli import command_line as line
from pessoa.cli import renamed_options
from pessoa.cli.command_line import INTEGER, LONG, Given, Options, UsageError
from pessoa.cli.renamed_options import OPTION
from pessoa.cli.tool_run import read_properties, tool, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, KafkaError, ShareConsumer

    from pessoa.cli.console.formatters import Shown

_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
# How many records one call may bring, and how long it waits: Ctrl-C is seen between two calls.
_BATCH = 500
_CLOSE_S = 20.0
_POLL_S = 0.2


def make_options(tool: str = "kafka-console-consumer") -> Options:
    options = Options(tool, "Read data from Kafka topics and outputs it to standard output.")
    options.text("topic", "the topic to consume", metavar="topic")
    options.text("include", "a regular expression of topics", metavar="Java regex (String)", aliases=("whitelist",))
    options.text("partition", "the partition to consume, from its end unless --offset says otherwise",
                 metavar="partition", kind=INTEGER)  # fmt: skip
    options.text("offset", "where to begin: a number, earliest or latest", metavar="consume offset")
    options.text("bootstrap-server", "the brokers to begin with", metavar="server to connect to",
                 aliases=("broker-list",))  # fmt: skip
    options.flag("from-beginning", "begin with the earliest record where the group has no offset")
    options.text("max-messages", "how many records to print before the end", metavar="num_messages", kind=INTEGER)
    options.text("timeout-ms", "end when no record came for so long", metavar="timeout_ms", kind=LONG)
    options.text("group", "the consumer group", metavar="consumer group id")
    options.text("isolation-level", "read_committed or read_uncommitted", metavar="isolation_level",
                 default="read_uncommitted")  # fmt: skip
    options.flag("skip-message-on-error", "go on after a record that cannot be printed")
    options.text("key-deserializer", "the class of keys", metavar="deserializer for key")
    options.text("value-deserializer", "the class of values", metavar="deserializer for values")
    options.text("formatter", "the class that prints records", metavar="class", default=_FORMATTER)
    options.text("formatter-property", "a property of the formatter, repeatable", metavar="prop")
    options.text("property", "the old name of --formatter-property", metavar="prop")
    options.text("formatter-config", "a file of such properties", metavar="config file")
    options.text("command-property", "a property of the consumer, repeatable", metavar="consumer_prop")
    options.text("consumer-property", "the old name of --command-property", metavar="consumer_prop")
    options.text("command-config", "a file of such properties", metavar="config file")
    options.text("consumer.config", "the old name of --command-config", metavar="config file")
    options.flag("enable-systest-events", "say when the tool ends")
    options.flag("new-consumer", "from earlier days", hidden=True)
    options.text("zookeeper", "from earlier days: means the default cluster", metavar="hosts", hidden=True)
    return options


@tool(make_options)
def main(given: Given) -> int:
    check(given)
    properties = formatter_properties(given)
    from pessoa.cli.console.formatters import BadData, formatter

    try:
        form = formatter(given.value("formatter"), properties)
    except KeyError:
        raise UsageError(given.value("formatter")) from None
    except BadData as error:
        raise UsageError(str(error)) from None
    return consume(given, form.format)


def check(given: Given) -> None:
    """Raise UsageError for options that exclude or lack each other, in the order in which Kafka checks them."""
    from pessoa.cli.tool_run import zookeeper_era

    if given.has("topic") == given.has("include"):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if not given.has("bootstrap-server") and not zookeeper_era(given):
        line.require(given, "bootstrap-server")
    if given.has("partition"):
        if not given.has("topic"):
            raise UsageError("The topic is required when partition is specified.")
        if given.has("from-beginning") and given.has("offset"):
            raise UsageError("Options from-beginning and offset cannot be specified together.")
    elif given.has("offset"):
        raise UsageError("The partition is required when offset is specified.")
    given.maybe("topic")
    starting_offset(given)
    given.check_numbers()


def starting_offset(given: Given) -> int:
    """Return the offset to start at, as librdkafka writes it: -2 is the beginning, -1 the end."""
    text = given.maybe("offset")
    if text is None:
        return -2 if given.has("from-beginning") else -1
    named = {"earliest": -2, "latest": -1}.get(text.lower())
    if named is not None:
        return named
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(
        f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a "
        "non-negative long."
    )


def formatter_properties(given: Given) -> dict[str, str]:
    properties = read_properties(given.value("formatter-config")) if given.has("formatter-config") else {}
    properties |= renamed_options.properties(given, "formatter-property", "property", OPTION)
    for part in ("key", "value"):
        if given.has(f"{part}-deserializer"):
            properties[f"{part}.deserializer"] = given.value(f"{part}-deserializer")
    return properties


def consume(given: Given, form: Callable[[Shown], bytes]) -> int:
    """Print records until the end and return the exit code. `form` turns a record of `formatters.shown` into bytes."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    try:
        consumer = Consumer(consumer_settings(given))
    except KafkaException as error:
        warn(f"ERROR Unknown error when running consumer: {error.args[0].str()}")
        return 1
    count = [0]
    signals = EndSignals()
    try:
        if given.has("partition"):
            partition = TopicPartition(given.value("topic"), given.number("partition"), starting_offset(given))
            consumer.assign([partition])
        elif given.has("include"):
            # librdkafka takes a name for an expression if it begins with ^.
            consumer.subscribe([f"^({given.value('include').replace(',', '|')})$"])
        else:
            consumer.subscribe([given.value("topic")])
        code = _print_records(consumer, given, form, count, signals)
    finally:
        signals.close()
        is_closed = end_consumer(given, consumer, count[0])
    return code if is_closed else leave_librdkafka(code)


def end_consumer(given: Given, consumer: Consumer | ShareConsumer, count: int) -> bool:
    """Close the consumer and print how many records it processed; return False if the group could not be left in
    time."""
    sys.stdout.flush()
    is_closed = close_in_time(consumer)
    warn(f"Processed a total of {count} messages")
    if given.has("enable-systest-events"):
        print("shutdown_complete")
    return is_closed


def leave_librdkafka(code: int) -> NoReturn:
    """End the process at once: Python would wait once more for a librdkafka that does not close."""
    warn("WARN The group could not be left in time; the broker will notice when the session has ended.")
    sys.stdout.flush()
    os._exit(code)


class EndSignals:
    """Signal handlers that set `to_end` at SIGINT (Ctrl-C) or SIGTERM: the consumer then commits its offsets and
    leaves the group. An exception instead would be lost if it is raised within a callback of librdkafka."""

    def __init__(self) -> None:
        self.to_end = False
        # What a shell ignores for a command with `&` stays ignored.
        handled = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
        self._previous_handlers = {number: signal.signal(number, self._on_signal) for number in handled}

    def close(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        if self.to_end:
            # The first signal did not end it: it is blocked, by a pipe that its reader does not empty, for instance.
            raise KeyboardInterrupt
        self.to_end = True


def close_in_time(consumer: Consumer | ShareConsumer) -> bool:
    """Commit and leave the group; return False if that took too long or was interrupted. librdkafka may wait for
    ever for a coordinator that was restarted meanwhile."""
    from threading import Thread

    thread = Thread(target=consumer.close, daemon=True)
    thread.start()
    try:
        thread.join(_CLOSE_S)
    except KeyboardInterrupt:
        return False
    return not thread.is_alive()


def _print_records(
    consumer: Consumer, given: Given, form: Callable[[Shown], bytes], count: list[int], signals: EndSignals
) -> int:
    import time

    from pessoa.cli.console.formatters import BadData, shown

    limit = given.maybe_number("max-messages")
    timeout_ms = given.maybe_number("timeout-ms")
    skips = given.has("skip-message-on-error")
    stores = not given.has("partition")
    out = sys.stdout.buffer
    last = time.monotonic()
    while limit is None or limit < 0 or count[0] < limit:
        if signals.to_end:
            return 130 if given.has("enable-systest-events") else 0
        wanted = _BATCH if limit is None or limit < 0 else min(_BATCH, limit - count[0])
        messages = consumer.consume(wanted, _POLL_S)
        now = time.monotonic()
        if messages:
            last = now
        elif timeout_ms is not None and 0 <= timeout_ms <= (now - last) * 1000:
            out.flush()
            warn("ERROR Error processing message, terminating consumer process: \n"
                 "org.apache.kafka.common.errors.TimeoutException")  # fmt: skip
            return 0
        for message in messages:
            if (error := message.error()) is not None:
                report(error)
                continue
            count[0] += 1
            try:
                out.write(form(shown(message)))
            except BadData as wrong:
                if not skips:
                    warn(f"ERROR Unknown error when running consumer: {wrong}")
                    return 1
                warn(f"ERROR Error processing message, skipping this message: {wrong}")
            if stores:
                consumer.store_offsets(message)
        out.flush()
    return 0


def report(error: KafkaError) -> None:
    if error.fatal():
        from pessoa.client.client_errors import KafkaFailure

        raise KafkaFailure(error.str())
    warn(f"WARN {error.str()}")


def consumer_settings(given: Given) -> dict[str, object]:
    from pessoa.cli.tool_run import check_names, default_cluster, silence_listener
    from pessoa.client.cluster_client import parse_addresses
    from pessoa.client.librdkafka import to_librdkafka

    servers = given.maybe("bootstrap-server") or default_cluster()
    # librdkafka would take a word without a port for a host, and wait for it for ever.
    hosts = [host for host, _ in parse_addresses(servers)]
    own = renamed_options.file_properties(given, "command-config", "consumer.config", OPTION)
    from_file = own.get("group.id")
    own |= renamed_options.properties(given, "command-property", "consumer-property", OPTION)
    groups = {name for name in (given.maybe("group"), own.get("group.id"), from_file) if name}
    if len(groups) > 1:
        listed = ", ".join(f"'{name}'" for name in sorted(groups))
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: {listed}"
        )
    reset = _reset_policy(given, own)
    level = own.get("isolation.level", given.value("isolation-level"))
    if level not in _ISOLATION_LEVELS:
        raise UsageError(
            f"ERROR Unknown error when running consumer: Invalid value {level} for configuration isolation.level: "
            f"String must be one of: {', '.join(_ISOLATION_LEVELS)}",
            with_help=False,
        )
    check_names(hosts)
    commits = "true" if groups else "false"
    return {
        "bootstrap.servers": servers,
        "client.id": "console-consumer",
        "enable.auto.commit": commits,
        # As the Java client: a topic that one subscribes to comes into being where the broker allows it.
        "allow.auto.create.topics": "true",
        **to_librdkafka(own, warn),
        "group.id": groups.pop() if groups else f"console-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": reset,
        "isolation.level": level,
        # What was fetched but not printed is not committed.
        "enable.auto.offset.store": "false",
        "error_cb": silence_listener(),
        "log_level": 0,
    }


def _reset_policy(given: Given, own: dict[str, str]) -> str:
    chosen = own.get("auto.offset.reset")
    if given.has("from-beginning"):
        if chosen not in (None, "earliest"):
            raise UsageError(
                f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={chosen}', please remove one "
                "option",
                with_help=False,
            )
        return "earliest"
    return chosen or "latest"
