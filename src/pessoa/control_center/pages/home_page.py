"""Home: how the cluster is, in a sentence; its numbers, charts and services."""

from __future__ import annotations

from urllib.parse import quote

from pessoa.control_center.center import Center, cluster_rows
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import (
    Html,
    badge,
    bytes_text,
    card,
    chart,
    compact,
    icon,
    link,
    notice,
    rate_text,
    tag,
    tile,
    tiles,
)
from pessoa.control_center.texts import Text
from pessoa.control_center.views import Overview


def register(center: Center) -> None:
    @page(center, "/", "home", "Home")
    async def home(visit: Visit) -> None:
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(await content(visit)))

        await redraw()
        visit.live(2.0, redraw)


async def content(visit: Visit) -> Html:
    t = visit.t
    view = await visit.center.overview(t)
    history = visit.center.watch.history
    wait = t("The first samples are being taken.")
    charts = tag(
        "div",
        chart(t("Produced"), history.of("in"), " msg/s", "a", wait),
        chart(t("Consumed"), history.of("out"), " msg/s", "b", wait),
        chart(t("Lag of all groups"), history.of("lag"), "", "c", wait),
        cls="charts",
    )
    firing = [notice(one.text, "warning") for _, one in visit.center.alerts.firing.values()][:5]
    return tag(
        "div",
        await _clusters(visit),
        notice(view.health, view.level),
        *firing,
        _tiles(view, t),
        card(t("Traffic"), charts),
        tag("div", card(t("Brokers"), _brokers(view, t)), card(t("Services"), _services(view, t)), cls="two"),
    )


async def _clusters(visit: Visit) -> Html:
    """Return a tile for each cluster if there are several."""
    t = visit.t
    if len(visit.center.clusters) == 1:
        return Html("")
    found = []
    for one in await cluster_rows(visit.center, t):
        words = t("{n} brokers, {m} topics", n=one.brokers, m=compact(one.topics))
        rates = f"↓ {rate_text(one.messages_in)}  ↑ {rate_text(one.messages_out)}  {t('Lag')} {compact(one.lag)}"
        is_here = one.name == visit.center.config.name
        found.append(
            tag("a", tag("div", one.name, " ", badge(t("shown"), "accent") if is_here else "", cls="tile-value"),
                tag("div", words, cls="tile-note"), tag("div", rates, cls="tile-note"),
                tag("div", one.health, cls="tile-note"), href=f"/?cluster={quote(one.name)}", cls=f"tile {one.level}")
        )  # fmt: skip
    return tag("div", *found, cls="tiles clusters")


def _tiles(view: Overview, t: Text) -> Html:
    up = sum(one.is_up for one in view.brokers)
    missing = t("{n} without all replicas", n=view.behind) if view.behind else t("all in sync")
    return tiles(
        tile(t("Brokers"), f"{up}/{len(view.brokers)}", t("controller {n}", n=view.controller),
             "" if up == len(view.brokers) else "warning"),
        tile(t("Topics"), compact(view.topics), t("{n} partitions", n=f"{view.partitions:,}")),
        tile(t("Replication"), t("offline: {n}", n=view.offline) if view.offline else t("whole") if not view.behind
             else t("degraded"), missing, "bad" if view.offline else "warning" if view.behind else "good"),
        tile(t("Produced"), rate_text(view.messages_in), t("messages")),
        tile(t("Consumed"), rate_text(view.messages_out), t("messages")),
        tile(t("Lag"), compact(view.lag), t.count("group", view.groups or 0)),
        tile(t("On disk"), bytes_text(view.size), t("all replicas")),
    )  # fmt: skip


def _brokers(view: Overview, t: Text) -> Html:
    rows = []
    for one in view.brokers:
        state = badge(t("up"), "good") if one.is_up else badge(t("away"), "bad")
        mark = badge(t("controller"), "accent") if one.is_controller else ""
        name = link(t("Broker {n}", n=one.id), f"/brokers/{one.id}")
        traffic = "" if one.bytes_in is None else f"↓ {bytes_text(one.bytes_in)}/s  ↑ {bytes_text(one.bytes_out)}/s"
        rows.append(
            tag("li", tag("div", name, " ", state, " ", mark), tag("div", f"{one.host}:{one.port}", cls="dim"),
                tag("div", t("leads {n} of {m}", n=one.leaders, m=one.replicas), cls="dim"),
                tag("div", traffic, cls="dim"))
        )  # fmt: skip
    return tag("ul", *rows, cls="rows")


def _services(view: Overview, t: Text) -> Html:
    rows = []
    for one in view.services:
        state = badge(t("up"), "good") if one.is_up else badge(t("not there"), "plain")
        note = tag("div", one.url if one.is_up else one.note, cls="dim")
        rows.append(tag("li", tag("div", icon("lan"), " ", one.name, " ", state), note))
    return tag("ul", *rows, cls="rows")
