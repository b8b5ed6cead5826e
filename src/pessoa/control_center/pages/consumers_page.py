"""Consumers: groups of every kind with their lag; a group with members, offsets, its lag over time, reset and
delete."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from nicegui import ui

from pessoa.control_center.center import Center
from pessoa.control_center.csv_text import csv_table
from pessoa.control_center.offset_reset import WAYS, ResetRow
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import (
    Cell,
    Html,
    badge,
    card,
    chart,
    compact,
    date_clock,
    link,
    notice,
    table,
    tag,
    tile,
    tiles,
)
from pessoa.control_center.views import GroupView
from pessoa.web.problems import HttpProblem

TONES = {"Stable": "good", "Empty": "plain", "Dead": "bad", "PreparingRebalance": "warning",
         "CompletingRebalance": "warning", "Assigning": "warning", "Reconciling": "warning"}  # fmt: skip


def register(center: Center) -> None:
    @page(center, "/consumers", "consumers", "Consumers")
    async def consumers(visit: Visit) -> None:
        with ui.element("div").classes("spread"):
            visit.html(_search(visit))
            visit.button("CSV", lambda: _download(visit), "reader", primary=False).tooltip(visit.t("Download"))
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(await _list(visit)))

        await redraw()
        visit.live(2.0, redraw)

    @page(center, "/consumers/{group}", "consumers", "Consumers")
    async def one_group(visit: Visit, group: str) -> None:
        view = await visit.center.group(group)
        _actions(visit, view)
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(_group_details(visit, await visit.center.group(group))))

        shown.set_content(str(_group_details(visit, view)))
        visit.live(2.0, redraw)


async def _download(visit: Visit) -> None:
    wanted = visit.query("q").casefold()
    rows = [
        (one.id, one.state, one.kind, " ".join(one.topics), one.lag)
        for one in await visit.center.watch.group_rows()
        if wanted in one.id.casefold()
    ]
    ui.download.content(csv_table(("group", "state", "kind", "topics", "lag"), rows), "groups.csv")


def _search(visit: Visit) -> Html:
    t = visit.t
    return Html(
        '<form class="bar-form" method="get" role="search"><input type="search" name="q" value="{}" placeholder="{}"'
        ' aria-label="{}"><button class="btn secondary">{}</button></form>'
    ).format(visit.query("q"), t("Find a group"), t("Find a group"), t("Find"))


async def _list(visit: Visit) -> Html:
    t = visit.t
    wanted = visit.query("q").casefold()
    rows: list[list[Cell]] = []
    found = [one for one in await visit.center.watch.group_rows() if wanted in one.id.casefold()]
    for one in sorted(found, key=lambda row: (-(row.lag or 0), row.id))[:500]:
        lag: Cell = "–" if one.lag is None else badge(compact(one.lag), "warning") if one.lag else badge("0", "good")
        topics = ", ".join(one.topics[:3]) + (" …" if len(one.topics) > 3 else "")
        state = badge(one.state, TONES.get(one.state, "plain"))
        rows.append([link(one.id, f"/consumers/{quote(one.id, safe='')}"), state, one.kind, topics, lag])
    heads = [t("Group"), t("State"), t("Kind"), t("Topics"), t("Lag")]
    return card("", table(heads, rows, empty=t("There is no such group."), numbers=(4,)))


def _group_details(visit: Visit, view: GroupView) -> Html:
    t = visit.t
    head = tiles(
        tile(t("State"), view.state, view.assignor or view.kind, TONES.get(view.state, "").replace("plain", "")),
        tile(t("Lag"), compact(view.lag), t("messages"), "warning" if view.lag else "good"),
        tile(t("Members"), len(view.members), t("now")),
        tile(t("Coordinator"), view.coordinator if view.coordinator >= 0 else "–", t("broker")),
    )
    history = visit.center.watch.history.of(f"lag:{view.id}")
    lag_chart = chart(t("Lag"), history, "", "c", t("The first samples are being taken."))
    members: list[list[Cell]] = []
    for one in view.members:
        parts = ", ".join(f"{topic}-{number}" for topic, number in one.partitions[:20])
        partition_cell: Cell = parts or badge(t("idle: there are more members than partitions"), "warning")
        tasks = tag("div", ", ".join(one.tasks), cls="dim") if one.tasks else ""
        members.append(
            [tag("span", one.client_id, tag("div", one.id, cls="dim")), one.host, tag("span", partition_cell, tasks)]
        )
    offsets: list[list[Cell]] = [
        [link(one.topic, f"/topics/{quote(one.topic, safe='')}"), one.partition,
         "–" if one.committed is None else f"{one.committed:,}", "–" if one.end is None else f"{one.end:,}",
         compact(one.lag), one.member]
        for one in view.offsets[:1000]
    ]  # fmt: skip
    # A share group has no committed offsets: what is below the start offset is settled.
    first = t("Start offset") if view.kind == "share" else t("Committed")
    changes: list[list[Cell]] = [
        [date_clock(at), badge(state, TONES.get(state, "plain"))]
        for at, state in reversed(visit.center.watch.group_states(view.id))
    ]
    return tag(
        "div", head, card(t("Lag over time"), lag_chart),
        card(t("Members"), table([t("Client"), t("Host"), t("Partitions")], members,
                                 empty=t("No member is connected."))),
        card(t("Offsets"), table([t("Topic"), t("Partition"), first, t("End"), t("Lag"), t("Member")], offsets,
                                 empty=t("Nothing is committed."), numbers=(1, 2, 3, 4))),
        card(t("Internal topics"), tag("p", *(link(one, f"/topics/{quote(one, safe='')}", "link chip")
                                              for one in view.internal_topics))) if view.internal_topics else "",
        card(t("Rebalances"), table([t("Since"), t("State")], changes, empty=t("Nothing has happened."))),
    )  # fmt: skip


def _actions(visit: Visit, view: GroupView) -> None:
    t = visit.t
    with ui.element("div").classes("actions"):
        visit.button(t("Reset offsets"), lambda: _open_reset(visit, view), why_not=view.why_no_reset)
        if view.kind == "share":
            visit.button(t("Delete offsets"), lambda: _open_forgetting(visit, view), "admin",
                         why_not=view.why_no_reset, primary=False)  # fmt: skip
        why_not = t("A group with members cannot be deleted.") if view.members else None
        visit.button(t("Delete"), lambda: _open_deletion(visit, view.id), "admin", why_not=why_not, primary=False)


def _open_deletion(visit: Visit, group: str) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        warning = notice(t("Its offsets are lost: a new group of this name begins where its settings say."), "bad")
        visit.html(tag("div", tag("h2", t("Delete {name}", name=group)), warning))

        async def delete() -> None:
            if await visit.attempt(visit.center.delete_group(visit.person, group), t("The group is deleted.")):
                visit.go("/consumers")

        with ui.element("div").classes("actions"):
            visit.button(t("Delete"), delete, "admin").classes("danger")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


def _open_forgetting(visit: Visit, view: GroupView) -> None:
    t = visit.t
    topics = sorted({one.topic for one in view.offsets})
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        warning = notice(t("The group begins anew in this topic, where its settings say."), "bad")
        visit.html(tag("div", tag("h2", t("Delete offsets of {name}", name=view.id)), warning))
        topic = ui.select(topics, value=topics[0] if topics else None, label=t("Topic")).props("outlined")
        topic.style("width:100%;margin:10px 0")

        async def delete() -> None:
            change = visit.center.forget_share_topic(visit.person, view.id, str(topic.value))
            if await visit.attempt(change, t("The offsets are deleted.")):
                dialog.close()

        with ui.element("div").classes("actions"):
            visit.button(t("Delete"), delete, "admin").classes("danger")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


def _open_reset(visit: Visit, view: GroupView) -> None:
    t = visit.t
    topics = sorted({one.topic for one in view.offsets})
    planned: list[ResetRow] = []
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Reset offsets of {name}", name=view.id)))
        topic = ui.select(topics, value=topics[0] if topics else None, label=t("Topic")).props("outlined")
        topic.style("width:100%")
        names = {"earliest": t("to the beginning"), "latest": t("to the end"), "time": t("to a time"),
                 "shift": t("by a number of messages"), "exact": t("to an offset")}  # fmt: skip
        way = ui.select({one: names[one] for one in WAYS}, value="earliest", label=t("Where to")).props("outlined")
        way.style("width:100%;margin:10px 0")
        amount = ui.input(t("Number, or time as 2026-11-17 14:00")).props("outlined").style("width:100%")
        preview = visit.html()

        async def show() -> None:
            planned.clear()
            apply.disable()
            try:
                number = _amount(way.value, amount.value or "")
            except ValueError:
                preview.set_content(str(notice(t("That is no number and no time."), "bad")))
                return
            try:
                planned.extend(await visit.center.plan_reset(view.id, topic.value, way.value, number))
            except HttpProblem as problem:
                preview.set_content(str(notice(problem.message, "bad")))
                return
            rows: list[list[Cell]] = [
                [one.partition, "–" if one.current is None else f"{one.current:,}", f"{one.target:,}",
                 f"{one.lag_after:,}"]
                for one in planned
            ]  # fmt: skip
            heads = [t("Partition"), t("Now"), t("Then"), t("Lag then")]
            preview.set_content(str(table(heads, rows, empty=t("There is no partition."), numbers=(0, 1, 2, 3))))
            apply.enable()

        async def reset() -> None:
            change = visit.center.reset_offsets(visit.person, view.id, list(planned))
            if await visit.attempt(change, t("The offsets are reset.")):
                dialog.close()

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Preview"), show, "reader", primary=False)
            apply = visit.button(t("Apply"), reset)
            apply.disable()
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


def _amount(way: str, text: str) -> int | None:
    text = text.strip()
    if way in ("earliest", "latest") or not text:
        return None
    if way == "time" and not text.isdigit():
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    return int(text)
