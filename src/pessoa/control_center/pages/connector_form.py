"""The form that creates or changes a connector, made from the plugin's own table of settings.

Settings that are required or of high importance stand first; the others are behind "More settings". What is filled in
is checked by the plugin itself (`/config/validate`), whose sentences stand at the fields.

Secrets that a connector has stay on the server: their fields show dots, and are sent as they were unless they change.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from nicegui import ui

from pessoa.control_center.accounts import demand
from pessoa.control_center.connector_facts import HIDDEN, is_secret
from pessoa.control_center.pages.frame import Visit
from pessoa.control_center.pages.parts import notice, tag
from pessoa.web.problems import HttpProblem

_OF_THE_FORM = ("name", "connector.class")


class ConnectorForm:
    """An open form of a connector: its fields by the key of their setting."""

    def __init__(self, visit: Visit, known: dict[str, str]) -> None:
        """`known` is the configuration of an existing connector."""
        self._visit = visit
        self._existing = known
        self.plugin = known.get("connector.class", "")
        self.name = known.get("name", "")
        self._fields: dict[str, ui.input] = {}
        # Settings with a secret that is not sent to the browser.
        self._hidden: set[str] = set()

    def config(self) -> dict[str, str]:
        """Return the filled-in settings, and those of the connector that the plugin's table does not name."""
        kept = {key: value for key, value in self._existing.items() if key not in self._fields}
        given = {
            key: self._existing[key] if key in self._hidden and one.value == HIDDEN else one.value
            for key, one in self._fields.items()
            if one.value
        }
        return {**kept, **given, "connector.class": self.plugin, "name": self.name}

    async def draw_fields(self, place: ui.element) -> None:
        place.clear()
        self._fields.clear()
        path = f"/connector-plugins/{quote(self.plugin, safe='')}/config"
        rows: Any = await self._visit.center.services.connect.ask("GET", path)
        rows = [one for one in rows if str(one["name"]) not in _OF_THE_FORM]
        first = [one for one in rows if is_first(one) or str(one["name"]) in self._existing]
        with place:
            self._draw(sorted(first, key=lambda one: not one.get("required")))
            with ui.expansion(self._visit.t("More settings")).style("width:100%"):
                self._draw([one for one in rows if one not in first])

    def _draw(self, rows: list[Any]) -> None:
        for row in rows:
            key = str(row["name"])
            label = f"{key} *" if row.get("required") else key
            field = ui.input(label, value=self._initial_text(row), placeholder=str(row.get("default_value") or ""))
            field.props("outlined dense" + (" type=password" if row.get("type") == "PASSWORD" else ""))
            field.style("width:100%;margin-bottom:8px").tooltip(str(row.get("documentation", ""))[:400])
            self._fields[key] = field

    def _initial_text(self, row: dict[str, Any]) -> str:
        """Return the initial text of a field; a secret is hidden."""
        key = str(row["name"])
        value = self._existing.get(key, "")
        if not value or not (row.get("type") == "PASSWORD" or is_secret(key, value)):
            return value
        self._hidden.add(key)
        return HIDDEN

    async def validate(self) -> list[str]:
        """Return the errors that the plugin finds, and show them at their fields. Raises an `HttpProblem`."""
        path = f"/connector-plugins/{quote(self.plugin, safe='')}/config/validate"
        answer: Any = await self._visit.center.services.connect.ask("PUT", path, self.config())
        wrong = {str(one["value"]["name"]): self._without_secrets("; ".join(one["value"]["errors"]))
                 for one in answer.get("configs", []) if one["value"].get("errors")}  # fmt: skip
        for key, field in self._fields.items():
            field.error = wrong.get(key)
        return [f"{key}: {words}" for key, words in wrong.items()]

    def _without_secrets(self, sentence: str) -> str:
        for key in self._hidden:
            sentence = sentence.replace(self._existing[key], HIDDEN)
        return sentence


def is_first(row: dict[str, Any]) -> bool:
    return bool(row.get("required")) or row.get("importance") == "HIGH"


async def open_form(visit: Visit, connector: str | None = None) -> None:
    """Open the dialog that creates a connector, or changes the one with this name."""
    demand(visit.person, "editor")
    t, connect = visit.t, visit.center.services.connect
    known: Any = {}
    try:
        plugins: Any = await connect.ask("GET", "/connector-plugins")
        if connector is not None:
            known = await connect.ask("GET", f"/connectors/{quote(connector, safe='')}/config")
    except HttpProblem as problem:
        ui.notify(problem.message, type="negative")
        return
    form = ConnectorForm(visit, {key: str(value) for key, value in known.items()})
    names = {str(one["class"]): f"{str(one['class']).rpartition('.')[2]} ({one.get('type', '')})" for one in plugins}
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        title = t("Create a connector") if connector is None else t("Edit {name}", name=connector)
        visit.html(tag("h2", title))
        place = ui.element("div")
        if connector is None:
            plugin = ui.select(names, label=t("Plugin"), with_input=True).props("outlined").style("width:100%")
            name = ui.input(t("Name")).props("outlined").style("width:100%;margin:10px 0")
            place = ui.element("div").style("max-height:46vh;overflow:auto")

            async def choose() -> None:
                form.plugin = str(plugin.value or "")
                if form.plugin:
                    await visit.attempt_quietly(form.draw_fields(place))

            plugin.on_value_change(choose)
            name.on_value_change(lambda change: setattr(form, "name", str(change.value or "").strip()))
        result_html = visit.html()
        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Validate"), lambda: _validate(visit, form, result_html), "reader", primary=False)
            words = t("Create") if connector is None else t("Save")
            visit.button(words, lambda: _save(visit, form, connector is None))
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    if connector is not None:
        place.style("max-height:60vh;overflow:auto")
        await visit.attempt_quietly(form.draw_fields(place))
    dialog.open()


async def _validate(visit: Visit, form: ConnectorForm, result_html: ui.html) -> None:
    if not form.plugin:
        result_html.set_content(str(notice(visit.t("Choose a plugin first."), "bad")))
        return
    try:
        errors = await form.validate()
    except HttpProblem as problem:
        result_html.set_content(str(notice(problem.message, "bad")))
        return
    shown = notice(" · ".join(errors), "bad") if errors else notice(visit.t("It is valid."), "good")
    result_html.set_content(str(shown))


async def _save(visit: Visit, form: ConnectorForm, is_new: bool) -> None:
    t, connect = visit.t, visit.center.services.connect
    demand(visit.person, "editor")
    try:
        visit.center.limits.demand(visit.person, "connector", form.name)
    except HttpProblem as problem:
        ui.notify(problem.message, type="negative")
        return
    if not form.name or not form.plugin:
        ui.notify(t("A connector needs a plugin and a name."), type="negative")
        return
    path = f"/connectors/{quote(form.name, safe='')}/config"
    action = (
        connect.ask("POST", "/connectors", {"name": form.name, "config": form.config()})
        if is_new
        else connect.ask("PUT", path, form.config())
    )
    if await visit.attempt(action, t("It is created.") if is_new else t("It is saved.")):
        visit.center.audit.note(visit.person.name, "create connector" if is_new else "change connector", form.name)
        visit.go(f"/connect/{quote(form.name, safe='')}")
