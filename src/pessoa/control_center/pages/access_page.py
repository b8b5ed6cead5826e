"""Access: ACLs, client quotas and the users with SCRAM credentials."""

from __future__ import annotations

from collections.abc import Iterable

from nicegui import events, ui

from pessoa.client.acl_admin import Entry, Operation, Pattern, PatternType, Permission, ResourceType
from pessoa.control_center.acl_recipes import Acl, BadRecipe, acls_for
from pessoa.control_center.center import Center
from pessoa.control_center.csv_text import csv_table
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import Cell, badge, card, notice, table, tag
from pessoa.web.problems import HttpProblem

TABS = (("", "ACLs"), ("quotas", "Quotas"), ("users", "Users"))
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
Found = tuple[Pattern, Entry]


def register(center: Center) -> None:
    @page(center, "/access", "access", "Access")
    async def access(visit: Visit) -> None:
        tab = visit.query("tab")
        links = [
            tag("a", visit.t(text), href=f"/access?tab={key}" if key else "/access", cls="on" if key == tab else None)
            for key, text in TABS
        ]
        visit.html(tag("nav", *links, cls="tabs", aria_label=visit.t("Access")))
        match tab:
            case "quotas":
                await _draw_quotas(visit)
            case "users":
                await _draw_users(visit)
            case _:
                await _draw_acls(visit)


def acl_rows(found: Iterable[Found], buttons: Iterable[Cell] | None = None) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for pattern, entry in found:
        tone = "good" if entry.permission is Permission.ALLOW else "bad"
        name = f"{pattern.name}*" if pattern.pattern_type is PatternType.PREFIXED else pattern.name or "*"
        rows.append([
            entry.principal, badge(entry.permission.name, tone), entry.operation.name,
            f"{pattern.kind.name.lower()} {name}", entry.host,
        ])  # fmt: skip
    if buttons is not None:
        for row, button in zip(rows, buttons, strict=True):
            row.append(button)
    return rows


async def _draw_acls(visit: Visit) -> None:
    t = visit.t
    try:
        found = await visit.center.acls()
    except HttpProblem as problem:
        visit.html(notice(t("ACLs cannot be shown: {reason}", reason=problem.message)))
        return
    with ui.element("div").classes("actions"):
        visit.button(t("Let an application in"), lambda: _open_recipe(visit), "admin")
        visit.button(t("Add an ACL"), lambda: _open_acl(visit), "admin", primary=False)
        rows = [
            (entry.principal, entry.permission.name, entry.operation.name, pattern.kind.name, pattern.pattern_type.name,
             pattern.name, entry.host)
            for pattern, entry in found
        ]  # fmt: skip
        heads = ("principal", "permission", "operation", "resource", "pattern", "name", "host")
        visit.button("CSV", lambda: ui.download.content(csv_table(heads, rows), "acls.csv"), "reader",
                     primary=False).tooltip(t("Download"))  # fmt: skip
    buttons: list[Cell] = [
        tag("button", t("Delete"), cls="btn secondary", data_at=at,
            onclick="emitEvent('delete-acl',{at:+this.dataset.at})")
        if visit.person.may("admin") else ""
        for at in range(len(found))
    ]  # fmt: skip
    shown = [t("Principal"), t("Permission"), t("Operation"), t("Resource"), t("Host"), ""]
    visit.html(card("", table(shown, acl_rows(found, buttons), empty=t("There is no ACL."))))

    async def delete(event: events.GenericEventArguments) -> None:
        at = event.args.get("at")
        if isinstance(at, int) and 0 <= at < len(found) and await visit.attempt(
            visit.center.delete_acl(visit.person, *found[at]), t("The ACL is deleted.")
        ):  # fmt: skip
            ui.navigate.reload()

    visit.on("delete-acl", delete)


def _open_recipe(visit: Visit) -> None:
    """Open the dialog that creates all ACLs which a producer, a consumer or a Streams application needs."""
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Let an application in")))
        kinds = {"producer": t("a producer"), "consumer": t("a consumer"), "streams": t("an application of Streams")}
        kind = ui.select(kinds, value="producer", label=t("What it is"))
        principal = ui.input(t("Principal"), value="User:")
        topics = ui.input(t("Topics, with commas (orders, click*)"))
        group = ui.input(t("Group or application id (not for a producer)"))
        outputs = ui.input(t("Topics it writes to (Streams alone)"))
        for one in (kind, principal, topics, group, outputs):
            one.props("outlined dense").style("width:100%;margin-bottom:10px")
        preview = visit.html()

        def planned() -> list[Acl]:
            given = [one.value or "" for one in (principal, topics, group, outputs)]
            try:
                return acls_for(str(kind.value), *given)
            except BadRecipe as wrong:
                raise HttpProblem(400, str(wrong)) from None

        def show() -> None:
            heads = [t("Principal"), t("Permission"), t("Operation"), t("Resource"), t("Host")]
            preview.set_content(str(table(heads, acl_rows(planned()), empty="")))

        async def add() -> None:
            async def add_all() -> None:
                for pattern, entry in planned():
                    await visit.center.add_acl(visit.person, pattern, entry)

            if await visit.attempt(add_all(), t("The ACLs are there.")):
                ui.navigate.reload()

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Preview"), show, "reader", primary=False)
            visit.button(t("Add"), add, "admin")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


def _open_acl(visit: Visit) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Add an ACL")))
        principal = ui.input(t("Principal"), value="User:").props("outlined").style("width:100%")
        with ui.element("div").classes("two").style("margin:10px 0"):
            kind = ui.select([one.name for one in ResourceType if one > 1], value="TOPIC", label=t("Resource"))
            name = ui.input(t("Name (* for all)"), value="*")
            pattern = ui.select(["LITERAL", "PREFIXED"], value="LITERAL", label=t("Pattern"))
            operation = ui.select([one.name for one in Operation if one > 1], value="READ", label=t("Operation"))
            permission = ui.select(["ALLOW", "DENY"], value="ALLOW", label=t("Permission"))
            host = ui.input(t("Host"), value="*")
            for one in (kind, name, pattern, operation, permission, host):
                one.props("outlined dense")

        async def add() -> None:
            if not all((principal.value or "").partition(":")):
                ui.notify(t("A principal is written as User:name."), type="negative")
                return
            shape = Pattern(ResourceType[str(kind.value)], name.value, PatternType[str(pattern.value)])
            entry = Entry(
                principal.value, host.value, Operation[str(operation.value)], Permission[str(permission.value)]
            )
            if await visit.attempt(visit.center.add_acl(visit.person, shape, entry), t("The ACL is there.")):
                ui.navigate.reload()

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Add"), add, "admin")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


async def _draw_quotas(visit: Visit) -> None:
    t = visit.t
    with ui.element("div").classes("actions"):
        visit.button(t("Set a quota"), lambda: _open_quota(visit), "admin")
    rows: list[list[Cell]] = []
    for entity, values in await visit.center.quotas():
        entity_text = ", ".join(
            f"{kind} {name if name is not None else t('(default)')}" for kind, name in entity.items()
        )
        rows += [[entity_text, key, f"{value:,.0f}"] for key, value in sorted(values.items())]
    heads = [t("Who"), t("Quota"), t("Value")]
    visit.html(card("", table(heads, rows, empty=t("There is no quota."), numbers=(2,))))


def _open_quota(visit: Visit) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Set a quota")))
        user = ui.input(t("User (empty: any)")).props("outlined").style("width:100%")
        client = ui.input(t("Client id (empty: any)")).props("outlined").style("width:100%;margin:10px 0")
        quota = ui.select(list(QUOTAS), value=QUOTAS[0], label=t("Quota")).props("outlined").style("width:100%")
        value = ui.number(t("Value (empty: no quota)"), min=0).props("outlined").style("width:100%;margin-top:10px")

        async def save() -> None:
            entity: dict[str, str | None] = {}
            if user.value:
                entity["user"] = user.value
            if client.value:
                entity["client-id"] = client.value
            change = visit.center.set_quota(visit.person, entity or {"user": None}, {str(quota.value): value.value})
            if await visit.attempt(change, t("Done.")):
                ui.navigate.reload()

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Save"), save, "admin")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()


async def _draw_users(visit: Visit) -> None:
    t = visit.t
    if not visit.person.may("admin"):
        visit.html(notice(t("This needs the role {role}.", role="admin")))
        return
    with ui.element("div").classes("actions"):
        visit.button(t("Set a password"), lambda: _open_user(visit), "admin")
    rows: list[list[Cell]] = [[name, ", ".join(ways)] for name, ways in (await visit.center.users()).items()]
    empty = t("No user has a SCRAM password.")
    visit.html(card("", table([t("User"), t("Logs in with")], rows, empty=empty)))


def _open_user(visit: Visit) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Set a password")))
        name = ui.input(t("User")).props("outlined").style("width:100%")
        password = ui.input(t("Password"), password=True).props("outlined").style("width:100%;margin-top:10px")

        async def save(text: str | None) -> None:
            if not name.value or text == "":
                ui.notify(t("A user has a name and a password."), type="negative")
                return
            if await visit.attempt(visit.center.set_user(visit.person, name.value, text), t("Done.")):
                ui.navigate.reload()

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Save"), lambda: save(password.value), "admin")
            visit.button(t("Remove the user"), lambda: save(None), "admin", primary=False)
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()
