"""Brokers: the list, and a broker with its directories, requests, logs and configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nicegui import ui

from pessoa.client.config_admin import ResourceType
from pessoa.control_center.broker_logs import KINDS, LOGGERS, log_path, read_tail
from pessoa.control_center.center import Center
from pessoa.control_center.pages.config_rows_view import draw_configs
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import (
    Cell,
    Html,
    badge,
    bar,
    bytes_text,
    card,
    link,
    notice,
    table,
    tag,
    tile,
    tiles,
)
from pessoa.control_center.views import BrokerView
from pessoa.web.problems import HttpProblem

LOG_LINES = 200


def register(center: Center) -> None:
    @page(center, "/brokers", "brokers", "Brokers")
    async def brokers(visit: Visit) -> None:
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(await _list(visit)))

        await redraw()
        visit.live(2.0, redraw)

    @page(center, "/brokers/{broker}", "brokers", "Brokers")
    async def one_broker(visit: Visit, broker: str) -> None:
        found = next((one for one in (await visit.center.overview(visit.t)).brokers if str(one.id) == broker), None)
        if found is None:
            raise HttpProblem(404, visit.t("There is no broker {name}.", name=broker))
        visit.html(await _broker_details(visit, found))
        await _draw_logs(visit, found)
        if found.is_up:
            with ui.element("section").classes("card"):
                visit.html(tag("h2", visit.t("Configuration")))
                await draw_configs(visit, ResourceType.BROKER, broker)


async def _list(visit: Visit) -> Html:
    t = visit.t
    view = await visit.center.overview(t)
    rows: list[list[Cell]] = []
    for one in view.brokers:
        state = badge(t("up"), "good") if one.is_up else badge(t("away"), "bad")
        marks = tag("span", state, " ", badge(t("controller"), "accent") if one.is_controller else "")
        traffic = "–" if one.bytes_in is None else f"{bytes_text(one.bytes_in)}/s"
        out = "–" if one.bytes_out is None else f"{bytes_text(one.bytes_out)}/s"
        rows.append([
            link(t("Broker {n}", n=one.id), f"/brokers/{one.id}"), marks, f"{one.host}:{one.port}", one.leaders,
            one.replicas, badge(str(one.behind), "warning") if one.behind else "0", bytes_text(one.disk_bytes),
            traffic, out,
        ])  # fmt: skip
    heads = [t("Broker"), t("State"), t("Address"), t("Leads"), t("Replicas"), t("Out of sync"), t("On disk"),
             t("Bytes in"), t("Bytes out")]  # fmt: skip
    traffic_notice = Html("")
    if all(one.bytes_in is None for one in view.brokers):
        traffic_notice = notice(
            t("Bytes in and out are not shown: these brokers serve no /metrics (pessoa.metrics.port).")
        )
    content = table(heads, rows, empty=t("No broker answers."), numbers=(3, 4, 5, 6, 7, 8))
    return tag("div", notice(view.health, view.level), card("", content), traffic_notice)


async def _broker_details(visit: Visit, broker: BrokerView) -> Html:
    t = visit.t
    head = tiles(
        tile(t("State"), t("up") if broker.is_up else t("away"), f"{broker.host}:{broker.port}",
             "good" if broker.is_up else "bad"),
        tile(t("Leads"), broker.leaders, t("of {n} replicas", n=broker.replicas)),
        tile(t("Out of sync"), broker.behind, t("replicas"), "warning" if broker.behind else ""),
        tile(t("On disk"), bytes_text(broker.disk_bytes), t("of records")),
        tile(t("Controller"), t("yes") if broker.is_controller else t("no"), t("of the cluster")),
    )  # fmt: skip
    if not broker.is_up:
        return tag("div", head, notice(t("This broker is away; what it has is on the others."), "bad"))
    sizes = await visit.center.watch.sizes()
    disks: list[list[Cell]] = []
    for one in sizes.directories.get(broker.id, ()):
        used_share = None if not one.total or one.usable is None else 1 - one.usable / one.total
        full: Cell = "–" if used_share is None else bar(used_share, "warning" if used_share > 0.85 else "")
        words = "" if used_share is None else f"{used_share:.0%} · {bytes_text(one.usable)} {t('free')}"
        disks.append([one.path, one.partitions, bytes_text(one.size), full, words])
    directories = table([t("Directory"), t("Replicas"), t("Records"), t("Disk"), ""], disks,
                        empty=t("The broker tells of no directory."), numbers=(1, 2))  # fmt: skip
    node = next(each for each in (await visit.center.watch.image()).nodes.nodes if each.node_id == broker.id)
    requests = [
        [one.api, f"{one.requests:,}", _ms(one.median_ms), _ms(one.p99_ms)]
        for one in await visit.center.metrics.requests(node)
    ]
    request_table = table(
        [t("Request"), t("Count"), "p50", "p99"], requests[:20],
        empty=t("This broker serves no /metrics (pessoa.metrics.port)."), numbers=(1, 2, 3),
    )  # fmt: skip
    return tag("div", head, card(t("Log directories"), directories), card(t("Requests"), request_table))


async def _draw_logs(visit: Visit, broker: BrokerView) -> None:
    """Draw the broker's own logs if they are files of this machine; else the command that shows them where the
    broker runs."""
    t, home = visit.t, visit.center.config.home
    kind = visit.query("log", "error")
    path = log_path(home, broker.id, kind)
    with ui.element("section").classes("card").props("id=logs"):
        visit.html(tag("h2", t("Logs")))
        if path is None:
            command = tag("code", f"pessoa logs broker-{broker.id} --access")
            visit.html(
                tag("p", t("They are files where the broker runs. To read them there:"), " ", command, cls="dim")
            )
            return
        tabs = [
            tag("a", t(one), href=visit.here(log=one, find=None) + "#logs", cls="on" if one == kind else None,
                aria_current="page" if one == kind else None)
            for one in KINDS
        ]  # fmt: skip
        visit.html(tag("nav", *tabs, cls="tabs", aria_label=t("Logs")))
        find = Html(
            '<form class="bar-form" method="get" role="search" action="#logs">'
            '<input type="hidden" name="log" value="{}"><input type="search" name="find" value="{}" placeholder="{}"'
            ' aria-label="{}">'
            '<button class="btn secondary">{}</button></form>'
        )
        words = t("Find in the log")
        visit.html(find.format(kind, visit.query("find"), words, words, t("Find")))
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(await asyncio.to_thread(_log_lines, visit, path, kind)))

        await redraw()
        visit.live(2.0, redraw)
        if kind in LOGGERS and not path.exists() and broker.is_up:

            async def turn_on() -> None:
                change = visit.center.set_config(
                    visit.person, ResourceType.BROKER_LOGGER, str(broker.id), *LOGGERS[kind]
                )
                await visit.attempt(change, t("It is on until the broker starts again."))

            visit.button(t("Turn it on"), turn_on, "admin")


def _log_lines(visit: Visit, path: Path, kind: str) -> Html:
    t = visit.t
    try:
        found = read_tail(path, LOG_LINES, visit.query("find"))
    except FileNotFoundError:
        return tag("p", t("Nothing was written to this log: it may be off."), cls="empty")
    except OSError as failure:
        return notice(t("The log cannot be read: {reason}", reason=failure.strerror), "bad")
    if not found.rows:
        return tag("p", t("No line fits."), cls="empty")
    if kind == "printed" or not found.columns:
        return tag("pre", "\n".join(row[0] for row in found.rows))
    cells: list[list[Cell]] = [list(row) for row in found.rows]
    return tag("div", table(found.columns, cells, empty=""), cls="log")


def _ms(number: float | None) -> str:
    return "–" if number is None or number != number else f"{number:.1f} ms"
