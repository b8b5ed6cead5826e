"""Which topics a plan writes: what the lineage of the control centre draws. Pure.

A topic that rows go through in the middle of a plan is one of them where the user has named it (`Through`), and so are
topics for dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator

from pessoa.pipelines.plan import Errors, Node, Sink, Through, inputs


def topics_written(plan: Node) -> tuple[str, ...]:
    found = {one.topic for one in _nodes(plan) if isinstance(one, Sink | Through)}
    errors = (getattr(one, "errors", None) for one in _nodes(plan))
    found |= {one.topic for one in errors if isinstance(one, Errors)}
    return tuple(sorted(found - {""}))


def _nodes(plan: Node) -> Iterator[Node]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += inputs(node)
