"""ksql: an editor, its results streaming into a table, streams, tables and queries, through the REST interface of a
ksql server. A push query runs until it is stopped or the page is closed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Literal

import msgspec
from nicegui import ui

from pessoa.control_center.accounts import demand
from pessoa.control_center.center import Center
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import Cell, Html, card, notice, table, tag
from pessoa.web.problems import HttpProblem

ROWS = 200
EXAMPLE = "SHOW TOPICS;"


def register(center: Center) -> None:
    @page(center, "/ksql", "ksql", "ksql")
    async def ksql(visit: Visit) -> None:
        t = visit.t
        state = await center.services.ksql.state()
        if not state.is_up:
            visit.html(notice(state.note))
        running: list[asyncio.Task[None]] = []

        async def start() -> None:
            stop()
            running.append(asyncio.create_task(_run(visit, str(editor.value or ""), shown)))

        def stop() -> None:
            while running:
                running.pop().cancel()

        with ui.element("section").classes("card"):
            theme: Literal["basicDark", "basicLight"] = "basicDark" if visit.theme == "dark" else "basicLight"
            editor = ui.codemirror(visit.query("q") or EXAMPLE, language="SQL", theme=theme).style("height:200px")
            with ui.element("div").classes("actions").style("margin-top:12px"):
                away = None if state.is_up else state.note
                visit.button(t("Run"), start, why_not=away)
                visit.button(t("Stop"), stop, "reader", primary=False)
        shown = visit.html()

        ui.context.client.on_disconnect(stop)
        ui.add_body_html(f"<script>labelEditors({msgspec.json.encode(t('Statement')).decode()})</script>")
        if state.is_up:
            visit.html(await _catalogue(visit))


async def _run(visit: Visit, text: str, shown: ui.html) -> None:
    t = visit.t
    is_query = text.lstrip()[:6].upper() == "SELECT"
    try:
        if not is_query:
            demand(visit.person, "editor")
            body = {"ksql": text, "streamsProperties": {}}
            answer = await visit.center.services.ksql.ask(
                "POST", "/ksql", body, content_type="application/vnd.ksql.v1+json"
            )
            visit.center.audit.note(visit.person.name, "ksql", text[:100])
            shown.set_content(str(_answers(answer)))
            return
        heads: list[Cell] = []
        rows: deque[list[Cell]] = deque(maxlen=ROWS)
        count, drawn_s = 0, 0.0
        async for line in visit.center.services.ksql.stream_lines("/query", {"ksql": text, "streamsProperties": {}}):
            found = _decoded(line)
            if "header" in found:
                heads = _columns(str(found["header"].get("schema", "")))
            elif "row" in found:
                count += 1
                rows.appendleft([_cell(one) for one in found["row"]["columns"]])
            elif "errorMessage" in found or "finalMessage" in found:
                shown.set_content(str(notice(str(found.get("errorMessage") or found.get("finalMessage")))))
                if not rows:
                    return
            now_s = asyncio.get_running_loop().time()
            if now_s - drawn_s > 0.25:
                drawn_s = now_s
                shown.set_content(str(_result(visit, heads, rows, count)))
        shown.set_content(str(_result(visit, heads, rows, count)))
    except HttpProblem as problem:
        shown.set_content(str(card("", notice(problem.message, "bad"))))
    except (KeyError, TypeError, AssertionError) as wrong:
        shown.set_content(str(card("", notice(t("The answer cannot be read: {reason}", reason=wrong), "bad"))))


def _decoded(line: str) -> dict[str, Any]:
    text = line.strip().strip(",").lstrip("[").rstrip("]").strip()
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _columns(schema: str) -> list[Cell]:
    """The names of "`ID` INTEGER, `NAME` STRING"; commas in types of structures do not part columns."""
    names, depth, start = [], 0, 0
    for at, letter in enumerate(schema + ","):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            names.append(schema[start:at].strip().split(" ")[0].strip("`"))
            start = at + 1
    return list(names)


def _cell(value: object) -> str:
    return value if isinstance(value, str) else "null" if value is None else msgspec.json.encode(value).decode()


def _result(visit: Visit, heads: list[Cell], rows: deque[list[Cell]], count: int) -> Html:
    words = visit.t("{n} rows; the last {m} are shown.", n=count, m=min(count, ROWS))
    return card(visit.t("Result"), tag("p", words, cls="dim"), table(heads, rows, empty=visit.t("No row yet.")))


def _answers(answer: Any) -> Html:
    parts = []
    for one in answer if isinstance(answer, list) else [answer]:
        lists = [key for key, value in one.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
        if lists:
            items = one[lists[0]]
            keys = list(items[0])[:8]
            rows: list[list[Cell]] = [[_cell(item.get(key)) for key in keys] for item in items]
            parts.append(card(str(one.get("@type", "")), table(list(keys), rows, empty="")))
        else:
            text = msgspec.json.format(msgspec.json.encode(one), indent=2).decode()
            parts.append(card(str(one.get("@type", "")), tag("pre", text)))
    return tag("div", *parts)


async def _catalogue(visit: Visit) -> Html:
    body = {"ksql": "SHOW STREAMS; SHOW TABLES; SHOW QUERIES;", "streamsProperties": {}}
    try:
        answer = await visit.center.services.ksql.ask(
            "POST", "/ksql", body, content_type="application/vnd.ksql.v1+json"
        )
    except HttpProblem as problem:
        return notice(problem.message)
    return tag("div", tag("h3", visit.t("Streams, tables and queries")), _answers(answer))
