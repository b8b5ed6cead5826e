"""`kafka-share-consumer-perf-test`: how fast the members of a share group read, as one line of comma-separated numbers.

--threads members of one group share the records; each accepts what it got. `fetch.time.ms` is the whole time, because
a share group has no rebalance to take out of it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli.command_line import INTEGER, LONG, Given, Options
from pessoa.cli.consumer_perf_test import (
    MEGABYTE,
    refuse_two_counts,
    time_text,
    user_settings,
    wanted_count,
    warn_of_timeout,
)
from pessoa.cli.tool_run import tool

if TYPE_CHECKING:
    from confluent_kafka import Message

_HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
_GROUP = "perf-share-consumer"
_CLIENT = "perf-share-consumer-client"
_POLL_S = 0.1


def make_options() -> Options:
    options = Options("kafka-share-consumer-perf-test", "This tool is used to verify the share consumer performance.")
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    text("topic", "the topic to consume", metavar="topic")
    text("group", "the share group", metavar="gid", default=_GROUP)
    text("num-records", "how many records", metavar="count", kind=LONG)
    text("messages", "the old name of --num-records", metavar="count", kind=LONG)
    text("threads", "how many members share the records", metavar="count", default="1", kind=INTEGER)
    text("fetch-size", "bytes of a fetch", metavar="size", default="1048576", kind=INTEGER)
    text("socket-buffer-size", "the receive buffer of a socket", metavar="size", default="2097152", kind=INTEGER)
    text("timeout", "give up when no record came for so long", metavar="milliseconds", default="10000", kind=LONG)
    text("reporting-interval", "ms between two lines", metavar="interval_ms", default="5000", kind=LONG)
    flag("show-detailed-stats", "a line every --reporting-interval")
    flag("show-consumer-stats", "a line for every member")
    text("date-format", "how times are shown", metavar="date format", default="yyyy-MM-dd HH:mm:ss:SSS")
    flag("hide-header", "leave out the names of the columns")
    flag("print-metrics", "print statistics at the end")
    text("command-config", "a properties file of the consumer", metavar="config file")
    text("consumer.config", "the old name of --command-config", metavar="config file")
    text("command-property", "a property of the consumer, repeatable", metavar="prop1=val1")
    return options


@tool(make_options)
def main(given: Given) -> int:
    refuse_two_counts(given)
    line.require(given, "bootstrap-server", "topic")
    wanted = wanted_count(given)
    from pessoa.client.librdkafka import check_addresses

    settings = {
        "client.id": _CLIENT,
        **user_settings(given),
        "bootstrap.servers": given.value("bootstrap-server"),
        "group.id": given.value("group"),
        "fetch.max.bytes": given.value("fetch-size"),
        "socket.receive.buffer.bytes": given.value("socket-buffer-size"),
        "check.crcs": "false",
        "log_level": 0,
    }
    if not given.has("hide-header"):
        print(_HEADER)
    check_addresses(given.value("bootstrap-server"), "consumer")
    _Run(given, wanted, settings).consume()
    return 0


class _Member:
    """The numbers of bytes and records that one member of the group has consumed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.bytes = self.count = 0

    def __repr__(self) -> str:
        return f"_Member({self.number}, {self.count} records)"


class _Run:
    def __init__(self, given: Given, wanted: int, settings: dict[str, str | int | float | bool]) -> None:
        self._given = given
        self._wanted = wanted
        self._settings = settings
        self._members = [_Member(number) for number in range(1, max(1, given.number("threads")) + 1)]
        self._timeout_s = given.number("timeout") / 1000
        self._interval_s = given.number("reporting-interval") / 1000
        self._start = self._last = time.time()
        self._is_out_of_time = False
        self._failures: list[BaseException] = []

    def consume(self) -> None:
        """Let all members consume until they have enough records together, then print the line of the total."""
        threads = [threading.Thread(target=self._run_member, args=(one,)) for one in self._members]
        for thread in threads:
            thread.start()
        if self._given.has("show-detailed-stats"):
            self._report(threads)
        for thread in threads:
            thread.join()
        end = time.time()
        if self._failures:
            raise self._failures[0]
        if self._given.has("show-consumer-stats"):
            for one in self._members:
                print(f"Share consumer {one.number} having client id {self._settings['client.id']} consumption "
                      f"metrics- {self._line(self._start, end, one.bytes, one.count)}")  # fmt: skip
        if self._is_out_of_time:
            warn_of_timeout(self._given)
        print(self._line(self._start, end, self._bytes(), self._count()))

    def _count(self) -> int:
        return sum(one.count for one in self._members)

    def _bytes(self) -> int:
        return sum(one.bytes for one in self._members)

    def _report(self, threads: list[threading.Thread]) -> None:
        began, size, count = self._start, 0, 0
        while any(thread.is_alive() for thread in threads):
            threads[0].join(self._interval_s)
            now = time.time()
            if now - began >= self._interval_s:
                print(self._line(began, now, self._bytes() - size, self._count() - count))
                began, size, count = now, self._bytes(), self._count()

    def _run_member(self, member: _Member) -> None:
        from confluent_kafka import ShareConsumer

        try:
            consumer = ShareConsumer(dict(self._settings))
            try:
                consumer.subscribe([self._given.value("topic")])
                while self._count() < self._wanted:
                    messages = list(consumer.poll(_POLL_S))
                    now = time.time()
                    if messages:
                        self._last = now
                        _add(member, messages)
                    elif now - self._last > self._timeout_s:
                        self._is_out_of_time = True
                        break
            finally:
                consumer.close()
        except BaseException as failure:  # noqa: BLE001 - raised again by the thread that started this one
            self._failures.append(failure)

    @staticmethod
    def _line(start: float, end: float, size: int, count: int) -> str:
        elapsed_s = max(end - start, 1e-3)
        megabytes = size / MEGABYTE
        return (
            f"{time_text(start)}, {time_text(end)}, {megabytes:.4f}, {megabytes / elapsed_s:.4f}, "
            f"{count / elapsed_s:.4f}, {count}, {int((end - start) * 1000)}"
        )


def _add(member: _Member, messages: list[Message]) -> None:
    for message in messages:
        if message.error() is None:
            member.count += 1
            member.bytes += len(message) + len(message.key() or b"")
