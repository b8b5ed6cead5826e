"""The dialog that copies a topic's messages to another topic, of this cluster or another."""

from __future__ import annotations

from nicegui import ui

from pessoa.control_center.pages.frame import Visit
from pessoa.control_center.pages.parts import Html, notice, tag
from pessoa.control_center.topic_copy import CopyScan


def open_copy(visit: Visit, topic: str) -> None:
    t = visit.t
    running: list[CopyScan] = []
    names = list(visit.center.clusters)
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        words = t("The topic must be there: clone this one first. Messages keep their keys, headers and times.")
        visit.html(tag("div", tag("h2", t("Copy the messages of {name}", name=topic)), notice(words)))
        cluster = ui.select(names, value=visit.center.config.name, label=t("Cluster")).props("outlined dense")
        cluster.style("width:100%;margin-bottom:10px")
        cluster.set_visibility(len(names) > 1)
        target = ui.input(t("To the topic")).props("outlined dense").style("width:100%")
        progress_html = visit.html()

        async def begin() -> None:
            stop()
            wanted = (target.value or "").strip()
            running[:] = [await visit.center.copy_topic(visit.person, topic, wanted, str(cluster.value))]
            timer.activate()

        def stop() -> None:
            for one in running:
                one.stop()

        def step() -> None:
            if not visit.has_session():
                stop()
            for one in running:
                progress_html.set_content(str(_state(visit, one)))
                if one.progress.is_done:
                    timer.deactivate()

        timer = ui.timer(0.4, step, active=False)
        visit.at_end(stop)
        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Copy"), begin)
            visit.button(t("Stop"), stop, "reader", primary=False)
            visit.button(t("Close"), dialog.close, "reader", primary=False)
    dialog.open()


def _state(visit: Visit, one: CopyScan) -> Html:
    if one.progress.error:
        return notice(one.progress.error, "bad")
    words = visit.t("{n} of {m} messages copied", n=f"{one.copied:,}", m=f"{one.progress.total:,}")
    return notice(words, "good" if one.progress.is_done else "warning")
