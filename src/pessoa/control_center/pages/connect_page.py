"""Connect: connectors with their tasks; a form made from the plugin's own table of settings; pause, restart, delete."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

from nicegui import events, ui

from pessoa.control_center.accounts import demand
from pessoa.control_center.center import Center
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import Cell, Html, badge, card, link, notice, table, tag
from pessoa.web.problems import HttpProblem

TONES = {"RUNNING": "good", "FAILED": "bad", "PAUSED": "warning", "STOPPED": "warning"}
ACTIONS = (("pause", "PUT", "Pause"), ("resume", "PUT", "Resume"), ("stop", "PUT", "Stop"))


def register(center: Center) -> None:
    @page(center, "/connect", "connect", "Connect")
    async def connect(visit: Visit) -> None:
        state = await center.services.connect.state()
        if not state.is_up:
            visit.html(notice(state.note))
            return
        with ui.element("div").classes("actions"):
            visit.button(visit.t("Create a connector"), lambda: _open_plugins(visit))
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(await _list(visit)))

        await redraw()
        visit.live(3.0, redraw)

    @page(center, "/connect/{connector}", "connect", "Connect")
    async def one_connector(visit: Visit, connector: str) -> None:
        await _draw_connector(visit, connector)


async def _list(visit: Visit) -> Html:
    t = visit.t
    found = await visit.center.services.connect.ask("GET", "/connectors", query={"expand": "status"})
    rows: list[list[Cell]] = []
    for name, about in sorted(found.items()) if isinstance(found, dict) else ():
        status: Any = about.get("status") if isinstance(about, dict) else {}
        state = str((status or {}).get("connector", {}).get("state", "?"))
        tasks = (status or {}).get("tasks", [])
        failed = sum(one.get("state") == "FAILED" for one in tasks)
        marks = tag("span", badge(state, TONES.get(state, "plain")), " ",
                    badge(t("{n} failed", n=failed), "bad") if failed else "")  # fmt: skip
        rows.append([link(name, f"/connect/{quote(name, safe='')}"), str((status or {}).get("type", "?")), marks,
                     len(tasks)])  # fmt: skip
    heads = [t("Connector"), t("Type"), t("State"), t("Tasks")]
    return card("", table(heads, rows, empty=t("There is no connector."), numbers=(3,)))


async def _draw_connector(visit: Visit, name: str) -> None:
    t, connect = visit.t, visit.center.services.connect
    path = f"/connectors/{quote(name, safe='')}"

    async def act(method: str, what: str, words: str) -> None:
        demand(visit.person, "editor")
        if await visit.attempt(connect.ask(method, f"{path}{what}"), words):
            visit.center.audit.note(visit.person.name, what.strip("/") or method.lower(), name)
            ui.navigate.to("/connect" if (method, what) == ("DELETE", "") else f"/connect/{quote(name, safe='')}")

    with ui.element("div").classes("actions"):
        for action, method, words in ACTIONS:
            visit.button(t(words), partial(act, method, f"/{action}", t("Done.")), primary=False)
        visit.button(t("Restart"), lambda: act("POST", "/restart?includeTasks=true", t("Done.")))
        reset = partial(act, "DELETE", "/offsets", t("Done."))
        visit.button(t("Reset offsets"), reset, "admin", primary=False).tooltip(t("Stop the connector first."))
        visit.button(t("Delete"), lambda: act("DELETE", "", t("Done.")), "admin", primary=False)
    shown = visit.html()

    async def redraw() -> None:
        status: Any = await connect.ask("GET", f"{path}/status")
        config: Any = await connect.ask("GET", f"{path}/config")
        tasks: list[list[Cell]] = []
        traces = []
        for one in status.get("tasks", []):
            tasks.append([one["id"], badge(one["state"], TONES.get(one["state"], "plain")), one.get("worker_id", "")])
            if one.get("trace"):
                traces.append(tag("pre", str(one["trace"])[:8000]))
        hidden = ("password", "secret", "token", "key.pem")
        rows: list[list[Cell]] = [
            [tag("code", key), "••••" if any(word in key.lower() for word in hidden) else str(value)]
            for key, value in sorted(config.items())
        ]
        state = str(status["connector"]["state"])
        try:
            offsets: Any = await connect.ask("GET", f"{path}/offsets")
        except HttpProblem as problem:
            offsets = {"offsets": []}
            traces.append(notice(problem.message))
        places: list[list[Cell]] = [
            [tag("code", str(one.get("partition"))), tag("code", str(one.get("offset")))]
            for one in offsets.get("offsets", [])
        ]
        shown.set_content(str(tag(
            "div", card(tag("span", name, " ", badge(state, TONES.get(state, "plain"))),
                        table([t("Task"), t("State"), t("Worker")], tasks, empty=t("It has no task."), numbers=(0,)),
                        *traces),
            card(t("Offsets"), table([t("Partition"), t("Offset")], places, empty=t("Nothing is committed."))),
            card(t("Configuration"), table([t("Key"), t("Value")], rows, empty="")),
        )))  # fmt: skip

    await redraw()
    visit.live(3.0, redraw)


async def _open_plugins(visit: Visit) -> None:
    t = visit.t
    found: Any = await visit.center.services.connect.ask("GET", "/connector-plugins")
    names = {str(one["class"]): f"{str(one['class']).rpartition('.')[2]} ({one.get('type', '')})" for one in found}
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Create a connector")))
        plugin = ui.select(names, label=t("Plugin"), with_input=True).props("outlined").style("width:100%")
        name = ui.input(t("Name")).props("outlined").style("width:100%;margin:10px 0")
        form = ui.element("div").style("max-height:46vh;overflow:auto;display:grid;gap:10px")
        told = visit.html()
        fields: dict[str, ui.input] = {}

        async def draw(change: events.ValueChangeEventArguments[Any]) -> None:
            form.clear()
            fields.clear()
            path = f"/connector-plugins/{quote(str(change.value), safe='')}/config"
            table_of: Any = await visit.center.services.connect.ask("GET", path)
            with form:
                for row in sorted(table_of, key=lambda one: (not one.get("required"), one.get("importance") != "HIGH")):
                    key = str(row["name"])
                    if key in ("name", "connector.class"):
                        continue
                    label = f"{key} *" if row.get("required") else key
                    fields[key] = ui.input(label, placeholder=str(row.get("default_value") or "")).props(
                        "outlined dense" + (" type=password" if row.get("type") == "PASSWORD" else "")
                    )
                    fields[key].tooltip(str(row.get("documentation", ""))[:400])

        def config() -> dict[str, str]:
            given = {key: one.value for key, one in fields.items() if one.value}
            return {**given, "connector.class": str(plugin.value), "name": name.value or ""}

        async def validate() -> None:
            path = f"/connector-plugins/{quote(str(plugin.value), safe='')}/config/validate"
            try:
                answer: Any = await visit.center.services.connect.ask("PUT", path, config())
            except Exception as problem:  # noqa: BLE001 - Connect's sentence is shown
                told.set_content(str(notice(str(problem), "bad")))
                return
            errors = [f"{one['value']['name']}: {'; '.join(one['value']['errors'])}"
                      for one in answer.get("configs", []) if one["value"].get("errors")]  # fmt: skip
            told.set_content(str(notice(" · ".join(errors), "bad") if errors else notice(t("It is valid."), "good")))

        async def create() -> None:
            demand(visit.person, "editor")
            body = {"name": name.value, "config": config()}
            if await visit.attempt(visit.center.services.connect.ask("POST", "/connectors", body), t("It is created.")):
                visit.center.audit.note(visit.person.name, "create connector", name.value or "")
                ui.navigate.to(f"/connect/{quote(name.value or '', safe='')}")

        plugin.on_value_change(draw)
        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Validate"), validate, "reader", primary=False)
            visit.button(t("Create"), create)
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()
