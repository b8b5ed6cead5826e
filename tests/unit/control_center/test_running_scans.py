"""Scans of topics end with the page or caller that started them, and a limited number run at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.control_center import center as center_module
from pessoa.control_center.api.endpoints import _stop_at_end
from pessoa.control_center.center import MAX_SCANS, Center
from pessoa.control_center.center_config import from_properties
from pessoa.control_center.message_reading import Progress
from pessoa.web.problems import HttpProblem


class FakeScan:
    def __init__(self) -> None:
        self.progress = Progress()
        self.is_stopped = asyncio.Event()

    def stop(self) -> None:
        self.is_stopped.set()


def test_a_scan_beyond_the_limit_of_concurrent_scans_is_refused_until_another_has_ended() -> None:
    async def act() -> None:
        center = Center(from_properties({"bootstrap.servers": "localhost:1"}))
        make: Any = FakeScan
        scans = [center._start_scan(make) for _ in range(MAX_SCANS)]
        with pytest.raises(HttpProblem) as refused:
            center._start_scan(make)
        assert refused.value.status == 429
        assert str(MAX_SCANS) in refused.value.message
        scans[0].progress.is_done = True
        assert center._start_scan(make)

    asyncio.run(act())


def test_an_api_scan_stops_when_its_caller_has_disconnected_or_the_response_is_complete() -> None:
    async def act() -> None:
        answers = iter([False, True])

        async def is_disconnected() -> bool:
            return next(answers)

        gone: Any = SimpleNamespace(is_disconnected=is_disconnected)
        scan: Any = FakeScan()
        async with _stop_at_end(scan, gone):
            await asyncio.wait_for(scan.is_stopped.wait(), 60)
        there: Any = SimpleNamespace(is_disconnected=lambda: asyncio.sleep(0, result=False))
        scan = FakeScan()
        async with _stop_at_end(scan, there):
            assert not scan.is_stopped.is_set()
        assert scan.is_stopped.is_set()

    asyncio.run(act())


def test_the_tasks_of_a_page_end_even_if_its_browser_never_opened_a_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.pages import frame

    handlers: list[Any] = []
    client = SimpleNamespace(on_disconnect=lambda _: None, on_delete=handlers.append)
    monkeypatch.setattr(frame, "ui", SimpleNamespace(context=SimpleNamespace(client=client)))
    visit: Any = object.__new__(frame.Visit)
    visit.at_end(act := lambda: None)
    assert handlers == [act]


def test_no_page_waits_only_for_a_disconnection_to_end_its_tasks() -> None:
    pages = Path(center_module.__file__).parent / "pages"
    waiting = [one.name for one in pages.glob("*.py") if "on_disconnect" in one.read_text(encoding="utf-8")]
    assert waiting == ["frame.py"]
