"""Schemas: subjects, their versions, a diff between two, a check of compatibility before a version is registered."""

from __future__ import annotations

import difflib
from urllib.parse import quote

import msgspec
from nicegui import ui

from pessoa.client import registry_client
from pessoa.client.registry_client import RegisteredSchema
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
        t, registry = visit.t, visit.center.services.registry
        state = await registry.state()
        if not state.is_up:
            visit.html(notice(state.note))
            return
        with ui.element("div").classes("actions"):
            visit.button(t("Register a schema"), lambda: _open_registering(visit, ""))
        subjects = sorted(await registry.ask(registry_client.subjects()))
        level = await registry.ask(registry_client.compatibility_level())
        rows: list[list[Cell]] = []
        for subject in subjects[:_SHOWN]:
            latest = await registry.ask(registry_client.by_version(subject))
            rows.append([link(subject, f"/schemas/{quote(subject, safe='')}"), latest.schema_type,
                         str(latest.version), str(latest.id)])  # fmt: skip
        visit.html(tag("p", t("Compatibility of subjects without their own:"), " ", badge(level, "accent")))
        heads = [t("Subject"), t("Type"), t("Version"), t("Id")]
        visit.html(card("", table(heads, rows, empty=t("No schema is registered."), numbers=(2, 3))))

    @page(center, "/schemas/{subject}", "schemas", "Schemas")
    async def one_subject(visit: Visit, subject: str) -> None:
        await _draw_subject(visit, subject)


async def _draw_subject(visit: Visit, subject: str) -> None:
    t, registry = visit.t, visit.center.services.registry
    versions = await registry.ask(registry_client.versions(subject))
    chosen = visit.number("version", versions[-1])
    other = visit.number("against", 0)
    schema = await registry.ask(registry_client.by_version(subject, chosen))
    level = await registry.ask(registry_client.compatibility_level(subject))
    links = [
        tag("a", t("version {n}", n=one), href=visit.here(version=one, against=None),
            cls="on" if one == chosen else None)
        for one in versions
    ]  # fmt: skip
    visit.html(tag("nav", *links, cls="tabs", aria_label=t("Versions")))
    facts = tag(
        "p",
        badge(schema.schema_type, "accent"),
        " ",
        t("id {n}", n=schema.id),
        " · ",
        t("compatibility"),
        " ",
        badge(level),
    )
    with ui.element("div").classes("spread"):
        visit.html(facts)
        with ui.element("div").classes("actions"):
            visit.button(t("New version"), lambda: _open_registering(visit, subject, pretty(schema.schema)))
            visit.button(t("Compatibility"), lambda: _open_level(visit, subject), "admin", primary=False)
    if schema.references:
        visit.html(notice(t("It refers to: {names}", names=", ".join(one.name for one in schema.references))))
    compare = [link(t("compare with {n}", n=one), visit.here(version=chosen, against=one))
               for one in versions if one != chosen][-5:]  # fmt: skip
    if other and other != chosen:
        before = await registry.ask(registry_client.by_version(subject, other))
        visit.html(card(t("From version {n} to {m}", n=other, m=chosen),
                        diff(pretty(before.schema), pretty(schema.schema))))  # fmt: skip
    visit.html(card(t("Schema"), tag("p", *(part for one in compare for part in (one, " "))),
                    tag("pre", pretty(schema.schema))))  # fmt: skip


def pretty(text: str) -> str:
    """Return JSON with its lines indented; Protobuf unchanged."""
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
        result_html = visit.html()

        def typed() -> RegisteredSchema:
            return RegisteredSchema(schema.value or "", schema_type=str(kind.value))

        def subject_name() -> str:
            found = (name.value or "").strip()
            if not found:
                raise HttpProblem(400, t("A schema needs a subject: <topic>-value or <topic>-key."))
            return found

        async def check() -> None:
            question = registry_client.check_compatibility(subject_name(), typed())
            try:
                verdict = await registry.ask(question)
            except HttpProblem as problem:
                result_html.set_content(str(notice(problem.message, "bad")))
                return
            fits = verdict.is_compatible
            words = t("It is compatible.") if fits else t("It is not compatible.")
            result_html.set_content(str(notice(f"{words} {'; '.join(verdict.messages)}", "good" if fits else "bad")))

        async def register_it() -> None:
            named = subject_name()

            async def send() -> None:
                demand(visit.person, "editor")
                visit.center.limits.demand(visit.person, "subject", named)
                await registry.ask(registry_client.register(named, typed()))

            if await visit.attempt(send(), t("The schema is registered.")):
                visit.center.audit.note(visit.person.name, "register schema", named)
                visit.go(f"/schemas/{quote(named, safe='')}")

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Check"), check, "reader", primary=False)
            visit.button(t("Register"), register_it)
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


def _open_level(visit: Visit, subject: str) -> None:
    t, registry = visit.t, visit.center.services.registry
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Compatibility")))
        level = ui.select(list(LEVELS), value="BACKWARD").props("outlined").style("width:100%")

        async def save() -> None:
            async def send() -> None:
                demand(visit.person, "admin")
                visit.center.limits.demand(visit.person, "subject", subject)
                await registry.ask(registry_client.set_compatibility_level(subject, str(level.value)))

            if await visit.attempt(send(), t("Done.")):
                visit.center.audit.note(visit.person.name, "set compatibility", f"{subject}: {level.value}")
                ui.navigate.reload()

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Save"), save, "admin")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()
