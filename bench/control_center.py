"""The control centre in a real Chromium: first page, 10,000 topics, a search of 1,000,000 messages, a live tail,
memory, and the broker's CPU time for ten browsers.

One broker, one control centre and one Chromium share this machine's cores. Times of pages are from the request to the
content in the window, in a browser that has loaded the frame once (its scripts are cached for a year).
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.apache import HOST, running_pessoa, scaled
from bench.http_load import running_service
from bench.report import OURS
from tests.apache.broker import reserve_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from bench.report import Report

TOPICS = 10_000
MESSAGES = 1_000_000
TAIL_PER_S = 5_000
TAIL_S = 10
BROWSERS = 10
LOOK_S = 20
# The control centre samples the broker every two seconds for an open page.
IDLE_S = 5
ROUNDS = 5


def run(report: Report) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("  Chromium is not on PATH, so the control centre is not measured")
        return
    from playwright.sync_api import sync_playwright

    port = reserve_port()
    with tempfile.TemporaryDirectory() as folder, running_pessoa(Path(folder)) as side:
        arguments = ("control-center", "--bootstrap-server", side.bootstrap, "--host", HOST, "--port", str(port))
        with running_service(*arguments, port=port) as center, sync_playwright() as playwright:
            report.add("control centre, memory at start", OURS, center.memory_mb(), "MB")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            url = f"http://localhost:{port}"
            _fill(side.bootstrap)
            page = browser.new_page()
            report.add("first page, first visit", OURS, _seconds(lambda: _open(page, url, ".notice")), "s")
            report.add("first page", OURS, _median(lambda: _open(page, url, ".notice")), "s")
            _measure_search(report, url, center.memory_mb)
            _measure_tail(report, page, url, side.bootstrap)
            _create_topics(side.bootstrap)
            topics = _median(lambda: _open(page, f"{url}/topics", "tbody tr"))
            report.add(f"list of {scaled(TOPICS):,} topics", OURS, topics, "s")
            found = _median(lambda: _open(page, f"{url}/topics?q=7&page=2", "tbody tr"))
            report.add("the same, searched, second page", OURS, found, "s")
            page.close()
            _measure_looking(report, browser, url, side.process.cpu_seconds)
            report.add("control centre, memory after all that", OURS, center.memory_mb(), "MB")
            browser.close()


def _open(page: Page, url: str, awaited: str) -> None:
    page.goto(url, wait_until="commit")
    page.wait_for_selector(f".main >> {awaited}")


def _seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _median(act: Callable[[], object]) -> float:
    return statistics.median(_seconds(act) for _ in range(ROUNDS))


def _fill(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic("events", 3, 1), NewTopic("tail", 3, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number in range(scaled(MESSAGES)):
        value = f'{{"id": {number}, "customer": "c-{number % 1000}", "amount": {number % 977}, "note": "{"n" * 40}"}}'
        _produce(producer, "events", value)
    producer.flush(120)


def _produce(producer: Producer, topic: str, value: str) -> None:
    while True:
        try:
            producer.produce(topic, value)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _measure_search(report: Report, url: str, memory_mb: Callable[[], float]) -> None:
    wanted = scaled(MESSAGES) - 3
    cases = {"text": {"search": f'"id": {wanted},'}, "filter": {"filter": f"value.id == {wanted}"}}
    for name, query in cases.items():
        begun = time.perf_counter()
        answer = httpx.get(f"{url}/api/v1/topics/events/messages", params=query, timeout=300).json()
        report.add(f"search {scaled(MESSAGES):,} messages, {name}", OURS, time.perf_counter() - begun, "s")
        assert answer["matched"] == 1, answer
        assert answer["scanned"] == scaled(MESSAGES)
    report.add("control centre, memory after searches", OURS, memory_mb(), "MB")


def _measure_tail(report: Report, page: Page, url: str, servers: str) -> None:
    _open(page, f"{url}/topics/tail?tab=messages&start=live", "text=Live: 0 messages so far")
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    total, begun = TAIL_PER_S * TAIL_S, time.perf_counter()
    for number in range(total):
        producer.produce("tail", f"record {number}")
        if number % 50 == 49:
            producer.poll(0)
            time.sleep(max(0.0, begun + (number + 1) / TAIL_PER_S - time.perf_counter()))
    producer.flush(30)
    produced = time.perf_counter()
    shown = _shown_by_tail(page, total)
    report.add(f"live tail at {TAIL_PER_S:,}/s: the last is shown after", OURS, time.perf_counter() - produced, "s")
    report.add("live tail: records lost", OURS, total - shown, "")


def _shown_by_tail(page: Page, total: int) -> int:
    """Return how many records the page shows as received: `total`, or the number after 30 s."""
    deadline = time.monotonic() + 30
    while True:
        words = page.locator(".notice", has_text="Live:").inner_text()
        found = int(words.partition("Live: ")[2].split(" ")[0].replace(",", ""))
        if found >= total or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def _wait_until_idle(cpu_seconds: Callable[[], float]) -> None:
    """Wait until the broker was idle for IDLE_S, when the control centre has stopped sampling for closed pages."""
    deadline, idle_since = time.monotonic() + 60, time.monotonic()
    while time.monotonic() - idle_since < IDLE_S:
        assert time.monotonic() < deadline, "the broker is not idle a minute after the last page was closed"
        before = cpu_seconds()
        time.sleep(0.5)
        if cpu_seconds() - before > 0.05:
            idle_since = time.monotonic()


def _create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    names = [f"topic-{number:05d}" for number in range(scaled(TOPICS))]
    for start in range(0, len(names), 1000):
        part = [NewTopic(name, 1, 1) for name in names[start : start + 1000]]
        for future in admin.create_topics(part, request_timeout=60).values():
            future.result(90)


def _measure_looking(report: Report, browser: Browser, url: str, cpu_seconds: Callable[[], float]) -> None:
    _wait_until_idle(cpu_seconds)
    before = cpu_seconds()
    time.sleep(LOOK_S)
    report.add("broker's processor, no browser is open", OURS, 100 * (cpu_seconds() - before) / LOOK_S, "%")
    pages = [browser.new_page() for _ in range(BROWSERS)]
    for number, one in enumerate(pages):
        _open(one, f"{url}/topics" if number % 2 else url, "tbody tr" if number % 2 else ".notice")
    before = cpu_seconds()
    time.sleep(LOOK_S)
    report.add(f"broker's processor, {BROWSERS} browsers look", OURS, 100 * (cpu_seconds() - before) / LOOK_S, "%")
    for one in pages:
        one.close()
