"""The classroom: the pictures of Kafka's lessons, played live on a scratch topic of the running cluster.

    producer → partitions → members of a group

The student adds and removes members (a fourth one of three partitions stays idle), chooses acks and idempotence, sends
with keys and without, and sees on which broker each partition's leader is, and where it goes when that broker stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import events, ui

from pessoa.control_center.accounts import Person, demand
from pessoa.control_center.center import Center
from pessoa.control_center.lesson import Lesson
from pessoa.control_center.pages.classroom_scene import PARTITIONS, draw_scene
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import notice, tag
from pessoa.control_center.platform_brokers import broker_processes, kill_broker
from pessoa.web.problems import HttpProblem

MAX_LESSONS = 5
ACKS = {
    "0": "acks=0: the producer waits for no answer. The quickest; what is lost on the way goes unnoticed.",
    "1": "acks=1: the leader has saved it and says so. If it falls before its followers have copied it, it is lost.",
    "all": "acks=all: the leader says so when all in-sync replicas have it. Nothing that was acknowledged is lost.",
}
_SYSTEM = Person("classroom", "admin")
_lessons: list[Lesson] = []


def register(center: Center) -> None:
    @page(center, "/classroom", "classroom", "Classroom")
    async def classroom(visit: Visit) -> None:
        t = visit.t
        visit.html(tag("p", t("The pictures of the lesson, live on this cluster: a producer writes to a topic of three "
                              "partitions, and a group reads it."), cls="dim"))  # fmt: skip
        place = ui.element("div")

        async def begin() -> None:
            try:
                lesson = await _begin_lesson(visit)
            except HttpProblem as problem:
                ui.notify(problem.message, type="negative")
                return
            place.clear()
            with place:
                await _draw_lesson(visit, lesson)

        with place, ui.element("section").classes("card"):
            visit.html(tag("div", tag("h2", t("Begin a lesson")), tag("p", t(
                "A scratch topic is created, and deleted when this page is closed."), cls="dim")))  # fmt: skip
            visit.button(t("Begin"), begin)


async def _begin_lesson(visit: Visit) -> Lesson:
    demand(visit.person, "editor")
    _lessons[:] = [one for one in _lessons if not one.is_over]
    if len(_lessons) >= MAX_LESSONS:
        raise HttpProblem(429, visit.t("{n} lessons are under way; end one of them first.", n=MAX_LESSONS))
    center = visit.center
    lesson = Lesson(center.link.client_settings())
    brokers = len((await center.watch.image()).nodes.nodes)
    await center.create_topic(visit.person, lesson.topic, PARTITIONS, min(3, brokers), {})
    lesson.begin()
    for _ in range(2):
        lesson.add_member()
    _lessons.append(lesson)

    async def end() -> None:
        if lesson.is_ended:
            return
        lesson.end()
        await asyncio.to_thread(lesson.join)
        for removal in (center.delete_group(_SYSTEM, lesson.group), center.delete_topic(_SYSTEM, lesson.topic)):
            try:
                await removal
            except HttpProblem:
                continue

    visit.at_end(end)
    return lesson


async def _draw_lesson(visit: Visit, lesson: Lesson) -> None:
    t = visit.t
    status_html = visit.html()
    with ui.element("section").classes("card"):
        scene = visit.html()
    with ui.element("div").classes("two"):
        with ui.element("section").classes("card"):
            visit.html(tag("h2", t("Consumer group")))
            with ui.element("div").classes("actions"):
                visit.button(t("Add a consumer"), lesson.add_member)
                visit.button(t("Remove a consumer"), lesson.remove_member, primary=False)
            visit.html(tag("p", t("A partition is read by one member of a group. With more members than partitions, "
                                  "one stays idle."), cls="dim"))  # fmt: skip
        with ui.element("section").classes("card"):
            visit.html(tag("h2", t("Producer")))
            acks_text = ACKS[lesson.acks]
            words = visit.html(tag("p", t(acks_text), cls="dim"))

            def set_acks(change: events.ValueChangeEventArguments[Any]) -> None:
                lesson.change_producer(str(change.value), lesson.is_idempotent)
                words.set_content(str(tag("p", t(ACKS[str(change.value)]), cls="dim")))

            def set_idempotence(change: events.ValueChangeEventArguments[Any]) -> None:
                lesson.change_producer(lesson.acks, bool(change.value))

            with ui.element("div").classes("actions"):
                ui.toggle({"0": "acks=0", "1": "acks=1", "all": "acks=all"}, value="all", on_change=set_acks).props(
                    "no-caps unelevated toggle-text-color=on-accent"
                )
            ui.switch(t("idempotence (with acks=all)"), value=True, on_change=set_idempotence)
            ui.switch(t("with keys: the same key, the same partition"), value=True, on_change=_setter(lesson, "keyed"))
            ui.switch(
                t("quickly"), on_change=lambda change: setattr(lesson, "pace", "quick" if change.value else "slow")
            )
            ui.switch(t("produce"), value=True, on_change=_setter(lesson, "is_producing"))
    _draw_kill(visit)

    async def redraw() -> None:
        if lesson.is_over:
            status_html.set_content(str(notice(t("The lesson is over. Load the page again for another."))))
            return
        view = await visit.center.watch.topic(lesson.topic)
        found = lesson.scene()
        scene.set_content(str(draw_scene(visit, view, found)))
        status_html.set_content(str(notice(found.trouble, "warning")) if found.trouble else "")

    await redraw()
    visit.live(0.7, redraw)


def _draw_kill(visit: Visit) -> None:
    """Draw buttons that kill a broker of the `pessoa up` on this machine, or the command for another cluster."""
    t = visit.t
    steps = t("Stop the leader of a partition in a terminal and watch its leadership move to an in-sync replica:")
    restart_text = t("`pessoa up` starts it again, and it catches up.")
    processes = broker_processes(visit.center.config.home)
    if processes:
        steps = t("Kill the leader of a partition and watch its leadership move to an in-sync replica:")
    command = tag("pre", "kill -9 $(pgrep -f node.id=2)") if not processes else ""

    async def kill(broker: int) -> None:
        async def act() -> None:
            demand(visit.person, "admin")
            kill_broker(visit.center.config.home, broker)
            visit.center.audit.note(visit.person.name, "kill broker", str(broker))

        await visit.attempt(act(), t("Broker {n} is killed.", n=broker))

    with ui.element("section").classes("card"):
        visit.html(tag("div", tag("h2", t("Kill a broker")), tag("p", steps, cls="dim"), command))
        with ui.element("div").classes("actions"):
            for broker in sorted(processes):
                visit.button(t("Kill broker {n}", n=broker), partial(kill, broker), "admin", primary=False)
        visit.html(tag("p", restart_text, cls="dim"))


def _setter(lesson: Lesson, name: str) -> Callable[[events.ValueChangeEventArguments[Any]], None]:
    return lambda change: setattr(lesson, name, bool(change.value))
