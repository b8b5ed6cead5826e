"""The picture of the classroom: producer → partitions → members of a group, as SVG.

It is drawn twice, wide for a desk and tall for a phone; the style shows one of them.
"""

from __future__ import annotations

from pessoa.control_center.lesson import MemberState, Scene
from pessoa.control_center.pages.frame import Visit
from pessoa.control_center.pages.parts import Cell, Html, join, tag
from pessoa.control_center.views import PartitionView, TopicView

PARTITIONS = 3
_SHOWN_CELLS = 7


def draw_scene(visit: Visit, view: TopicView, scene: Scene) -> Html:
    """Return the scene in a wide and a tall layout; CSS shows the one that fits the window."""
    return tag("div", _draw_wide(visit, view, scene), _draw_tall(visit, view, scene), cls="scene", tabindex="0")


def _draw_wide(visit: Visit, view: TopicView, scene: Scene) -> Html:
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
        parts.append(_text(262, y + 17, leader, soft=False))
        parts.append(_text(480, y + 17, t("followers: {names}", names=_followers(one))))
        parts.append(_row(one, scene, 262, y + 26, _SHOWN_CELLS, is_fresh=is_fresh))
        if one.partition in owner:
            parts.append(_wire(640, y + 32, 740, top + owner[one.partition] * step + 32, is_fresh))
    parts += [_member(visit, member, top + at * step) for at, member in enumerate(scene.members)]
    if not scene.members:
        parts.append(_text(740, top + 40, t("No consumer: the messages wait in the log.")))
    return _svg("wide", 930, height + 10, t("Producer, partitions and consumers"), parts)


def _draw_tall(visit: Visit, view: TopicView, scene: Scene) -> Html:
    """Return the scene for a phone: the producer above, a line from it to each partition, and in each partition its
    reader."""
    t = visit.t
    step, top = 142, 96
    parts: list[Cell] = []
    took = "" if scene.average_ms is None else f"{scene.average_ms:.1f} ms"
    idempotent = t("idempotent") if scene.is_idempotent else t("may write twice")
    parts.append(_box(4, 4, 332, 68, t("Producer"), f"acks={scene.acks} · {took} · {idempotent}",
                      t("{n} sent, {m} failed", n=scene.produced, m=scene.failed), "lead"))  # fmt: skip
    latest = {one.partition for one in scene.sent[-PARTITIONS:]} if scene.is_producing else set()
    reader = {number: member for member in scene.members for number in member.partitions}
    for one in view.partitions:
        y = top + one.partition * step
        is_fresh = one.partition in latest
        parts.append(Html('<path class="wire{}" d="M14 72 V{} Q14 {},24 {} H32"/>').format(
            " live" if is_fresh else "", y + 22, y + 32, y + 32))  # fmt: skip
        parts.append(_box(32, y, 304, 124, "", "", "", "box"))
        parts.append(_text(44, y + 19, t("Partition {n} · leader: broker {m}", n=one.partition, m=one.leader),
                           soft=False))  # fmt: skip
        parts.append(_text(44, y + 36, t("followers: {names}", names=_followers(one))))
        parts.append(_row(one, scene, 44, y + 44, _SHOWN_CELLS - 2, is_fresh=is_fresh))
        member = reader.get(one.partition)
        parts.append(_reader(visit, member, y + 82) if member else _text(44, y + 106, t("No consumer reads it.")))
    y = top + PARTITIONS * step
    idle_members = [member for member in scene.members if not member.partitions]
    parts += [_box(32, y + at * 64, 304, 52, t("Consumer {name}", name=member.name), t("idle"), "", "box idle")
              for at, member in enumerate(idle_members)]  # fmt: skip
    return _svg("tall", 340, y + 64 * len(idle_members), t("Producer, partitions and consumers"), parts)


def _reader(visit: Visit, member: MemberState, y: float) -> Html:
    t = visit.t
    note = t("{n} read · last {last}", n=member.read, last=member.last or "–")
    name = _text(54, y + 21, t("Consumer {name}", name=member.name), soft=False)
    frame = Html('<rect class="box lead" x="44" y="{}" width="280" height="32" rx="8"/>').format(y)
    return frame + name + _text(164, y + 21, note)


def _row(one: PartitionView, scene: Scene, x: float, y: float, count: int, *, is_fresh: bool) -> Html:
    """Return the last messages of a partition as cells with their keys, and an empty cell for the next message."""
    sent = {each.offset: each for each in scene.sent if each.partition == one.partition}
    # Messages that were acknowledged after the end offsets were fetched count too.
    end = max([one.latest or 0, *(offset + 1 for offset in sent)])
    cells = []
    for cell, offset in enumerate(range(max(0, end - count), end + 1)):
        key = sent[offset].key if offset in sent and scene.keyed else ""
        tone = "fresh" if offset == end - 1 and is_fresh else "lead" if offset < end else "box idle"
        cells.append(
            Html('<rect class="{}" x="{}" y="{}" width="41" height="30" rx="6"/><text class="{}" x="{}" y="{}" '
                 'text-anchor="middle" font-size="11.5">{}</text>').format(
                tone, x + cell * 45, y, "fresh-text" if tone == "fresh" else "", x + cell * 45 + 20.5, y + 20,
                f"{offset}{key and ' ' + key}")
        )  # fmt: skip
    return Html("").join(cells)


def _followers(one: PartitionView) -> str:
    others = [f"{node}{'' if node in one.isr else ' ✗'}" for node in one.replicas if node != one.leader]
    return ", ".join(others) or "–"


def _svg(cls: str, width: int, height: float, label: str, parts: list[Cell]) -> Html:
    form = Html('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return form.format(cls, width, height, label, join(parts))


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
