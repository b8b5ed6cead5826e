"""The aggregates of a group: states that rows are added to and taken back from, and the row that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.functions import aggregate_states
from pessoa.ksql.functions.aggregate_states import Aggregate, AggregationFailure
from pessoa.ksql.functions.aggregates import ResolvedAggregate
from pessoa.ksql.operators.flow_events import Place
from pessoa.ksql.operators.query_settings import COLLECT_LIST_LIMIT, COLLECT_SET_LIMIT, QuerySettings
from pessoa.ksql.operators.records import QueryFailure
from pessoa.ksql.operators.row_operators import row_functions
from pessoa.ksql.operators.row_packing import Keys, Row, has_decimal, plain

States: TypeAlias = "list[object]"


class GroupAggregates:
    """All aggregate calls of a query, compiled."""

    def __init__(
        self, key_names: Sequence[str], calls: Sequence[tuple[str, Typed]], settings: QuerySettings, place: Place
    ) -> None:
        self._key_names = tuple(key_names)
        self._names = tuple(name for name, _ in calls)
        self._aggregates: list[Aggregate] = []
        self._arguments = []
        self._plain = False
        for _, typed in calls:
            resolved = typed.call
            assert isinstance(resolved, ResolvedAggregate)
            self._aggregates.append(_with_limit(resolved, settings))
            self._arguments.append(row_functions(typed.children, settings.evaluation_context, place))
            self._plain = self._plain or any(has_decimal(kind) for kind in resolved.parameters)

    def initial(self) -> States:
        return [one.initial() for one in self._aggregates]

    def add(self, states: States, row: Row) -> States:
        try:
            return [
                one.add(state, tuple(argument(row) for argument in arguments))
                for one, state, arguments in zip(self._aggregates, states, self._arguments, strict=True)
            ]
        except AggregationFailure as failure:
            raise QueryFailure(str(failure)) from failure

    def undo(self, states: States, row: Row) -> States:
        """Return the states without the row's contribution; every aggregate of a table's query supports that."""
        found: States = []
        try:
            for one, state, arguments in zip(self._aggregates, states, self._arguments, strict=True):
                assert one.undo is not None
                found.append(one.undo(state, tuple(argument(row) for argument in arguments)))
        except AggregationFailure as failure:
            raise QueryFailure(str(failure)) from failure
        return found

    def merge(self, first: States, second: States) -> States:
        pairs = zip(self._aggregates, first, second, strict=True)
        try:
            return [one.merge(state, other) for one, state, other in pairs]
        except AggregationFailure as failure:
            raise QueryFailure(str(failure)) from failure

    def row(self, key: Keys, states: States) -> Row:
        """Return the group's row: its key and the results of the aggregates."""
        row: Row = dict(zip(self._key_names, key, strict=True))
        for name, one, state in zip(self._names, self._aggregates, states, strict=True):
            row[name] = one.result(state)
        return row

    def to_list(self, states: States) -> list[object]:
        """Return the states in a form that `pack` accepts."""
        return cast("list[object]", plain(states)) if self._plain else states


def _with_limit(resolved: ResolvedAggregate, settings: QuerySettings) -> Aggregate:
    """Return the aggregate; for lists and sets, with the limits of the server's settings."""
    if resolved.name == "COLLECT_LIST" and settings.number(COLLECT_LIST_LIMIT) is not None:
        return aggregate_states.listing(settings.number(COLLECT_LIST_LIMIT))
    if resolved.name == "COLLECT_SET" and settings.number(COLLECT_SET_LIMIT) is not None:
        return aggregate_states.distinct_listing(settings.number(COLLECT_SET_LIMIT))
    return resolved.aggregate
