"""Schemas: subjects, their versions, a diff between two, a check of compatibility before a version is registered."""

from __future__ import annotations

import difflib
from urllib.parse import quote

import msgspec
from nicegui import ui

from pessoa.base.json_value import JsonValue
from pessoa.control_center.accounts import demand
from pessoa.control_center.center import Center
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import Cell, Html, badge, card, link, notice, table, tag
from pessoa.web.problems import HttpProblem

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
_SHOWN = 300


def register(center: Center) -> None:
    @page(center, "/schemas", "schemas", "Schemas")
    async def schemas(visit: Visit) -> None:
        t = visit.t
        state = await visit.center.services.registry.state()
        if not state.is_up:
            visit.html(notice(state.note))
            return
        with ui.element("div").classes("actions"):
            visit.button(t("Register a schema"), lambda: _open_registering(visit, ""))
        found = await visit.center.services.registry.ask("GET", "/subjects")
        subjects = sorted(map(str, found)) if isinstance(found, list) else []
        level = await visit.center.services.registry.ask("GET", "/config")
        rows: list[list[Cell]] = []
        for subject in subjects[:_SHOWN]:
            latest = await visit.center.services.registry.ask("GET", f"{_path(subject)}/versions/latest")
            assert isinstance(latest, dict)
            rows.append([link(subject, f"/schemas/{quote(subject, safe='')}"), str(latest.get("schemaType", "AVRO")),
                         str(latest.get("version")), str(latest.get("id"))])  # fmt: skip
        if isinstance(level, dict):
            words = tag("p", t("Compatibility of subjects without their own:"), " ",
                        badge(str(level.get("compatibilityLevel")), "accent"))  # fmt: skip
            visit.html(words)
        heads = [t("Subject"), t("Type"), t("Version"), t("Id")]
        visit.html(card("", table(heads, rows, empty=t("No schema is registered."), numbers=(2, 3))))

    @page(center, "/schemas/{subject}", "schemas", "Schemas")
    async def one_subject(visit: Visit, subject: str) -> None:
        await _draw_subject(visit, subject)


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


async def _draw_subject(visit: Visit, subject: str) -> None:
    t, registry = visit.t, visit.center.services.registry
    found = await registry.ask("GET", f"{_path(subject)}/versions")
    versions = [int(str(one)) for one in found] if isinstance(found, list) else []
    chosen = visit.number("version", versions[-1])
    other = visit.number("against", 0)
    schema = await _version(visit, subject, chosen)
    level = await registry.ask("GET", f"/config/{quote(subject, safe='')}", query={"defaultToGlobal": "true"})
    links = [
        tag("a", t("version {n}", n=one), href=visit.here(version=one, against=None),
            cls="on" if one == chosen else None)
        for one in versions
    ]  # fmt: skip
    visit.html(tag("nav", *links, cls="tabs", aria_label=t("Versions")))
    facts = tag(
        "p",
        badge(str(schema.get("schemaType", "AVRO")), "accent"),
        " ",
        t("id {n}", n=schema.get("id")),
        " · ",
        t("compatibility"),
        " ",
        badge(str(level.get("compatibilityLevel") if isinstance(level, dict) else "?")),
    )
    with ui.element("div").classes("spread"):
        visit.html(facts)
        with ui.element("div").classes("actions"):
            visit.button(t("New version"), lambda: _open_registering(visit, subject, pretty(str(schema["schema"]))))
            visit.button(t("Compatibility"), lambda: _open_level(visit, subject), "admin", primary=False)
    references = schema.get("references")
    if isinstance(references, list) and references:
        named = [str(one.get("name")) for one in references if isinstance(one, dict)]
        visit.html(notice(t("It refers to: {names}", names=", ".join(named))))
    compare = [link(t("compare with {n}", n=one), visit.here(version=chosen, against=one))
               for one in versions if one != chosen][-5:]  # fmt: skip
    if other and other != chosen:
        before = await _version(visit, subject, other)
        visit.html(card(t("From version {n} to {m}", n=other, m=chosen),
                        diff(pretty(str(before["schema"])), pretty(str(schema["schema"])))))  # fmt: skip
    visit.html(card(t("Schema"), tag("p", *(part for one in compare for part in (one, " "))),
                    tag("pre", pretty(str(schema["schema"])))))  # fmt: skip


async def _version(visit: Visit, subject: str, version: int) -> dict[str, JsonValue]:
    found = await visit.center.services.registry.ask("GET", f"{_path(subject)}/versions/{version}")
    assert isinstance(found, dict)
    return found


def pretty(text: str) -> str:
    """JSON with its lines indented; Protobuf as it is."""
    try:
        return msgspec.json.format(text.encode(), indent=2).decode()
    except msgspec.DecodeError:
        return text


def diff(before: str, after: str) -> Html:
    lines = []
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=20):
        if line.startswith(("---", "+++", "@@")):
            continue
        tone = "add" if line.startswith("+") else "del" if line.startswith("-") else None
        lines.append(tag("div", line, cls=tone))
    return tag("pre", *lines, cls="diff")


def _open_registering(visit: Visit, subject: str, text: str = "") -> None:
    t, registry = visit.t, visit.center.services.registry
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Register a schema")))
        name = ui.input(t("Subject"), value=subject).props("outlined").style("width:100%")
        kind = ui.select(["AVRO", "JSON", "PROTOBUF"], value="AVRO", label=t("Type")).props("outlined")
        schema = ui.textarea(t("Schema"), value=text).props("outlined rows=14").classes("mono").style("width:100%")
        told = visit.html()

        def body() -> dict[str, str]:
            return {"schema": schema.value or "", "schemaType": str(kind.value)}

        def subject_name() -> str:
            found = (name.value or "").strip()
            if not found:
                raise HttpProblem(400, t("A schema needs a subject: <topic>-value or <topic>-key."))
            return found

        async def check() -> None:
            path = f"/compatibility{_path(subject_name())}/versions/latest"
            try:
                found = await registry.ask("POST", path, body(), query={"verbose": "true"})
            except HttpProblem as problem:
                told.set_content(str(notice(problem.message, "bad")))
                return
            fits = isinstance(found, dict) and found.get("is_compatible")
            reasons = found.get("messages") if isinstance(found, dict) else None
            words = t("It is compatible.") if fits else t("It is not compatible.")
            more = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
            told.set_content(str(notice(f"{words} {more}", "good" if fits else "bad")))

        async def register_it() -> None:
            named = subject_name()

            async def send() -> None:
                demand(visit.person, "editor")
                visit.center.limits.demand(visit.person, "subject", named)
                await registry.ask("POST", f"{_path(named)}/versions", body())

            if await visit.attempt(send(), t("The schema is registered.")):
                visit.center.audit.note(visit.person.name, "register schema", named)
                visit.go(f"/schemas/{quote(named, safe='')}")

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Check"), check, "reader", primary=False)
            visit.button(t("Register"), register_it)
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


def _open_level(visit: Visit, subject: str) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Compatibility")))
        level = ui.select(list(LEVELS), value="BACKWARD").props("outlined").style("width:100%")

        async def save() -> None:
            async def send() -> None:
                demand(visit.person, "admin")
                visit.center.limits.demand(visit.person, "subject", subject)
                path = f"/config/{quote(subject, safe='')}"
                await visit.center.services.registry.ask("PUT", path, {"compatibility": level.value})

            if await visit.attempt(send(), t("Done.")):
                visit.center.audit.note(visit.person.name, "set compatibility", f"{subject}: {level.value}")
                ui.navigate.reload()

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Save"), save, "admin")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()
