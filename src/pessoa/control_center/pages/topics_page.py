"""Topics: the list, paged, sorted and searched on the server; a dialog to create one."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import events, ui

from pessoa.control_center.center import Center
from pessoa.control_center.csv_text import csv_table
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import (
    Cell,
    Html,
    badge,
    bytes_text,
    card,
    compact,
    icon,
    link,
    rate_text,
    table,
    tag,
)
from pessoa.control_center.views import TopicPage

SORTS = (("name", "Topic"), ("partitions", "Partitions"), ("messages", "Messages"), ("size", "Size"),
         ("rate", "Rate"), ("lag", "Lag"))  # fmt: skip
PER_PAGE = 50
MAX_ROWS = 100_000


def register(center: Center) -> None:
    @page(center, "/topics", "topics", "Topics")
    async def topics(visit: Visit) -> None:
        t = visit.t
        with ui.element("div").classes("spread"):
            visit.html(_search_form(visit))
            with ui.element("div").classes("actions"):
                visit.button("CSV", lambda: _download(visit), "reader", primary=False).tooltip(t("Download"))
                visit.button(t("Create a topic"), lambda: open_creation(visit))
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(await _list(visit)))

        async def star(event: events.GenericEventArguments) -> None:
            await toggle_favourite(visit.center, visit.person.name, str(event.args.get("topic", "")))
            await redraw()

        visit.on("star", star)
        await redraw()
        visit.live(3.0, redraw)
        if visit.query("create"):
            open_creation(visit)


async def toggle_favourite(center: Center, user: str, topic: str) -> None:
    """Make a topic a favourite, or no longer. Raises the problem 404 for a new favourite that does not exist."""
    is_new = topic not in center.state.favourites_of(user)
    if is_new:
        await center.watch.topic_info(topic)
    center.state.set_favourite(user, topic, is_new)


async def _download(visit: Visit) -> None:
    """Send all topics that the search finds to the browser as one CSV file."""
    found = await visit.center.watch.topic_page(
        search=visit.query("q"), per_page=MAX_ROWS, internal=bool(visit.query("internal"))
    )
    heads = ("topic", "partitions", "replication", "messages", "bytes", "lag")
    rows = [(one.name, one.partitions, one.replication, one.messages, one.size, one.lag) for one in found.topics]
    ui.download.content(csv_table(heads, rows), "topics.csv")


def _search_form(visit: Visit) -> Html:
    t = visit.t
    checked = Html(" checked") if visit.query("internal") else Html("")
    return Html(
        '<form class="bar-form" method="get" role="search"><input type="search" name="q" value="{}" placeholder="{}"'
        ' aria-label="{}"><label><input type="checkbox" name="internal" value="1"{} onchange="this.form.submit()">{}'
        '</label><button class="btn secondary">{}</button></form>'
    ).format(visit.query("q"), t("Find a topic"), t("Find a topic"), checked, t("internal ones too"), t("Find"))


async def _list(visit: Visit) -> Html:
    t = visit.t
    found = await visit.center.watch.topic_page(
        search=visit.query("q"), sort=visit.query("sort", "name"), descending=bool(visit.query("down")),
        page=visit.number("page", 1), per_page=PER_PAGE, internal=bool(visit.query("internal")),
        favourites=visit.center.state.favourites_of(visit.person.name),
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for one in found.topics:
        star = tag("button", icon("star" if one.is_favourite else "star_border"), data_topic=one.name,
                   cls="star on" if one.is_favourite else "star", aria_label=t("Favourite: {name}", name=one.name),
                   onclick="emitEvent('star',{topic:this.dataset.topic})")  # fmt: skip
        marks = [badge(t("internal"))] if one.is_internal else []
        marks += [badge(t("offline: {n}", n=one.offline), "bad")] if one.offline else []
        marks += [badge(t("{n} without all replicas", n=one.behind), "warning")] if one.behind else []
        name = tag("span", star, link(one.name, f"/topics/{quote(one.name, safe='')}"), " ", *marks)
        lag: Cell = "–" if one.lag is None else badge(compact(one.lag), "warning") if one.lag else "0"
        rows.append([name, one.partitions, one.replication, compact(one.messages), bytes_text(one.size),
                     rate_text(one.rate), lag])  # fmt: skip
    heads: list[Cell] = [_sort_head(visit, *one) for one in SORTS]
    heads.insert(2, t("Replicas"))
    content = table(heads, rows, empty=t("No topic is called so."), numbers=(1, 2, 3, 4, 5, 6))
    return card("", content, _pager(visit, found))


def _sort_head(visit: Visit, key: str, text: str) -> Cell:
    is_sorted = visit.query("sort", "name") == key
    is_down = bool(visit.query("down"))
    goes_down = (not is_down) if is_sorted else key != "name"
    arrow = (" ↓" if is_down else " ↑") if is_sorted else ""
    return link(visit.t(text) + arrow, visit.here(sort=key, down="1" if goes_down else None, page=None), "")


def _pager(visit: Visit, found: TopicPage) -> Html:
    t = visit.t
    last = max(1, -(-found.total // found.per_page))
    parts: list[Cell] = [tag("span", t.count("topic", found.total))]
    if last > 1:
        parts.append(tag("span", t("page {n} of {m}", n=found.page, m=last)))
        for words, at, symbol in ((t("Previous page"), found.page - 1, "chevron_left"),
                                  (t("Next page"), found.page + 1, "chevron_right")):  # fmt: skip
            if 1 <= at <= last:
                parts.append(tag("a", icon(symbol), href=visit.here(page=at), cls="btn secondary", aria_label=words))
    return tag("div", *parts, cls="pager")


def open_creation(visit: Visit, like: dict[str, str] | None = None, partitions: int = 3, replication: int = 0) -> None:
    """Open the dialog that creates a topic; `like` are the settings of the topic that is cloned."""
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Clone a topic") if like is not None else t("Create a topic")))
        name = ui.input(t("Name")).props("outlined autofocus").style("width:100%")
        with ui.element("div").classes("two").style("margin:12px 0"):
            count = ui.number(t("Partitions"), value=partitions, min=1, precision=0).props("outlined")
            copies = ui.number(t("Replicas (0: the default)"), value=replication, min=0, precision=0).props("outlined")
        given = "\n".join(f"{key}={value}" for key, value in (like or {}).items())
        configs = ui.textarea(t("Configuration: a key=value on each line"), value=given).props("outlined rows=3")
        configs.style("width:100%")

        async def create() -> None:
            pairs = [line.partition("=") for line in (configs.value or "").splitlines() if line.strip()]
            wrong = next((key for key, equals, _ in pairs if not equals), None)
            if wrong is not None:
                ui.notify(t("{line}: write key=value", line=wrong), type="negative")
                return
            made = visit.center.create_topic(
                visit.person, (name.value or "").strip(), int(count.value or -1), int(copies.value or 0) or -1,
                {key.strip(): value.strip() for key, _, value in pairs},
            )  # fmt: skip
            if await visit.attempt(made, t("The topic is created.")):
                visit.go(f"/topics/{quote(name.value.strip(), safe='')}")

        with ui.element("div").classes("actions").style("margin-top:16px"):
            visit.button(t("Create"), create)
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()
