"""`kafka-consumer-perf-test`: how fast a consumer reads, as one line of comma-separated numbers."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli import renamed_options
from pessoa.cli.command_line import INTEGER, LONG, Given, Options, UsageError
from pessoa.cli.tool_run import tool, warn

if TYPE_CHECKING:
    from confluent_kafka import Message

MEGABYTE = 1024 * 1024
_BATCH = 10_000
_HEADER = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, "
    "fetch.nMsg.sec"
)


def make_options() -> Options:
    options = Options("kafka-consumer-perf-test", "This tool is used to verify the consumer performance.")
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="server to connect to", aliases=("broker-list",))
    text("topic", "the topic to consume", metavar="topic")
    text("include", "a regular expression of topics", metavar="Java regex (String)")
    text("group", "the consumer group", metavar="gid")
    text("num-records", "how many records", metavar="count", kind=LONG)
    text("messages", "the old name of --num-records", metavar="count", kind=LONG)
    text("fetch-size", "bytes of a fetch", metavar="size", default="1048576", kind=INTEGER)
    flag("from-latest", "begin at the end where the group has no offset")
    text("socket-buffer-size", "the receive buffer of a socket", metavar="size", default="2097152", kind=INTEGER)
    text("timeout", "give up when no record came for so long", metavar="milliseconds", default="10000", kind=LONG)
    text("reporting-interval", "ms between two lines", metavar="interval_ms", default="5000", kind=LONG)
    flag("show-detailed-stats", "a line every --reporting-interval")
    text("date-format", "how times are shown", metavar="date format", default="yyyy-MM-dd HH:mm:ss:SSS")
    flag("hide-header", "leave out the names of the columns")
    flag("print-metrics", "print statistics at the end")
    text("command-config", "a properties file of the consumer", metavar="config file")
    text("consumer.config", "the old name of --command-config", metavar="config file")
    text("command-property", "a property of the consumer, repeatable", metavar="prop1=val1")
    text("threads", "from earlier days", metavar="count", hidden=True)
    text("num-fetch-threads", "from earlier days", metavar="count", hidden=True)
    return options


@tool(make_options)
def main(given: Given) -> int:
    count = _check(given)
    from pessoa.client.librdkafka import check_addresses

    settings = _settings(given)
    if not given.has("hide-header"):
        first = "time, threadId, " if given.has("show-detailed-stats") else "start.time, end.time, "
        print(first + _HEADER)
    check_addresses(given.value("bootstrap-server"), "consumer")
    run_ = _Run(given, count)
    run_.consume(settings)
    if not given.has("show-detailed-stats"):
        run_.print_total()
    return 0


def _check(given: Given) -> int:
    refuse_two_counts(given)
    line.require(given, "bootstrap-server")
    if given.has("topic") == given.has("include"):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    return wanted_count(given)


def refuse_two_counts(given: Given) -> None:
    if given.has("messages") == given.has("num-records"):
        raise UsageError("Exactly one of the following arguments is required: [messages], [num-records]")


def wanted_count(given: Given) -> int:
    if given.has("messages"):
        print("Warning: --messages is deprecated. Use --num-records instead.")
    return given.number("messages" if given.has("messages") else "num-records")


def user_settings(given: Given) -> dict[str, str | int | float | bool]:
    """Return the settings in the user's file and --command-property options, under librdkafka's names."""
    from pessoa.client.librdkafka import to_librdkafka

    own = renamed_options.file_properties(given, "command-config", "consumer.config")
    for pair in given.values("command-property"):
        key, _, value = pair.partition("=")
        own[key] = value
    return to_librdkafka(own, warn)


def _settings(given: Given) -> dict[str, str | int | float | bool]:
    return {
        "client.id": "perf-consumer-client",
        **user_settings(given),
        "bootstrap.servers": given.value("bootstrap-server"),
        "group.id": given.maybe("group") or f"perf-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": "latest" if given.has("from-latest") else "earliest",
        "max.partition.fetch.bytes": given.value("fetch-size"),
        "socket.receive.buffer.bytes": given.value("socket-buffer-size"),
        "check.crcs": "false",
        "log_level": 0,
    }


class _Run:
    def __init__(self, given: Given, count: int) -> None:
        self._given = given
        self._wanted = count
        self._start = self._end = time.time()
        self._bytes = self._count = 0
        self._assigned_at: float | None = None
        self._is_detailed = given.has("show-detailed-stats")
        self._interval_s = given.number("reporting-interval") / 1000
        self._window = (self._start, 0, 0)

    def consume(self, settings: dict[str, str | int | float | bool]) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(settings)
        topic = self._given.maybe("topic") or f"^({self._given.value('include')})$"
        consumer.subscribe([topic], on_assign=self._on_assigned)
        timeout_s = self._given.number("timeout") / 1000
        last = time.time()
        try:
            while self._count < self._wanted:
                messages = consumer.consume(min(_BATCH, self._wanted - self._count), 0.1)
                now = time.time()
                if messages:
                    last = now
                    self._add(messages)
                elif now - last > timeout_s:
                    warn_of_timeout(self._given)
                    break
                if self._is_detailed and now - self._window[0] >= self._interval_s:
                    self._print_window(now)
            self._end = time.time()
        finally:
            consumer.close()

    def _on_assigned(self, *_: object) -> None:
        if self._assigned_at is None:
            self._assigned_at = time.time()

    def _add(self, messages: list[Message]) -> None:
        records = [message for message in messages if message.error() is None]
        self._count += len(records)
        self._bytes += sum(len(message) + len(message.key() or b"") for message in records)

    def _numbers(self, elapsed_s: float, size: int, count: int, rebalance_ms: int) -> str:
        megabytes = size / MEGABYTE
        elapsed_s = max(elapsed_s, 1e-3)
        fetch_ms = max(0, int(elapsed_s * 1000) - rebalance_ms)
        fetch_s = max(fetch_ms / 1000, 1e-3)
        return (
            f"{self._bytes / MEGABYTE:.4f}, {megabytes / elapsed_s:.4f}, {self._count}, {count / elapsed_s:.4f}, "
            f"{rebalance_ms}, {fetch_ms}, {megabytes / fetch_s:.4f}, {count / fetch_s:.4f}"
        )

    def _rebalance_ms(self) -> int:
        return 0 if self._assigned_at is None else int((self._assigned_at - self._start) * 1000)

    def _print_window(self, now: float) -> None:
        began, size, count = self._window
        rebalance = self._rebalance_ms() if began == self._start else 0
        numbers = self._numbers(now - began, self._bytes - size, self._count - count, rebalance)
        print(f"{time_text(now)}, 0, {numbers}")
        self._window = (now, self._bytes, self._count)

    def print_total(self) -> None:
        numbers = self._numbers(self._end - self._start, self._bytes, self._count, self._rebalance_ms())
        print(f"{time_text(self._start)}, {time_text(self._end)}, {numbers}")


def warn_of_timeout(given: Given) -> None:
    print(
        "WARNING: Exiting before consuming the expected number of records: timeout "
        f"({given.value('timeout')} ms) exceeded. You can use the --timeout option to increase the timeout."
    )


def time_text(moment: float) -> str:
    local = datetime.fromtimestamp(moment, UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}:{local.microsecond // 1000:03d}"
