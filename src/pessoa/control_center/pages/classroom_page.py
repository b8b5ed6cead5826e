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
from pessoa.control_center.lesson import Lesson, MemberState, Scene
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.parts import Cell, Html, notice, tag
from pessoa.control_center.platform_brokers import broker_processes, kill_broker
from pessoa.control_center.views import TopicView
from pessoa.web.problems import HttpProblem

MAX_LESSONS = 5
PARTITIONS = 3
_SHOWN_CELLS = 7
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
                lesson = await _begin(visit)
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


async def _begin(visit: Visit) -> Lesson:
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
        lesson.end()
        await asyncio.to_thread(lesson.join)
        for removal in (center.delete_group(_SYSTEM, lesson.group), center.delete_topic(_SYSTEM, lesson.topic)):
            try:
                await removal
            except HttpProblem:
                continue

    ui.context.client.on_disconnect(end)
    return lesson


async def _draw_lesson(visit: Visit, lesson: Lesson) -> None:
    t = visit.t
    told = visit.html()
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
            told_acks = ACKS[lesson.acks]
            words = visit.html(tag("p", t(told_acks), cls="dim"))

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
            told.set_content(str(notice(t("The lesson is over. Load the page again for another."))))
            return
        view = await visit.center.watch.topic(lesson.topic)
        found = lesson.scene()
        scene.set_content(str(draw_scene(visit, view, found)))
        told.set_content(str(notice(found.trouble, "warning")) if found.trouble else "")

    await redraw()
    visit.live(0.7, redraw)


def _draw_kill(visit: Visit) -> None:
    """Buttons that kill a broker of the `pessoa up` beside us, or the command for another cluster."""
    t = visit.t
    steps = t("Stop the leader of a partition in a terminal and watch its leadership move to an in-sync replica:")
    again = t("`pessoa up` starts it again, and it catches up.")
    mine = broker_processes(visit.center.config.home)
    if mine:
        steps = t("Kill the leader of a partition and watch its leadership move to an in-sync replica:")
    command = tag("pre", "kill -9 $(pgrep -f node.id=2)") if not mine else ""

    async def kill(broker: int) -> None:
        async def act() -> None:
            demand(visit.person, "admin")
            kill_broker(visit.center.config.home, broker)
            visit.center.audit.note(visit.person.name, "kill broker", str(broker))

        await visit.attempt(act(), t("Broker {n} is killed.", n=broker))

    with ui.element("section").classes("card"):
        visit.html(tag("div", tag("h2", t("Kill a broker")), tag("p", steps, cls="dim"), command))
        with ui.element("div").classes("actions"):
            for broker in sorted(mine):
                visit.button(t("Kill broker {n}", n=broker), partial(kill, broker), "admin", primary=False)
        visit.html(tag("p", again, cls="dim"))


def _setter(lesson: Lesson, name: str) -> Callable[[events.ValueChangeEventArguments[Any]], None]:
    return lambda change: setattr(lesson, name, bool(change.value))


def draw_scene(visit: Visit, view: TopicView, scene: Scene) -> Html:
    """Producer, partitions and members as one picture."""
    t = visit.t
    rows = max(PARTITIONS, len(scene.members), 1)
    step, top = 92, 34
    height = top + rows * step
    parts: list[Cell] = []
    middle = top + (PARTITIONS * step) / 2 - 12
    took = "" if scene.average_ms is None else f"{scene.average_ms:.1f} ms"
    parts.append(_box(8, middle - 44, 142, 88, t("Producer"), f"acks={scene.acks} · {took}",
                      t("idempotent") if scene.is_idempotent else t("may write twice"), "lead"))  # fmt: skip
    parts.append(_text(8, middle + 64, t("{n} sent, {m} failed", n=scene.produced, m=scene.failed)))
    parts.append(_text(250, 18, t("Topic {name}", name=view.name), soft=False))
    latest = {one.partition: one for one in scene.sent[-PARTITIONS:]}
    owner = {number: at for at, member in enumerate(scene.members) for number in member.partitions}
    for one in view.partitions:
        y = top + one.partition * step
        is_fresh = one.partition in latest and scene.is_producing
        parts.append(_wire(150, middle, 250, y + 32, is_fresh))
        parts.append(_box(250, y, 390, 64, "", "", "", "box"))
        leader = t("Partition {n} · leader: broker {m}", n=one.partition, m=one.leader)
        others = ", ".join(f"{node}{'' if node in one.isr else ' ✗'}" for node in one.replicas if node != one.leader)
        parts.append(_text(262, y + 17, leader, soft=False))
        parts.append(_text(480, y + 17, t("followers: {names}", names=others or "–")))
        sent = {each.offset: each for each in scene.sent if each.partition == one.partition}
        # What was acknowledged since the ends were asked counts.
        end = max([one.latest or 0, *(offset + 1 for offset in sent)])
        for cell, offset in enumerate(range(max(0, end - _SHOWN_CELLS), end + 1)):
            x = 262 + cell * 45
            key = sent[offset].key if offset in sent and scene.keyed else ""
            tone = "fresh" if offset == end - 1 and is_fresh else "lead" if offset < end else "box idle"
            shade = "fresh-text" if tone == "fresh" else ""
            label = f"{offset}{key and ' ' + key}"
            parts.append(Html('<rect class="{}" x="{}" y="{}" width="41" height="30" rx="6"/><text class="{}" x="{}" '
                              'y="{}" text-anchor="middle" font-size="11.5">{}</text>').format(
                tone, x, y + 26, shade, x + 20.5, y + 46, label))  # fmt: skip
        if one.partition in owner:
            parts.append(_wire(640, y + 32, 740, top + owner[one.partition] * step + 32, is_fresh))
    parts += [_member(visit, member, top + at * step) for at, member in enumerate(scene.members)]
    if not scene.members:
        parts.append(_text(740, top + 40, t("No consumer: the messages wait in the log.")))
    body = Html("").join(str(one) if not isinstance(one, str) else one for one in parts)
    svg = Html('<svg viewBox="0 0 930 {}" role="img" aria-label="{}">{}</svg>')
    return tag("div", svg.format(height + 10, t("Producer, partitions and consumers"), body), cls="scene", tabindex="0")


def _member(visit: Visit, member: MemberState, y: float) -> Html:
    t = visit.t
    is_idle = not member.partitions
    doing = t("idle") if is_idle else t("reads {names}", names=", ".join(map(str, member.partitions)))
    note = t("{n} read · last {last}", n=member.read, last=member.last or "–")
    return _box(740, y, 182, 64, t("Consumer {name}", name=member.name), doing, note, "box idle" if is_idle else "lead")


def _box(x: float, y: float, wide: float, high: float, head: str, one: str, two: str, tone: str) -> Html:
    return Html(
        '<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="11"/><text x="{}" y="{}">{}</text>'
        '<text class="soft" x="{}" y="{}">{}</text><text class="soft" x="{}" y="{}">{}</text>'
    ).format(tone if tone != "lead" else "box lead", x, y, wide, high, x + 12, y + 21, head, x + 12, y + 39, one, x +
    12,
             y + 55, two)  # fmt: skip


def _text(x: float, y: float, text: str, *, soft: bool = True) -> Html:
    return Html('<text class="{}" x="{}" y="{}">{}</text>').format("soft" if soft else "", x, y, text)


def _wire(x1: float, y1: float, x2: float, y2: float, is_live: bool) -> Html:
    bend = (x1 + x2) / 2
    return Html('<path class="wire{}" d="M{} {} C{} {},{} {},{} {}"/>').format(
        " live" if is_live else "", x1, y1, bend, y1, bend, y2, x2, y2
    )
