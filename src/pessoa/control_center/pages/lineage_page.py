"""Lineage and pipelines: topics joined by connectors, queries and groups, as a graph with live rates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from pessoa.base.json_value import JsonValue
from pessoa.control_center.center import Center
from pessoa.control_center.cluster_watch import is_internal
from pessoa.control_center.lineage_graph import Flow, Graph, lay_out
from pessoa.control_center.pages.frame import Visit, page
from pessoa.control_center.pages.ksql_page import read
from pessoa.control_center.pages.parts import (
    Cell,
    Html,
    badge,
    card,
    compact,
    join,
    link,
    notice,
    rate_text,
    table,
    tag,
)
from pessoa.web.problems import HttpProblem

_WIDE, _HIGH, _GAP_X, _GAP_Y = 206, 46, 70, 18
# As wide as the page, where the graph has few columns.
_LEAST_WIDTH, _MOST_GAP = 1000, 240
_PATHS = {"topic": "/topics/", "group": "/consumers/", "connector": "/connect/"}
_FIXED_PATHS = {"query": "/ksql"}


def register(center: Center) -> None:
    @page(center, "/lineage", "lineage", "Lineage")
    async def lineage(visit: Visit) -> None:
        shown = visit.html()

        async def redraw() -> None:
            shown.set_content(str(await _content(visit)))

        await redraw()
        visit.live(4.0, redraw)


async def flows(center: Center) -> list[Flow]:
    """Return everything that reads or writes topics, as far as the services that are up report it."""
    found: list[Flow] = []
    if (await center.services.connect.state()).is_up:
        found += await _connectors(center)
    if (await center.services.pipelines.state()).is_up:
        found += await _pipelines(center)
    if (await center.services.ksql.state()).is_up:
        found += await _ksql_queries(center)
    for name, partitions in (await center.watch.group_lags()).items():
        topics = tuple(sorted({topic for topic, _ in partitions}))
        if topics and not stands_for_another(name, found):
            found.append(Flow("group", name, topics, state=compact(sum(partitions.values()))))
    return found


def stands_for_another(group: str, found: Iterable[Flow]) -> bool:
    """Whether a group is that of a connector, a pipeline or a ksql query, which the graph has already."""
    if group.startswith(("connect-", "_confluent-ksql")):
        return True
    return any(group == f"pessoa-{one.name}" for one in found if one.kind in ("pipeline", "query"))


async def _connectors(center: Center) -> list[Flow]:
    found = []
    try:
        answer: Any = await center.services.connect.ask("GET", "/connectors?expand=status")
        for name, about in answer.items():
            used: Any = await center.services.connect.ask("GET", f"/connectors/{quote(name, safe='')}/topics")
            topics = tuple(sorted(used.get(name, {}).get("topics", [])))
            status = about["status"]
            is_source = status.get("type") == "source"
            found.append(Flow("connector", name, () if is_source else topics, topics if is_source else (),
                              status["connector"]["state"]))  # fmt: skip
    except (HttpProblem, KeyError, AttributeError):
        return found
    return found


async def _pipelines(center: Center) -> list[Flow]:
    """Return the pipelines with the topics that they read and write, by their API and by the committed offsets of
    their groups."""
    groups = await center.watch.group_lags()
    try:
        answer: Any = await center.services.pipelines.ask("GET", "/queries")
    except HttpProblem:
        return []
    return pipeline_flows(answer, {name: {topic for topic, _ in at} for name, at in groups.items()})


def pipeline_flows(answer: JsonValue, committed: Mapping[str, Collection[str]]) -> list[Flow]:
    """Return the flows in the pipelines' list of queries; `committed` has the topics of each group."""

    def topics(one: dict[str, JsonValue], key: str) -> set[str]:
        found = one.get(key)
        return {str(name) for name in found} if isinstance(found, list) else set()

    return [
        Flow(
            "pipeline", str(one.get("id")), state=str(one.get("state", "")),
            reads=tuple(sorted(topics(one, "sources") | set(committed.get(str(one.get("group")), ())))),
            writes=tuple(sorted(topics(one, "sinks"))),
        )
        for one in (answer if isinstance(answer, list) else [])
        if isinstance(one, dict)
    ]  # fmt: skip


async def _ksql_queries(center: Center) -> list[Flow]:
    """Return the persistent queries, with the topics of the streams and tables that they name."""
    try:
        found = await read(center)
    except HttpProblem:
        return []
    return [Flow("query", one.id, one.reads, one.writes, one.state) for one in found.queries]


async def _content(visit: Visit) -> Html:
    t, center = visit.t, visit.center
    image = await center.watch.image()
    names = [name for name, info in image.topics.items() if not is_internal(info)]
    found = await flows(center)
    used = {topic for one in found for topic in (*one.reads, *one.writes)}
    graph = lay_out(found, used)
    rates = {}
    ends_of = [one.name for one in graph.nodes if one.kind == "topic" and one.name in image.topics]
    await center.watch.ends(ends_of)
    for name in ends_of:
        rates[name] = center.watch.topic_rate(name)
    unavailable = [
        one.note for one in await center.services.states() if not one.is_up and one.name != "Schema Registry"
    ]
    rows: list[list[Cell]] = [
        [badge(t(one.kind)), one.name, ", ".join(one.reads), ", ".join(one.writes), one.state] for one in found
    ]
    unread = sorted(set(names) - {topic for one in found for topic in one.reads})
    return tag(
        "div",
        card(t("Where data goes"), draw(graph, rates) if graph.edges else tag("p", t(
            "Nothing reads or writes topics that tells of it: no group has committed offsets."), cls="empty"),
            notice(t("Only the first {n} are drawn.", n=len(graph.nodes))) if graph.is_cut else "",
            _ways(visit, found, rates)),
        card(t("Readers and writers"), table([t("Kind"), t("Name"), t("Reads"), t("Writes"), t("State or lag")], rows,
                                             empty=t("There are none.")), cls="desk-only"),
        card(t("Topics that nothing reads"), tag("p", ", ".join(unread[:200]) or "–", cls="dim")),
        *(notice(words) for words in unavailable),
    )  # fmt: skip


def _ways(visit: Visit, found: list[Flow], rates: Mapping[str, float | None]) -> Html:
    """Return the graph as a list for phones: each reader or writer with its input and output topics."""

    def ends(topics: tuple[str, ...]) -> Html:
        return join(
            tag("span", link(one, f"/topics/{quote(one, safe='')}"), " ",
                tag("small", rate_text(rates.get(one)), cls="dim"), cls="end")
            for one in topics
        )  # fmt: skip

    arrow = tag("span", "→", cls="dim")
    ways = [
        tag("div", tag("strong", one.name), " ", badge(visit.t(one.kind)), " ", tag("span", one.state, cls="dim"),
            tag("div", ends(one.reads), arrow, ends(one.writes), cls="query-way"),
            cls="query")
        for one in found
    ]  # fmt: skip
    return tag("div", *ways, cls="phone-only")


def draw(graph: Graph, rates: dict[str, float | None]) -> Html:
    columns = sorted({node.column for node in graph.nodes})
    place = {column: number for number, column in enumerate(columns)}
    free = (_LEAST_WIDTH - len(columns) * _WIDE) / max(1, len(columns) - 1)
    gap = min(_MOST_GAP, max(_GAP_X, round(free)))
    positions = [(place[one.column] * (_WIDE + gap) + 4, one.row * (_HIGH + _GAP_Y) + 4) for one in graph.nodes]
    wide = len(columns) * (_WIDE + gap) - gap + 8
    high = max(y for _, y in positions) + _HIGH + 8
    parts: list[Cell] = []
    for before, after in graph.edges:
        (x1, y1), (x2, y2) = positions[before], positions[after]
        middle = (x1 + _WIDE + x2) / 2
        has_traffic = any(rates.get(graph.nodes[at].name) for at in (before, after) if graph.nodes[at].kind == "topic")
        parts.append(
            Html('<path class="wire{}" d="M{} {} C{} {},{} {},{} {}"/>').format(
                " live" if has_traffic else "", x1 + _WIDE, y1 + _HIGH / 2, middle, y1 + _HIGH / 2, middle,
                y2 + _HIGH / 2, x2, y2 + _HIGH / 2,
            )
        )  # fmt: skip
    for node, (x, y) in zip(graph.nodes, positions, strict=True):
        name = node.name if len(node.name) <= 24 else f"{node.name[:23]}…"
        note = rate_text(rates.get(node.name)) if node.kind == "topic" else f"{node.kind} {node.state}"
        box = Html(
            '<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="9" stroke-width="1.5"/><text x="{}" y="{}">{}'
            '</text><text class="soft" x="{}" y="{}">{}</text>'
        ).format("node-topic" if node.kind == "topic" else "node-other", x, y, _WIDE, _HIGH, x + 12, y + 20, name,
                 x + 12, y + 36, note)  # fmt: skip
        path = _PATHS.get(node.kind)
        href = path + quote(node.name, safe="") if path else _FIXED_PATHS.get(node.kind)
        parts.append(tag("a", box, href=href) if href else box)
    body = Html("").join(str(one) if not isinstance(one, str) else one for one in parts)
    svg = Html('<svg viewBox="0 0 {} {}" style="max-width:{}px" role="group" aria-label="lineage">{}</svg>')
    return tag("div", svg.format(wide, high, wide, body), cls="scene desk-only", tabindex="0")
