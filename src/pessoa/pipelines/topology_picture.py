"""Plans as a picture: Mermaid's flowchart text, which GitHub, notebooks and the control centre draw.

    flowchart TD
      t1[("vendas")]
      subgraph q1["vendas-app-caras · real-time"]
        n1["filter valor > 10"]
      end
      t1 --> n1
      n1 --> t2[("caras")]

Topics are cylinders, steps boxes, steps with state boxes with double sides; a box around steps is one query. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pessoa.pipelines.explain import describe
from pessoa.pipelines.plan import Errors, Node, PythonSink, PythonSource, Sink, Source, inputs
from pessoa.pipelines.stages import has_state


class DrawnQuery(NamedTuple):
    title: str
    plan: Node
    # A sink's topic that nothing is written to: its rows end in a function.
    is_effect: bool = False


def mermaid(queries: Iterable[DrawnQuery]) -> str:
    picture = _Picture()
    for query in queries:
        picture.draw(query)
    return picture.text()


class _Picture:
    def __init__(self) -> None:
        self._topics: dict[str, str] = {}
        self._groups: list[list[str]] = []
        self._arrows: list[str] = []
        self._count = 0

    def text(self) -> str:
        topics = [f'  {name}[("{_escape(topic)}")]' for topic, name in self._topics.items()]
        groups = [line for group in self._groups for line in group]
        return "\n".join(["flowchart TD", *topics, *groups, *(f"  {arrow}" for arrow in self._arrows)])

    def draw(self, query: DrawnQuery) -> None:
        group = [f'  subgraph q{len(self._groups) + 1}["{_escape(query.title)}"]']
        root = query.plan
        last = self._node(root.input if isinstance(root, Sink) else root, group)
        if isinstance(root, Sink) and not query.is_effect:
            if last in self._topics.values():
                # Nothing stands between the two topics.
                last = self._box(group, "[", "copy", "]", [last])
            self._arrow(last, self._topic(root.topic))
        self._groups.append([*group, "  end"])

    def _node(self, node: Node, group: list[str]) -> str:
        if isinstance(node, Source):
            self._letters(self._topic(node.topic), node)
            return self._topic(node.topic)
        below = [self._node(each, group) for each in inputs(node)]
        sides = ("[[", "]]") if has_state(node) else ("([", "])") if _is_python(node) else ("[", "]")
        made = self._box(group, sides[0], describe(node), sides[1], below)
        self._letters(made, node)
        return made

    def _box(self, group: list[str], left: str, words: str, right: str, below: list[str]) -> str:
        self._count += 1
        name = f"n{self._count}"
        group.append(f'    {name}{left}"{_escape(words)}"{right}')
        for each in below:
            self._arrow(each, name)
        return name

    def _letters(self, name: str, node: Node) -> None:
        errors = getattr(node, "errors", Errors())
        if errors.then == "dead-letter" and errors.topic:
            self._arrow(name, self._topic(errors.topic), "-. bad records .->")

    def _topic(self, topic: str) -> str:
        return self._topics.setdefault(topic, f"t{len(self._topics) + 1}")

    def _arrow(self, one: str, other: str, line: str = "-->") -> None:
        if (arrow := f"{one} {line} {other}") not in self._arrows:
            self._arrows.append(arrow)


def _is_python(node: Node) -> bool:
    return isinstance(node, PythonSource | PythonSink)


def _escape(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
