"""ksql: an editor that completes, results streaming into a table or a chart, running queries with their rates, speed
and plan, streams and tables; all through the REST interface of a ksql server. A push query runs until it is stopped or
the page is closed."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from nicegui import ui

from pessoa.control_center.accounts import demand
from pessoa.control_center.center import Center
from pessoa.control_center.ksql_catalogue import STATEMENTS, Catalogue, Query, read_catalogue
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.ksql_results import VIEWS, QueryRows, cell_text, draw_rows
from pessoa.control_center.pages.parts import Cell, Html, badge, card, join, link, notice, rate_text, table, tag
from pessoa.web.problems import HttpProblem

EXAMPLE = "-- Ctrl-Space completes, Run sends it to the server.\nSHOW TOPICS;"
TONES = {"RUNNING": "good", "ERROR": "bad", "PAUSED": "warning", "UNRESPONSIVE": "bad"}
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\w*")
# Comments at the beginning of a statement, and what ends them.
_COMMENTS = (("--", "\n"), ("/*", "*/"))
_KSQL = "application/vnd.ksql.v1+json"
_DRAW_S = 0.25


class KsqlEditor:
    """The state of one user's ksql editor, and the results of its statements."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.found = QueryRows()
        self.view = visit.query("view", "table")
        self.column: str | None = None
        self.shown: ui.html = visit.html()
        self._task: asyncio.Task[None] | None = None
        self._draw_timer: asyncio.TimerHandle | None = None

    def start(self, text: str, is_from_beginning: bool) -> None:
        self.stop()
        self._task = asyncio.create_task(self._run(text, is_from_beginning))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def redraw(self) -> None:
        if self.found.columns or self.found.lines:
            self.shown.set_content(str(draw_rows(self.visit, self.found, self.view, self.column)))

    async def _run(self, text: str, is_from_beginning: bool) -> None:
        ksql, t = self.visit.center.services.ksql, self.visit.t
        properties = {"auto.offset.reset": "earliest"} if is_from_beginning else {}
        body = {"ksql": text, "streamsProperties": properties}
        self.found = QueryRows()
        try:
            demand(self.visit.person, "editor")
            self.visit.center.demand_queries(self.visit.person)
            if not is_query(text):
                answer: Any = await ksql.ask("POST", "/ksql", body, content_type=_KSQL)
                self.visit.center.audit.note(self.visit.person.name, "ksql", text[:100])
                done = notice(t("Done."), "good") if answer in (None, []) else _answers(answer)
                self.shown.set_content(str(done))
                return
            await self._stream(body)
        except HttpProblem as problem:
            self.shown.set_content(str(card("", notice(tag("span", problem.message, cls="lines"), "bad"))))
        except (KeyError, TypeError, AttributeError) as wrong:
            self.shown.set_content(str(card("", notice(t("The answer cannot be read: {reason}", reason=wrong), "bad"))))

    async def _stream(self, body: object) -> None:
        self.shown.set_content(str(card(self.visit.t("Result"), tag("p", self.visit.t("No row yet."), cls="empty"))))
        try:
            async for line in self.visit.center.services.ksql.stream_lines("/query", body):
                if error := self.found.take(line):
                    raise HttpProblem(400, error)
                # Lines of the same moment are drawn together; the last of them may be the last for long.
                if self._draw_timer is None:
                    self._draw_timer = asyncio.get_running_loop().call_later(_DRAW_S, self._draw)
        finally:
            if self._draw_timer is not None:
                self._draw_timer.cancel()
                self._draw_timer = None
        self.found.is_done = True
        self.redraw()

    def _draw(self) -> None:
        self._draw_timer = None
        self.redraw()


def register(center: Center) -> None:
    @page(center, "/ksql", "ksql", "ksql")
    async def ksql(visit: Visit) -> None:
        watch = visit.center.watch
        state = await visit.center.services.ksql.state()
        if not state.is_up:
            visit.html(notice(state.note))
        catalogue = await read(visit.center) if state.is_up else Catalogue()
        editor = _draw_editor(visit, None if state.is_up else state.note)
        if not state.is_up:
            _prepare_editor(editor, catalogue)
            return
        running = ui.element("div")
        sources = visit.html()
        drawn: list[tuple[Query, ...]] = []
        ways: dict[str, ui.html] = {}

        async def redraw() -> None:
            found = await read(visit.center)
            sources.set_content(str(_sources(visit, found)))
            await watch.ends(sorted({topic for one in found.queries for topic in (*one.reads, *one.writes)}))
            # Buttons and open plans stay where they are while the queries are the same.
            if drawn != [found.queries]:
                drawn[:] = [found.queries]
                running.clear()
                with running:
                    ways.clear()
                    ways.update(_queries(visit, found))
            for one in found.queries:
                ways[one.id].set_content(str(_way(visit, one)))

        await redraw()
        visit.live(3.0, redraw)
        # Last, for a timer lets the page be sent as it is.
        _prepare_editor(editor, catalogue)


async def read(center: Center) -> Catalogue:
    """Return the streams, tables and queries of the server. Raises an `HttpProblem`."""
    body = {"ksql": STATEMENTS, "streamsProperties": {}}
    return read_catalogue(await center.services.ksql.ask("POST", "/ksql", body, content_type=_KSQL))


def is_query(text: str) -> bool:
    """Whether the statement is a query, whose rows come back as a stream: SELECT or PRINT."""
    at = _end_of(_SPACE, text, 0)
    while end := next((end for begin, end in _COMMENTS if text.startswith(begin, at)), None):
        found = text.find(end, at + 2)
        if found < 0:
            return False
        at = _end_of(_SPACE, text, found + len(end))
    return text[at : _end_of(_WORD, text, at)].upper() in ("SELECT", "PRINT")


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None, "both patterns match nothing as well"
    return found.end()


def _draw_editor(visit: Visit, unavailable: str | None) -> ui.codemirror:
    t = visit.t

    def stop() -> None:
        ksql_editor.stop()

    with ui.element("section").classes("card"):
        editor = ui.codemirror(visit.query("q") or EXAMPLE, language="SQL", theme="vscodeLight", line_wrapping=True)
        editor.style("height:200px").classes("editor")
        with ui.element("div").classes("actions").style("margin-top:12px"):
            visit.button(
                t("Run"), lambda: ksql_editor.start(str(editor.value or ""), bool(beginning.value)), why_not=unavailable
            )
            visit.button(t("Stop"), stop, "reader", primary=False)
            beginning = ui.checkbox(t("From the beginning"), value=True)
            view = ui.toggle({key: t(words) for key, words in VIEWS}, value="table")
            view.props("no-caps unelevated toggle-text-color=on-accent")
            column = ui.select([], label=t("Column")).props("outlined dense").style("min-width:130px")
    ksql_editor = KsqlEditor(visit)

    def choose() -> None:
        ksql_editor.view = str(view.value)
        ksql_editor.column = column.value
        column.set_options(ksql_editor.found.number_columns(), value=ksql_editor.column)
        ksql_editor.redraw()

    view.on_value_change(choose)
    column.on_value_change(choose)
    column.on("click", lambda: column.set_options(ksql_editor.found.number_columns()))
    visit.at_end(ksql_editor.stop)
    ui.add_body_html(f"<script>labelEditors({msgspec.json.encode(t('Statement')).decode()})</script>")
    return editor


def _prepare_editor(editor: ui.codemirror, catalogue: Catalogue) -> None:
    """Give the editor its colours and the words that it completes."""
    words = msgspec.json.encode([one._asdict() for one in catalogue.words()]).decode()
    ui.timer(0.1, lambda: ui.run_javascript(f"prepareEditor({editor.id}, {words})"), once=True)


def _queries(visit: Visit, found: Catalogue) -> dict[str, ui.html]:
    """Draw the queries; return by query id the elements that show which topics each reads and writes."""
    t = visit.t
    ways = {}
    with ui.element("section").classes("card"):
        visit.html(tag("h2", t("Running queries")))
        if not found.queries:
            visit.html(tag("p", t("There is no running query."), cls="empty"))
        for one in found.queries:
            with ui.element("div").classes("query"):
                state = badge(one.state or "?", TONES.get(one.state, "plain"))
                speed = badge(one.speed, "accent") if one.speed else ""
                visit.html(tag("div", tag("strong", one.id), " ", state, " ", speed, cls="query-head"))
                ways[one.id] = visit.html()
                visit.html(_query(visit, one))
                with ui.element("div").classes("actions"):
                    paused = one.state == "PAUSED"
                    other, words = ("RESUME", t("Resume")) if paused else ("PAUSE", t("Pause"))
                    visit.button(words, partial(_act, visit, f"{other} {one.id};", "editor"), primary=False)
                    terminate = partial(_act, visit, f"TERMINATE {one.id};", "admin")
                    visit.button(t("Terminate"), terminate, "admin", primary=False)
    return ways


async def _act(visit: Visit, statement: str, role: str) -> None:
    async def send() -> None:
        demand(visit.person, role)
        body = {"ksql": statement, "streamsProperties": {}}
        await visit.center.services.ksql.ask("POST", "/ksql", body, content_type=_KSQL)
        visit.center.audit.note(visit.person.name, "ksql", statement)

    await visit.attempt(send(), visit.t("Done."))


def _way(visit: Visit, one: Query) -> Html:
    """Return the topics that a query reads → the topics that it writes, with their rates."""

    def ends(topics: tuple[str, ...]) -> Html:
        return join(
            tag("span", link(topic, f"/topics/{quote(topic, safe='')}"), " ",
                tag("small", rate_text(visit.center.watch.topic_rate(topic)), cls="dim"), cls="end")
            for topic in topics
        )  # fmt: skip

    return tag("div", ends(one.reads), tag("span", "→", cls="dim"), ends(one.writes), cls="query-way")


def _query(visit: Visit, one: Query) -> Html:
    t = visit.t
    why = tag("p", t("Speed: {why}", why=one.why), cls="dim") if one.why else ""
    plan = tag("details", tag("summary", t("Statement and plan")), tag("pre", one.text), tag("pre", one.plan))
    return tag("div", why, *(notice(words, "bad") for words in one.errors[-3:]), plan)


def _sources(visit: Visit, found: Catalogue) -> Html:
    t = visit.t
    cards = []
    for kind, title in (("STREAM", t("Streams")), ("TABLE", t("Tables"))):
        rows: list[list[Cell]] = [
            [tag("strong", one.name), link(one.topic, f"/topics/{quote(one.topic, safe='')}"),
             f"{one.key_format} · {one.value_format}", one.window,
             tag("span", ", ".join(f"{name} {type_}" for name, type_ in one.columns), cls="dim")]
            for one in found.sources if one.kind == kind
        ]  # fmt: skip
        heads = [t("Name"), t("Topic"), t("Formats"), t("Window"), t("Columns")]
        cards.append(card(title, table(heads, rows, empty=t("There are none."))))
    return tag("div", *cards)


def _answers(answer: Any) -> Html:
    """Return the server's response to statements as HTML: lists as tables, messages as sentences, the rest as JSON."""
    parts = []
    for one in answer if isinstance(answer, list) else [answer]:
        lists = [key for key, value in one.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
        status = one.get("commandStatus")
        if isinstance(status, dict):
            is_good = status.get("status") in ("SUCCESS", "QUEUED", "EXECUTING")
            parts.append(notice(str(status.get("message", "")), "good" if is_good else "bad"))
        elif lists:
            items = one[lists[0]]
            keys = list(items[0])[:8]
            rows: list[list[Cell]] = [[cell_text(item.get(key)) for key in keys] for item in items]
            parts.append(card(str(one.get("@type", "")), table(list(keys), rows, empty="")))
        else:
            text = msgspec.json.format(msgspec.json.encode(one), indent=2).decode()
            parts.append(card(str(one.get("@type", "")), tag("pre", text)))
    return tag("div", *parts)
