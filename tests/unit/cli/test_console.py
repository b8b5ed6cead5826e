"""The console tools, as far as they need no cluster."""

from __future__ import annotations

import signal
from typing import Any

from pessoa.cli.console.console_consumer import EndSignals
from pessoa.cli.console.console_producer import _send
from pessoa.cli.console.line_reader import Line


class Full:
    """A producer whose local queue is full until it is polled."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def produce(self, topic: str, **_: object) -> None:
        self.calls.append("produce")
        assert len(self.calls) < 4, "asked in vain"
        if "poll" not in self.calls:
            raise BufferError

    def poll(self, timeout_s: float) -> int:
        self.calls.append("poll")
        return 1


def test_a_producer_whose_queue_is_full_is_polled_until_it_has_room() -> None:
    producer = Full()
    waiting: Any = producer
    _send(waiting, "t", Line([], None, b"oi"), lambda error, message: None)
    assert producer.calls == ["produce", "poll", "produce"]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asked = EndSignals()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        asked.close()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
