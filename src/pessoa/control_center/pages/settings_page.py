"""Settings: the cluster and its services, masking, saved filters; and the audit log."""

from __future__ import annotations

from nicegui import ui

from pessoa import __version__
from pessoa.control_center.accounts import demand
from pessoa.control_center.center import Center
from pessoa.control_center.masking import BadMask, parse_masks
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import Cell, badge, card, date_clock, notice, table, tag
from pessoa.web.problems import HttpProblem


def register(center: Center) -> None:
    @page(center, "/settings", "settings", "Settings")
    async def settings(visit: Visit) -> None:
        await _draw_settings(visit)

    @page(center, "/audit", "audit", "Audit log")
    async def audit(visit: Visit) -> None:
        t = visit.t
        if not visit.person.may("admin"):
            visit.html(notice(t("This needs the role {role}.", role="admin")))
            return
        rows: list[list[Cell]] = [
            [date_clock(one.at_ms), one.user, one.action, one.target,
             badge("ok", "good") if one.outcome == "ok" else badge(one.outcome[:80], "bad")]
            for one in reversed(visit.center.audit.entries)
        ]  # fmt: skip
        heads = [t("Time"), t("Who"), t("What"), t("Target"), t("Outcome")]
        visit.html(card("", table(heads, rows, empty=t("Nothing was changed through the control centre."))))


async def _draw_settings(visit: Visit) -> None:
    t, center = visit.t, visit.center
    image = await center.watch.image()
    about: list[list[Cell]] = [
        [t("Cluster"), image.nodes.cluster_id],
        [t("Brokers"), ", ".join(f"{node.host}:{node.port}" for node in image.nodes.nodes)],
        [t("Control centre"), f"Pessoa {__version__}"],
        [t("Kept in"), center.config.data_dir or t("memory: it is lost with the process")],
        [t("You"), f"{visit.person.name} ({t(visit.person.role)})"],
    ]
    visit.html(card(t("This cluster"), table(["", ""], about, empty="")))
    services: list[list[Cell]] = [
        [one.name, badge(t("up"), "good") if one.is_up else badge(t("not there")), one.url, one.note]
        for one in await center.services.states()
    ]
    visit.html(card(t("Services"), table([t("Service"), t("State"), t("Address"), ""], services, empty="")))
    with ui.element("section").classes("card"):
        explanation = t("What readers and editors do not see, on each line: topics, a colon, and fields.")
        visit.html(tag("div", tag("h2", t("Masking")), tag("p", explanation, cls="dim")))
        masks = ui.textarea(value=center.state.stored.masks, placeholder="orders: value.card.number\n*: headers.auth")
        masks.props(f'outlined rows=4 aria-label="{t("Masking")}"').classes("mono").style("width:100%")

        def save() -> None:
            try:
                demand(visit.person, "admin")
                parse_masks(masks.value or "")
                center.state.change(masks=masks.value or "")
            except (BadMask, HttpProblem) as wrong:
                ui.notify(str(wrong), type="negative")
                return
            center.audit.note(visit.person.name, "set masking", "")
            ui.notify(t("Done."), type="positive")

        visit.button(t("Save"), save, "admin")
    filters: list[list[Cell]] = [
        [one.name, tag("code", one.expression), one.topic or "*", one.owner] for one in center.state.stored.filters
    ]
    visit.html(card(t("Saved filters"), table([t("Name"), t("Filter"), t("Topic"), t("Who")], filters,
                                              empty=t("No filter is saved."))))  # fmt: skip
