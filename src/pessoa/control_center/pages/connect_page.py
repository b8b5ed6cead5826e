"""Connect: connectors with their tasks, throughput and dead letters; a form made from the plugin's own table of
settings; pause, restart, offsets, delete."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from nicegui import ui

from pessoa.control_center.accounts import demand
from pessoa.control_center.center import Center
from pessoa.control_center.connector_facts import (
    REASON_HEADERS,
    ConnectorFacts,
    password_keys,
    read_connector,
    read_connectors,
    shown_config,
)
from pessoa.control_center.message_reading import MessageQuery, as_text
from pessoa.control_center.pages.connector_form import open_form
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import (
    Cell,
    Html,
    badge,
    card,
    compact,
    date_clock,
    link,
    notice,
    rate_text,
    table,
    tag,
    tile,
    tiles,
)
from pessoa.control_center.service_links import segment
from pessoa.web.problems import HttpProblem

TONES = {"RUNNING": "good", "FAILED": "bad", "PAUSED": "warning", "STOPPED": "warning"}
ACTIONS = (("pause", "PUT", "Pause"), ("resume", "PUT", "Resume"), ("stop", "PUT", "Stop"))
LETTERS_SHOWN = 10


def register(center: Center) -> None:
    @page(center, "/connect", "connect", "Connect")
    async def connect(visit: Visit) -> None:
        state = await visit.center.services.connect.state()
        if not state.is_up:
            visit.html(notice(state.note))
            return
        with ui.element("div").classes("actions"):
            visit.button(visit.t("Create a connector"), lambda: open_form(visit))
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(await _list(visit)))

        await redraw()
        visit.live(3.0, redraw)

    @page(center, "/connect/{connector}", "connect", "Connect")
    async def one_connector(visit: Visit, connector: str) -> None:
        await _draw_connector(visit, connector)


async def topics_of(center: Center, name: str) -> list[str]:
    """Return the topics that a connector has used. Raises an `HttpProblem`."""
    found: Any = await center.services.connect.ask("GET", f"/connectors/{quote(name, safe='')}/topics")
    return sorted(map(str, found.get(name, {}).get("topics", []))) if isinstance(found, dict) else []


async def throughput(center: Center, one: ConnectorFacts, topics: list[str]) -> tuple[float | None, int | None]:
    """Return the records per second that a connector writes or reads, and a sink's lag; None for what is not known
    yet."""
    await center.watch.ends(topics)
    if one.kind == "source":
        rates = [rate for rate in map(center.watch.topic_rate, topics) if rate is not None]
        return (sum(rates) if rates else None), None
    lags = (await center.watch.group_lags()).get(one.group)
    return await center.watch.group_rate(one.group), None if lags is None else sum(lags.values())


async def letters_in(center: Center, topic: str | None) -> int | None:
    """Return the number of dead letters; None if the connector has no dead-letter topic."""
    if topic is None or topic not in (await center.watch.image()).topics:
        return None if topic is None else 0
    ends = (await center.watch.ends([topic])).get(topic, {})
    return sum(end.latest - end.earliest for end in ends.values())


async def _list(visit: Visit) -> Html:
    t, center = visit.t, visit.center
    answer = await center.services.connect.ask("GET", "/connectors?expand=status&expand=info")
    rows: list[list[Cell]] = []
    for one in read_connectors(answer):
        topics = await topics_of(center, one.name)
        rate, lag = await throughput(center, one, topics)
        letters = await letters_in(center, one.dead_letter_topic)
        marks = tag("span", badge(one.state, TONES.get(one.state, "plain")), " ",
                    badge(t("{n} failed", n=one.failed), "bad") if one.failed else "")  # fmt: skip
        letter_cell: Cell = "–" if letters is None else badge(compact(letters), "bad") if letters else "0"
        rows.append([link(one.name, f"/connect/{quote(one.name, safe='')}"), one.kind, marks, len(one.tasks),
                     ", ".join(topics[:3]) + (" …" if len(topics) > 3 else ""), rate_text(rate), compact(lag),
                     letter_cell])  # fmt: skip
    heads = [t("Connector"), t("Type"), t("State"), t("Tasks"), t("Topics"), t("Throughput"), t("Lag"),
             t("Dead letters")]  # fmt: skip
    return card("", table(heads, rows, empty=t("There is no connector."), numbers=(3, 5, 6, 7)))


async def _draw_connector(visit: Visit, name: str) -> None:
    t, connect = visit.t, visit.center.services.connect
    path = f"/connectors/{quote(name, safe='')}"

    async def act(method: str, what: str, words: str) -> None:
        async def send() -> None:
            demand(visit.person, "editor")
            visit.center.limits.demand(visit.person, "connector", name)
            await connect.ask(method, f"{path}{what}")

        if await visit.attempt(send(), words):
            visit.center.audit.note(visit.person.name, what.strip("/").partition("?")[0] or method.lower(), name)
            visit.go("/connect" if (method, what) == ("DELETE", "") else f"/connect/{quote(name, safe='')}")

    with ui.element("div").classes("actions"):
        for action, method, words in ACTIONS:
            visit.button(t(words), partial(act, method, f"/{action}", t("Done.")), primary=False)
        visit.button(t("Restart"), lambda: act("POST", "/restart?includeTasks=true", t("Done.")))
        visit.button(t("Edit"), lambda: open_form(visit, name), primary=False)
        reset = partial(act, "DELETE", "/offsets", t("Done."))
        visit.button(t("Reset offsets"), reset, "admin", primary=False).tooltip(t("Stop the connector first."))
        visit.button(t("Delete"), lambda: _open_deletion(visit, name, lambda: act("DELETE", "", t("Done."))), "admin",
                     primary=False)  # fmt: skip
    shown = visit.html()
    passwords: dict[str, frozenset[str]] = {}

    async def redraw() -> None:
        status = await connect.ask("GET", f"{path}/status")
        one = read_connector(name, status, await connect.ask("GET", f"{path}/config"))
        plugin = one.config.get("connector.class", "")
        if plugin not in passwords:
            passwords[plugin] = await _password_keys(visit.center, plugin)
        shown.set_content(str(await _connector(visit, one, passwords[plugin])))

    await redraw()
    visit.live(3.0, redraw)


async def _password_keys(center: Center, plugin: str) -> frozenset[str]:
    try:
        return password_keys(await center.services.connect.ask("GET", f"/connector-plugins/{segment(plugin)}/config"))
    except HttpProblem:
        # A plugin that the worker no longer has: secrets are still recognised by names and values.
        return frozenset()


def _open_deletion(visit: Visit, name: str, delete: Any) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        warning = notice(t("Its tasks stop. What it has written stays."), "bad")
        visit.html(tag("div", tag("h2", t("Delete {name}", name=name)), warning))
        with ui.element("div").classes("actions"):
            visit.button(t("Delete"), delete, "admin").classes("danger")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


async def _connector(visit: Visit, one: ConnectorFacts, passwords: frozenset[str]) -> Html:
    t, center = visit.t, visit.center
    topics = await topics_of(center, one.name)
    rate, lag = await throughput(center, one, topics)
    letters = await letters_in(center, one.dead_letter_topic)
    head = tiles(
        tile(t("State"), one.state, one.kind, {"warning": "warning", "bad": "bad"}.get(TONES.get(one.state, ""), "")),
        tile(t("Throughput"), rate_text(rate), t("records")),
        tile(t("Lag"), compact(lag), t("records"), "warning" if lag else ""),
        tile(t("Dead letters"), compact(letters), t("records"), "bad" if letters else ""),
        tile(t("Tasks"), len(one.tasks), t("{n} failed", n=one.failed), "bad" if one.failed else ""),
    )
    traces = [tag("pre", text[:8000]) for text in (one.trace, *(task.trace for task in one.tasks)) if text]
    tasks: list[list[Cell]] = [
        [task.id, badge(task.state, TONES.get(task.state, "plain")), task.worker] for task in one.tasks
    ]
    topic_links = tag("p", *(link(topic, f"/topics/{quote(topic, safe='')}", "link chip") for topic in topics))
    settings = shown_config(one.config, passwords)
    config: list[list[Cell]] = [[tag("code", key), value] for key, value in settings.items()]
    return tag(
        "div", head,
        tag("div",
            card(t("Tasks"), table([t("Task"), t("State"), t("Worker")], tasks, empty=t("It has no task.")), *traces),
            card(t("Topics"), topic_links if topics else tag("p", t("It has used no topic yet."), cls="empty")),
            cls="two"),
        await _dead_letters(visit, one),
        await _offsets(visit, one.name),
        card(t("Configuration"), table([t("Key"), t("Value")], config, empty="")),
    )  # fmt: skip


async def _offsets(visit: Visit, name: str) -> Html:
    t = visit.t
    try:
        found: Any = await visit.center.services.connect.ask("GET", f"/connectors/{quote(name, safe='')}/offsets")
    except HttpProblem as problem:
        return card(t("Offsets"), notice(problem.message))
    rows: list[list[Cell]] = [
        [tag("code", _json(one.get("partition"))), tag("code", _json(one.get("offset")))]
        for one in (found.get("offsets", []) if isinstance(found, dict) else [])
    ]
    return card(t("Offsets"), table([t("Partition"), t("Offset")], rows, empty=t("Nothing is committed.")))


async def _dead_letters(visit: Visit, one: ConnectorFacts) -> Html:
    """Return a card with the newest records that a sink could not write, with the reason from their headers."""
    t, topic = visit.t, one.dead_letter_topic
    if one.kind != "sink":
        return Html("")
    if topic is None:
        words = t("Records that it cannot take are not kept: set {key} to a topic.",
                  key="errors.deadletterqueue.topic.name")  # fmt: skip
        return card(t("Dead letters"), tag("p", words, cls="empty"))
    rows: list[list[Cell]] = []
    if topic in (await visit.center.watch.image()).topics:
        hidden = visit.center.hidden_paths(topic, visit.person)
        scan = await visit.center.messages(
            visit.person, MessageQuery(topic, "newest", limit=LETTERS_SHOWN, hidden=hidden)
        )
        found = [each async for batch in scan.batches() for each in batch]
        for letter in sorted(found, key=lambda each: -each.timestamp)[:LETTERS_SHOWN]:
            headers = {key: as_text(value) for key, value in letter.headers}
            reason = next((headers[key] for key in REASON_HEADERS if key in headers), "–")
            rows.append([tag("span", date_clock(letter.timestamp), cls="nowrap"),
                         tag("span", as_text(letter.key)[:60], cls="nowrap"),
                         tag("span", as_text(letter.value)[:120], cls="letter"), reason[:300]])  # fmt: skip
    where = tag("p", t("Topic"), " ", link(topic, f"/topics/{quote(topic, safe='')}?tab=messages"), cls="dim")
    heads = [t("Time"), t("Key"), t("Value"), t("Reason")]
    return card(t("Dead letters"), where, table(heads, rows, empty=t("There is none.")))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
