"""The configuration of a topic or a broker: what is set, defaults and meanings, and a dialog to change a key."""

from __future__ import annotations

from typing import Any

from nicegui import events, ui

from pessoa.client.config_admin import ResourceType
from pessoa.control_center.pages.frame import Visit
from pessoa.control_center.pages.parts import Cell, Html, badge, table, tag
from pessoa.control_center.views import ConfigRow


async def draw_configs(visit: Visit, kind: ResourceType, name: str) -> None:
    t = visit.t
    shown = visit.html()
    wanted = {"text": ""}

    async def redraw() -> None:
        rows = [
            one
            for one in await visit.center.configs(kind, name)
            if wanted["text"] in one.name or wanted["text"] in one.doc.casefold()
        ]
        shown.set_content(str(_table(visit, rows)))

    async def narrow(change: events.ValueChangeEventArguments[Any]) -> None:
        wanted["text"] = str(change.value or "").casefold()
        await redraw()

    with ui.element("div").classes("bar-form"):
        ui.input(placeholder=t("Find a key"), on_change=narrow).props(
            f'outlined dense debounce=200 aria-label="{t("Find a key")}"'
        )
    shown.move(target_index=-1)
    await redraw()

    async def edit(event: events.GenericEventArguments) -> None:
        key = str(event.args.get("key", ""))
        row = next((one for one in await visit.center.configs(kind, name) if one.name == key), None)
        if row is not None:
            _open_editor(visit, kind, name, row, redraw)

    visit.on("edit-config", edit)


def _table(visit: Visit, rows: list[ConfigRow]) -> Html:
    t = visit.t
    cells: list[list[Cell]] = []
    for one in rows:
        value: Cell = tag("code", "••••" if one.is_sensitive else one.value if one.value is not None else "null")
        mark: Cell = badge(t("set"), "accent") if not one.is_default else ""
        button: Cell = ""
        if not one.is_read_only and visit.person.may("admin"):
            button = tag("button", t("Edit"), cls="btn secondary", data_key=one.name,
                         aria_label=t("Edit {name}", name=one.name),
                         onclick="emitEvent('edit-config',{key:this.dataset.key})")  # fmt: skip
        elif one.is_read_only:
            button = tag("span", t("read only"), cls="dim")
        cells.append([
            tag("div", tag("strong", one.name, cls="mono"), " ", mark, tag("div", one.doc, cls="dim")), value,
            tag("span", one.default if one.default is not None else "–", cls="dim mono default"), button,
        ])  # fmt: skip
    return table([t("Key"), t("Value"), t("Default"), ""], cells, empty=t("No key is called so."))


def _open_editor(visit: Visit, kind: ResourceType, name: str, row: ConfigRow, redraw: object) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("div", tag("h2", row.name), tag("p", row.doc, cls="dim")))
        value = ui.input(t("Value"), value="" if row.is_sensitive else row.value or "").props("outlined autofocus")
        value.style("width:100%")

        async def save(new: str | None) -> None:
            change = visit.center.set_config(visit.person, kind, name, row.name, new)
            if await visit.attempt(change, t("{name} is set.", name=row.name)):
                dialog.close()
                assert callable(redraw)
                await redraw()

        with ui.element("div").classes("actions").style("margin-top:16px"):
            visit.button(t("Save"), lambda: save(value.value), "admin")
            visit.button(t("Back to the default"), lambda: save(None), "admin", primary=False)
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()
