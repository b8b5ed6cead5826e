"""A foreign-key join: its three steps, with records that overtake each other, compared with plain dicts."""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pessoa.pipelines.plan import ForeignKeyJoin, Format, Sink, Source, every
from pessoa.pipelines.row_process import InputRow, RowProcessor, Session
from pessoa.pipelines.shapes import shape
from pessoa.pipelines.stages import is_cut, stages
from pessoa.pipelines.table_foreign_keys import NEWEST, RESPOND_INNER, RESPOND_LEFT, SUBSCRIBE, expand

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Step:
    """A step of the join, with the state of all its keys."""

    def __init__(self, processor: RowProcessor) -> None:
        self._processor = processor
        self._states: dict[object, str | None] = {}

    def take(self, key: object, value: dict[str, Any] | None) -> list[dict[str, Any]]:
        session = Session(self._processor, None, False, self._states.get(key), None)
        found = list(session.take(key, [InputRow(NOW, 0, value)]))
        assert [output.error for output in found if output.error] == []
        self._states[key] = session.state
        return [json.loads(output.payload or "")["value"] for output in found]


LEFTS = st.tuples(
    st.just("left"), st.integers(0, 3), st.none() | st.tuples(st.none() | st.sampled_from("ab"), st.integers())
)
RIGHTS = st.tuples(st.just("right"), st.sampled_from("ab"), st.none() | st.integers())


@given(st.lists(LEFTS | RIGHTS, max_size=25), st.booleans(), st.randoms(use_true_random=False))
def test_a_foreign_key_join_equals_the_join_of_the_latest_rows_in_any_interleaving(
    changes: list[Any], is_left: bool, chance: Any
) -> None:
    subscribe, respond, newest = Step(SUBSCRIBE), Step(RESPOND_LEFT if is_left else RESPOND_INNER), Step(NEWEST)
    lefts: dict[int, Any] = {}
    rights: dict[str, Any] = {}
    # What is on its way to a foreign key, and from it: in order on each way, in any order between them.
    to_foreign: dict[str, list[Any]] = defaultdict(list)
    to_own: dict[str, list[Any]] = defaultdict(list)
    result: dict[Any, Any] = {}

    def move(ways: dict[str, list[Any]]) -> tuple[str, Any] | None:
        waiting = [name for name, queue in ways.items() if queue]
        name = chance.choice(waiting) if waiting else None
        return None if name is None else (name, ways[name].pop(0))

    def step() -> bool:
        if chance.random() < 0.5 and (moved := move(to_foreign)):
            to_own[moved[0]] += respond.take(*moved)
            return True
        if moved := move(to_own):
            response = moved[1]
            for row in newest.take(response["own"], response):
                result[response["own"]] = None if row["ended"] else (row["left"], row["right"])
            return True
        return bool(any(to_foreign.values()))

    for side, key, value in changes:
        if side == "right":
            rights[key] = value
            to_foreign[key].append(None if value is None else {"kind": "right", "payload": value})
        else:
            lefts[key] = value
            given_value = None if value is None else {"foreign": value[0], "payload": value[1]}
            for told in subscribe.take(key, given_value):
                to_foreign[told["foreign"]].append(told)
        if chance.random() < 0.5:
            step()
    while step():
        pass
    expected = {}
    for key, value in lefts.items():
        if value is not None and value[0] is not None and (is_left or rights.get(value[0]) is not None):
            expected[key] = (value[1], rights.get(value[0]))
    assert {key: row for key, row in result.items() if row is not None} == expected


def test_join_by_a_foreign_key_becomes_three_queries_with_the_columns_of_both() -> None:
    orders = Source("pedidos", value=Format("json", "cliente STRING, valor DOUBLE"), is_table=True)
    clients = Source("clientes", value=Format("json", "nome STRING"), is_table=True)
    join = ForeignKeyJoin(orders, clients, "cliente")
    types = {"key": "STRING", "cliente": "STRING", "valor": "DOUBLE", "nome": "STRING"}
    assert shape(expand(join, types, types)) == shape(join)
    plan = Sink(join, "saida")
    assert is_cut(plan)
    found = stages(plan, "app-saida", lambda node: dict.fromkeys(shape(node).columns, "STRING"))
    assert [stage.topic for stage in found] == ["app-saida-1-repartition", "app-saida-2-repartition", "saida"]
    assert not any(isinstance(node, ForeignKeyJoin) for stage in found for node in every(stage.plan))
