"""A topic: overview with its partitions as the log that they are, messages, schema, configuration, groups, access."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from pessoa.client.config_admin import ResourceType
from pessoa.client.registry_client import by_version
from pessoa.control_center.center import Center
from pessoa.control_center.pages import topic_analysis_view, topic_copy_view, topic_messages
from pessoa.control_center.pages.config_rows_view import draw_configs
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import (
    Cell,
    Html,
    badge,
    bytes_text,
    card,
    chart,
    compact,
    join,
    link,
    notice,
    rate_text,
    table,
    tag,
    tile,
    tiles,
)
from pessoa.control_center.pages.topics_page import open_creation
from pessoa.control_center.views import PartitionView
from pessoa.web.problems import HttpProblem

TABS = (("", "Overview"), ("messages", "Messages"), ("schema", "Schema"), ("config", "Configuration"),
        ("groups", "Consumers"), ("analysis", "Analysis"), ("access", "Access"))  # fmt: skip
# As many cells as are drawn at each end of a partition.
_CELLS = 7


def register(center: Center) -> None:
    @page(center, "/topics/{topic}", "topics", "Topics")
    async def topic_page(visit: Visit, topic: str) -> None:
        await visit.center.watch.topic_info(topic)
        tab = visit.query("tab")
        path = f"/topics/{quote(topic, safe='')}"
        links = [
            tag("a", visit.t(text), href=f"{path}?tab={key}" if key else path, cls="on" if key == tab else None,
                aria_current="page" if key == tab else None)
            for key, text in TABS
        ]  # fmt: skip
        visit.html(tag("nav", *links, cls="tabs", aria_label=topic))
        match tab:
            case "messages":
                await topic_messages.draw(visit, topic)
            case "config":
                with ui.element("section").classes("card"):
                    await draw_configs(visit, ResourceType.TOPIC, topic)
            case "analysis":
                topic_analysis_view.draw(visit, topic)
            case "schema":
                visit.html(await _schemas(visit, topic))
            case "groups":
                visit.html(await _groups(visit, topic))
            case "access":
                visit.html(await _access(visit, topic))
            case _:
                await _overview(visit, topic)


async def _overview(visit: Visit, topic: str) -> None:
    t = visit.t
    _actions(visit, topic)
    shown = visit.html()

    async def redraw() -> None:
        view = await visit.center.watch.topic(topic)
        lag = (await visit.center.watch.topic_lags()).get(topic)
        head = tiles(
            tile(t("Messages"), compact(view.messages), t("in the log now")),
            tile(t("Rate"), rate_text(view.rate), t("produced")),
            tile(t("Size"), bytes_text(view.size), t("of one replica")),
            tile(t("Partitions"), len(view.partitions), t("{n} replicas each", n=view.replication)),
            tile(t("Lag"), compact(lag), t("of all groups"), "warning" if lag else ""),
        )
        history = visit.center.watch.history.of(f"topic:{topic}")
        rate = chart(t("Produced"), history, " msg/s", "a", t("The first samples are being taken."))
        drawn = tag("div", *(draw_partition(visit, one) for one in view.partitions[:100]), cls="parts")
        shown.set_content(str(tag("div", head, card(t("Partitions"), drawn), card(t("Rate"), rate))))

    await redraw()
    visit.live(2.0, redraw)


def draw_partition(visit: Visit, one: PartitionView) -> Html:
    """Draw the partition as a row of offset cells with the next one open, and the leader among its replicas."""
    t = visit.t
    reps = [
        tag("span", f"{t('broker')} {broker}{' [L]' if broker == one.leader else ''}",
            cls="rep lead" if broker == one.leader else "rep" if broker in one.isr else "rep out")
        for broker in one.replicas
    ]  # fmt: skip
    name = tag("div", t("Partition {n}", n=one.partition), tag("small", bytes_text(one.size)), cls="part-name")
    cells: list[Cell] = []
    if one.latest is None or one.earliest is None:
        cells = [badge(t("no leader: it cannot be read"), "bad")]
    else:
        earliest, latest = one.earliest, one.latest
        shown: list[int | None] = [*range(earliest, min(latest, earliest + 2 * _CELLS))]
        if latest - earliest > 2 * _CELLS:
            shown = [*range(earliest, earliest + _CELLS), None, *range(latest - _CELLS, latest)]
        if one.earliest:
            cells.append(tag("span", f"0 … {one.earliest - 1:,}", cls="cell gone", title=t("deleted")))
        cells += _cells(shown)
        cells.append(tag("span", f"{one.latest:,}", cls="cell next", title=t("the next offset")))
    return tag("div", name, tag("div", tag("div", *cells, cls="cells"), tag("div", *reps, cls="reps")), cls="part")


def _cells(offsets: list[int | None]) -> list[Cell]:
    """Return a cell for each offset, dots for None. A phone shows the first and the last three."""
    found: list[Cell] = []
    for number, at in enumerate(offsets):
        is_middle = 0 < number < len(offsets) - 3
        if at is None:
            found.append(tag("span", "…", cls="cell dots"))
        else:
            found.append(tag("span", f"{at:,}", cls="cell middle" if is_middle else "cell"))
    if None not in offsets and len(offsets) > 4:
        found.insert(1, tag("span", "…", cls="cell dots narrow", aria_hidden="true"))
    return found


def _actions(visit: Visit, topic: str) -> None:
    t = visit.t

    async def clone() -> None:
        view = await visit.center.watch.topic(topic)
        rows = await visit.center.configs(ResourceType.TOPIC, topic)
        own = {one.name: one.value or "" for one in rows if not one.is_default}
        open_creation(visit, own, len(view.partitions), view.replication)

    with ui.element("div").classes("actions"):
        visit.button(t("Produce a message"), lambda: topic_messages.open_producer(visit, topic))
        visit.button(t("Add partitions"), lambda: _open_partitions(visit, topic), primary=False)
        visit.button(t("Replicas"), lambda: _open_replicas(visit, topic), "admin", primary=False)
        visit.button(t("Clone"), clone, primary=False)
        visit.button(t("Copy messages"), lambda: topic_copy_view.open_copy(visit, topic), primary=False)
        visit.button(t("Empty"), lambda: _open_removal(visit, topic, empties=True), "admin", primary=False)
        visit.button(t("Delete"), lambda: _open_removal(visit, topic, empties=False), "admin", primary=False)


async def _open_partitions(visit: Visit, topic: str) -> None:
    t = visit.t
    now = len((await visit.center.watch.topic_info(topic)).partitions)
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(
            tag(
                "div",
                tag("h2", t("Add partitions")),
                notice(t("Keys may go to other partitions than before: their order is lost."), "warning"),
            )
        )
        total = ui.number(t("Partitions"), value=now + 1, min=now + 1, precision=0).props("outlined")  # fmt: skip

        async def add() -> None:
            if await visit.attempt(visit.center.add_partitions(visit.person, topic, int(total.value or 0)),
                                   t("The partitions are there.")):  # fmt: skip
                dialog.close()

        with ui.element("div").classes("actions").style("margin-top:16px"):
            visit.button(t("Add"), add)
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


async def _open_replicas(visit: Visit, topic: str) -> None:
    t = visit.t
    view = await visit.center.watch.topic(topic)
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("div", tag("h2", t("Replicas")), notice(t("Brokers copy the partitions in the background."))))
        factor = ui.number(t("Replicas"), value=view.replication, min=1, precision=0).props("outlined")

        async def change() -> None:
            done = visit.center.change_replication(visit.person, topic, int(factor.value or 0))
            if await visit.attempt(done, t("The copying has begun.")):
                dialog.close()

        with ui.element("div").classes("actions").style("margin-top:16px"):
            visit.button(t("Apply"), change, "admin")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


def _open_removal(visit: Visit, topic: str, *, empties: bool) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        warning = t("All its messages are lost.") if empties else t("The topic and all its messages are lost.")
        visit.html(tag("div", tag("h2", t("Empty") if empties else t("Delete")), notice(warning, "bad")))
        name_input = ui.input(t("Type {name} to go on", name=topic)).props("outlined autofocus").style("width:100%")

        async def remove() -> None:
            if name_input.value != topic:
                ui.notify(t("That is not the name of the topic."), type="negative")
                return
            center = visit.center
            act = center.empty_topic(visit.person, topic) if empties else center.delete_topic(visit.person, topic)
            if await visit.attempt(act, t("Done.")):
                visit.go(f"/topics/{quote(topic, safe='')}" if empties else "/topics")

        with ui.element("div").classes("actions").style("margin-top:16px"):
            visit.button(t("Empty") if empties else t("Delete"), remove, "admin").classes("danger")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


async def _schemas(visit: Visit, topic: str) -> Html:
    t = visit.t
    cards = []
    for part in ("value", "key"):
        subject = f"{topic}-{part}"
        try:
            found = await visit.center.services.registry.ask(by_version(subject))
        except HttpProblem as problem:
            text = t("No schema is registered for it.") if problem.status == 404 else problem.message
            cards.append(card(t(part), tag("p", text, cls="empty")))
            continue
        from pessoa.control_center.pages.schemas_page import pretty

        head = link(subject, f"/schemas/{quote(subject, safe='')}")
        version = t("version {n}, id {m}", n=found.version, m=found.id)
        cards.append(card(t(part), tag("p", head, " · ", version), tag("pre", pretty(found.schema))))
    return tag("div", *cards)


async def _groups(visit: Visit, topic: str) -> Html:
    t = visit.t
    lags = await visit.center.watch.group_lags()
    rows: list[list[Cell]] = [
        [link(name, f"/consumers/{quote(name, safe='')}"), len(mine), compact(sum(mine.values()))]
        for name, partitions in sorted(lags.items())
        if (mine := {at: lag for at, lag in partitions.items() if at[0] == topic})
    ]
    return card("", table([t("Group"), t("Partitions"), t("Lag")], rows, numbers=(1, 2),
                          empty=t("No group has committed offsets of this topic.")))  # fmt: skip


async def _access(visit: Visit, topic: str) -> Html:
    from pessoa.control_center.pages.access_page import acl_rows

    t = visit.t
    try:
        found = [
            (pattern, entry)
            for pattern, entry in await visit.center.acls()
            if pattern.kind.name == "TOPIC"
            and (pattern.name in (topic, "*") or (pattern.pattern_type.name == "PREFIXED" and
                                                  topic.startswith(pattern.name or "\0")))
        ]  # fmt: skip
    except HttpProblem as problem:
        return notice(problem.message)
    heads = [t("Principal"), t("Permission"), t("Operation"), t("Resource"), t("Host")]
    return card("", join([table(heads, acl_rows(found), empty=t("No ACL is about this topic."))]))
