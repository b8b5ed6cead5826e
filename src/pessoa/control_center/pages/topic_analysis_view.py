"""The analysis of a topic: begun by a button, with progress and stop, drawn as figures and bars."""

from __future__ import annotations

from nicegui import ui

from pessoa.control_center.pages.frame import Visit
from pessoa.control_center.pages.parts import (
    Cell,
    Html,
    bar,
    bytes_text,
    card,
    compact,
    date_clock,
    join,
    notice,
    table,
    tag,
    tile,
    tiles,
)
from pessoa.control_center.topic_analysis import AnalysisScan, TopicReport

_HOURS_SHOWN = 48


def draw(visit: Visit, topic: str) -> None:
    t = visit.t
    running: list[AnalysisScan] = []

    async def begin() -> None:
        stop()
        running[:] = [await visit.center.analyse(visit.person, topic)]
        timer.activate()

    def stop() -> None:
        for one in running:
            one.stop()

    def step() -> None:
        visit.center.look()
        for one in running:
            shown.set_content(str(_content(visit, one)))
            if one.progress.is_done:
                timer.deactivate()

    visit.html(tag("p", t("Reads the whole topic once, and counts: nothing is kept."), cls="dim"))
    with ui.element("div").classes("actions"):
        visit.button(t("Analyse"), lambda: visit.attempt_quietly(begin()), "reader")
        visit.button(t("Stop"), stop, "reader", primary=False)
    shown = visit.html()
    timer = ui.timer(0.4, step, active=False)
    visit.at_end(stop)


def _content(visit: Visit, scan: AnalysisScan) -> Html:
    t, progress = visit.t, scan.progress
    words = t("{n} of {m} messages read", n=f"{progress.scanned:,}", m=f"{progress.total:,}")
    if progress.error:
        status = notice(progress.error, "bad")
    elif progress.is_done:
        status = notice(f"{words} · {progress.seconds:.1f} s · {bytes_text(progress.bytes)}", "good")
    else:
        status = notice(f"{words} · {progress.scanned / max(1, progress.total):.0%}", "warning")
    return tag("div", status, _figures(visit, scan.report()) if progress.scanned else "")


def _figures(visit: Visit, found: TopicReport) -> Html:
    t = visit.t
    head = tiles(
        tile(t("Messages"), compact(found.messages), t("{n} without a value", n=compact(found.null_values))),
        tile(t("Distinct keys"), f"≈ {compact(found.distinct_keys)}",
             t("{n} without a key", n=compact(found.null_keys))),
        tile(t("Distinct values"), f"≈ {compact(found.distinct_values)}", ""),
        _time_tile(t("First"), found.first_ms), _time_tile(t("Last"), found.last_ms),
    )  # fmt: skip
    sizes: list[list[Cell]] = [
        [name, *(bytes_text(one) for one in figures)]
        for name, figures in ((t("Key"), found.key_bytes), (t("Value"), found.value_bytes))
        if figures
    ]
    heads = ["", t("least"), t("average"), "p50", "p95", "p99", t("most")]
    parts = [(f"{t('Partition')} {number}", count) for number, count in found.partitions.items()]
    hours = [(date_clock(at)[5:16], count) for at, count in found.hours[-_HOURS_SHOWN:]]
    return tag(
        "div", head, card(t("Sizes"), table(heads, sizes, empty=t("There are none."), numbers=range(1, 7))),
        tag("div", card(t("Messages by partition"), bars(parts)), card(t("Messages by hour"), bars(hours)), cls="two"),
    )  # fmt: skip


def _time_tile(name: str, at_ms: int | None) -> Html:
    if at_ms is None:
        return tile(name, "–")
    day, _, hour = date_clock(at_ms).partition(" ")
    return tile(name, hour[:8], day)


def bars(rows: list[tuple[str, int]]) -> Html:
    top = max([count for _, count in rows] or [1]) or 1
    drawn = [
        tag("div", tag("span", name, cls="bar-label"), bar(count / top), tag("strong", compact(count)), cls="bar-row")
        for name, count in rows
    ]
    return tag("div", join(drawn), cls="bars")
