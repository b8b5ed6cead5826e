"""Where data comes from and goes to: topics joined by what reads and writes them, laid out in columns.

    connector (source) → topic → query → topic → connector (sink), group

Edges come from metadata that services already have: a connector's type and topics, a query's sources and sinks, a
group's committed offsets. The groups of connectors and queries stand for them already and are left out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MAX_NODES = 120


class Flow(NamedTuple):
    """A node of the graph that is not a topic, with the topics that it reads and writes."""

    kind: str  # connector, query, pipeline, group
    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    state: str = ""


class Node(NamedTuple):
    kind: str
    name: str
    state: str
    column: int
    row: int


class Graph(NamedTuple):
    nodes: list[Node]
    # Pairs of indexes into nodes.
    edges: list[tuple[int, int]]
    is_cut: bool = False


def lay_out(flows: Iterable[Flow], topics: Iterable[str] = ()) -> Graph:
    """Return the graph of the flows, of every topic that a flow names, and of `topics`; the column of a node is the
    length of the longest path to it."""
    flows = sorted(flows)
    names: dict[tuple[str, str], str] = {}
    edges: list[tuple[tuple[str, str], tuple[str, str]]] = []
    for flow in flows:
        here = (flow.kind, flow.name)
        names[here] = flow.state
        for topic in flow.reads:
            names.setdefault(("topic", topic), "")
            edges.append((("topic", topic), here))
        for topic in flow.writes:
            names.setdefault(("topic", topic), "")
            edges.append((here, ("topic", topic)))
    for topic in topics:
        names.setdefault(("topic", topic), "")
    kept = list(names)[:MAX_NODES]
    columns = _columns(kept, edges)
    heights: dict[int, int] = {}
    nodes = []
    for key in sorted(kept, key=lambda key: (columns[key], key[0] != "topic", key[1])):
        column = columns[key]
        nodes.append(Node(*key, names[key], column, heights.get(column, 0)))
        heights[column] = heights.get(column, 0) + 1
    index = {(node.kind, node.name): number for number, node in enumerate(nodes)}
    found = [(index[a], index[b]) for a, b in dict.fromkeys(edges) if a in index and b in index]
    return Graph(nodes, found, len(names) > len(kept))


def _columns(
    keys: list[tuple[str, str]], edges: list[tuple[tuple[str, str], tuple[str, str]]]
) -> dict[tuple[str, str], int]:
    columns = dict.fromkeys(keys, 0)
    # A cycle would push its nodes for ever; as many rounds as there are nodes are enough without one.
    for _ in range(min(len(keys), 12)):
        changed = False
        for before, after in edges:
            if before in columns and after in columns and columns[after] <= columns[before] and columns[before] < 10:
                columns[after] = columns[before] + 1
                changed = True
        if not changed:
            break
    # Topics stand in even columns, whatever reads or writes them between.
    return {key: (column + column % 2 if key[0] == "topic" else column | 1) for key, column in columns.items()}
