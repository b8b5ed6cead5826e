"""Alerts: what fires now, what has happened, and the rules."""

from __future__ import annotations

import msgspec
from nicegui import events, ui

from pessoa.control_center.accounts import demand
from pessoa.control_center.alerts import KINDS, BadRule, check_rule, shown_rules
from pessoa.control_center.center import Center
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import Cell, Html, badge, card, date_clock, notice, table, tag
from pessoa.control_center.stored_state import AlertRule
from pessoa.web.problems import HttpProblem


def register(center: Center) -> None:
    @page(center, "/alerts", "alerts", "Alerts")
    async def alerts(visit: Visit) -> None:
        t = visit.t
        with ui.element("div").classes("actions"):
            visit.button(t("Add a rule"), lambda: _open_rule(visit), "admin")
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(_content(visit)))

        async def change(event: events.GenericEventArguments) -> None:
            name, what = str(event.args.get("name")), str(event.args.get("what"))
            demand(visit.person, "admin")
            kept = []
            for rule in visit.center.state.stored.rules:
                if rule.name != name:
                    kept.append(rule)
                elif what == "switch":
                    kept.append(msgspec.structs.replace(rule, is_on=not rule.is_on))
            visit.center.state.change(rules=tuple(kept))
            visit.center.audit.note(visit.person.name, f"{what} alert rule", name)
            await redraw()

        visit.on("rule", change)
        await redraw()
        visit.live(2.0, redraw)


def _content(visit: Visit) -> Html:
    t, center = visit.t, visit.center
    firing = [notice(f"{one.rule}: {one.text} ({date_clock(at)})", "bad") for at, one in center.alerts.firing.values()]
    rules: list[list[Cell]] = []
    for rule in shown_rules(center.state.stored.rules, to_admin=visit.person.may("admin")):
        call = "emitEvent('rule',{name:this.dataset.name,what:'%s'})"
        buttons = tag("div", tag("button", t("Switch off") if rule.is_on else t("Switch on"), cls="btn secondary",
                                 data_name=rule.name, onclick=call % "switch"),
                      tag("button", t("Delete"), cls="btn secondary", data_name=rule.name, onclick=call % "delete"),
                      cls="actions") if visit.person.may("admin") else ""  # fmt: skip
        rules.append([rule.name, rule.kind, rule.target if rule.kind == "lag" else "–",
                      f"> {rule.threshold:,.0f}", rule.webhook or "–",
                      badge(t("on"), "good") if rule.is_on else badge(t("off")), buttons])  # fmt: skip
    events_: list[list[Cell]] = [
        [date_clock(one.at_ms), one.rule, badge(t(one.state), "bad" if one.state == "firing" else "good"), one.text]
        for one in reversed(list(center.alerts.events)[-100:])
    ]
    heads = [t("Rule"), t("Kind"), t("Group"), t("Fires"), t("Webhook"), t("State"), ""]
    return tag(
        "div", *(firing or [notice(t("Nothing fires."), "good")]),
        card(t("Rules"), table(heads, rules, empty=t("There is no rule."), numbers=(3,))),
        card(t("Events"), table([t("Time"), t("Rule"), t("State"), t("What")], events_,
                                empty=t("Nothing has happened."))),
    )  # fmt: skip


def _open_rule(visit: Visit) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Add a rule")))
        name = ui.input(t("Name")).props("outlined").style("width:100%")
        kind = ui.select({key: f"{key} ({unit})" for key, unit in KINDS.items()}, value="lag", label=t("Kind"))
        threshold = ui.number(t("Fires above"), value=1000, min=0)
        target = ui.input(t("Group (* for any)"), value="*")
        webhook = ui.input(t("Webhook (empty: none)"))
        for one in (kind, threshold, target, webhook):
            one.props("outlined").style("width:100%;margin-top:10px")

        async def save() -> None:
            if threshold.value is None:
                ui.notify(t("A rule needs a number above which it fires."), type="negative")
                return
            rule = AlertRule(name.value or "", str(kind.value), float(threshold.value), target.value or "*",
                             webhook.value or "")  # fmt: skip
            try:
                demand(visit.person, "admin")
                check_rule(rule)
                others = tuple(each for each in visit.center.state.stored.rules if each.name != rule.name)
                visit.center.state.change(rules=(*others, rule))
            except (BadRule, HttpProblem) as wrong:
                ui.notify(str(wrong), type="negative")
                return
            visit.center.audit.note(visit.person.name, "set alert rule", rule.name)
            dialog.close()

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Save"), save, "admin")
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
    dialog.open()
