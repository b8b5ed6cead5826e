"""Pass: joins, from left to right. What may be joined with what, on which columns, and what the key of the result is.

| left | right | form | WITHIN | kinds | ON |
|---|---|---|---|---|---|
| stream | stream | stream-stream | needed | all | anything, rows are repartitioned |
| stream | table | stream-table | refused | INNER, LEFT | the table's primary key |
| table | table | table-table | refused | all | both primary keys |
| table | table | foreign key | refused | INNER, LEFT | anything of the left, the right's primary key |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pessoa.ksql.analysis.expression_scopes import ColumnScope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.format_rules import has_map
from pessoa.ksql.analysis.logical_plan import JoinForm, JoinStep
from pessoa.ksql.analysis.query_draft import BoundSource, KeyPart, QueryDraft
from pessoa.ksql.analysis.source_binding import read_step
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.expression_nodes import Column, Comparison, Expression, Logical, walk
from pessoa.ksql.syntax.expression_rewrites import rewrite
from pessoa.ksql.syntax.expression_text import expression_text
from pessoa.ksql.syntax.query_nodes import Join, JoinKind, WindowKind
from pessoa.ksql.syntax.statement_nodes import SourceKind


@dataclass(frozen=True)
class _Side:
    """One input of a join: its kind, its key columns, its partition count (None if repartitioned)."""

    kind: SourceKind
    # Expressions of which each is the whole key; none if the key has several columns.
    key: tuple[Expression, ...]
    # All columns of the key, which a foreign-key join keeps.
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    partitions: int | None
    key_format: str


def plan_joins(draft: QueryDraft) -> QueryDraft:
    if not draft.query.joins:
        keys = [KeyPart((Column(one.name),), "key column", (one.name,)) for one in draft.left.source.key]
        return replace(draft, key=tuple(keys))
    left = draft.left
    columns = tuple(left.row_name(column.name) for column in left.source.key)
    side = _Side(
        left.source.kind, _whole_key(left), columns, (left.label,), left.source.partitions, left.source.key_format
    )
    parts: tuple[KeyPart, ...] = ()
    for join, condition, right in zip(draft.query.joins, draft.conditions, draft.bound[1:], strict=True):
        draft, side, parts = _plan_join(draft, side, join, condition, right)
    has_synthetic = draft.synthetic_key in draft.columns
    items = tuple(item for item in draft.items if has_synthetic or not item.synthetic)
    return replace(draft, kind=side.kind, key=parts, items=items)


def _whole_key(bound: BoundSource) -> tuple[Expression, ...]:
    """Return the column that is the whole key; a key of several columns cannot be joined on."""
    key = bound.source.key
    return (Column(bound.row_name(key[0].name)),) if len(key) == 1 else ()


def _plan_join(
    draft: QueryDraft, side: _Side, join: Join, condition: Expression, right: BoundSource
) -> tuple[QueryDraft, _Side, tuple[KeyPart, ...]]:
    left_key, right_key = _sides(draft, join, condition, side.labels, right)
    form = _form(side, join, right, left_key, right_key, draft)
    _check_windows(draft, join, right, left_key, right_key, side)
    moves_left, moves_right = _repartitioned_sides(form, side, right, left_key, right_key)
    if form is not JoinForm.FOREIGN_KEY and not moves_left and not moves_right:
        _check_partitions(side, right, draft)
    key, synthetic = _result_key(form, join.kind, side, left_key, right_key, draft.synthetic_key)
    names = tuple(one.name for one in key if isinstance(one, Column))
    if form is JoinForm.FOREIGN_KEY:
        names = side.columns
    step = JoinStep(
        draft.below,
        read_step(right),
        join.kind,
        form,
        left_key,
        right_key,
        names,
        synthetic,
        before_ms=join.within.before.ms if join.within else None,
        after_ms=join.within.after.ms if join.within else None,
        grace_ms=join.within.grace.ms if join.within and join.within.grace else None,
        repartition_left=moves_left,
        repartition_right=moves_right,
    )
    columns = {**draft.columns, draft.synthetic_key: left_key.type} if synthetic else draft.columns
    kind = SourceKind.STREAM if form in (JoinForm.STREAM_STREAM, JoinForm.STREAM_TABLE) else SourceKind.TABLE
    partitions = None if moves_left else side.partitions
    after = _Side(kind, key, names, (*side.labels, right.label), partitions, side.key_format)
    return replace(draft, step=step, columns=columns), after, _key_parts(form, names, draft)


def _repartitioned_sides(
    form: JoinForm, side: _Side, right: BoundSource, left_key: Typed, right_key: Typed
) -> tuple[bool, bool]:
    """Return which sides are repartitioned: streams with another key or another key format."""
    other_format = side.key_format != right.source.key_format
    left = form in (JoinForm.STREAM_STREAM, JoinForm.STREAM_TABLE) and not _is_key(left_key, side.key)
    if form is JoinForm.STREAM_TABLE:
        return left or other_format, False
    right_moves = form is JoinForm.STREAM_STREAM and (not _is_key(right_key, _whole_key(right)) or other_format)
    return left, right_moves


def _sides(
    draft: QueryDraft, join: Join, condition: Expression, labels: tuple[str, ...], right: BoundSource
) -> tuple[Typed, Typed]:
    """Return the two sides of ON: what was joined so far, and the new source."""
    if isinstance(condition, Logical):
        raise SemanticFailure(
            f"JOINs on multiple conditions are not supported: {expression_text(join.condition)}", condition.at
        )
    if not isinstance(condition, Comparison) or condition.operator != "=":
        raise SemanticFailure(
            f"Unsupported join expression: {expression_text(join.condition)}. Only equality is supported", condition.at
        )
    owners = draft.row_columns()
    first, second = _owners(condition.left, owners), _owners(condition.right, owners)
    if len(first) != 1 or len(second) != 1 or first == second:
        raise SemanticFailure(
            f"Invalid comparison expression '{expression_text(join.condition)}' in join. Each side of the join "
            "comparison must contain references from exactly one source.",
            condition.at,
        )
    known = {*labels, right.label}
    if not {*first, *second} <= known or right.label not in {*first, *second}:
        raise SemanticFailure(
            f"ON must compare {right.label} with one of {', '.join(labels)}: {expression_text(join.condition)}",
            condition.at,
        )
    scope = ColumnScope(draft.columns, "JOIN")
    left_node, right_node = condition.left, condition.right
    if first == {right.label}:
        left_node, right_node = right_node, left_node
    left, new = type_expression(left_node, scope), type_expression(right_node, scope)
    _check_types(left, new, join, draft)
    return left, new


def _owners(node: Expression, owners: dict[str, str]) -> set[str]:
    return {owners[one.name] for one in walk(node) if isinstance(one, Column) and one.name in owners}


def _check_types(left: Typed, right: Typed, join: Join, draft: QueryDraft) -> None:
    if left.type != right.type:
        raise SemanticFailure(
            f"Invalid join condition: types don't match. Got {_written_text(left, draft)}{{{left.type}}} = "
            f"{_written_text(right, draft)}{{{right.type}}}.",
            join.at,
            hint="Use CAST to make both sides one type.",
        )
    if has_map(left.type):
        raise SemanticFailure("Invalid join condition: a key cannot hold a MAP", join.at)


def _form(
    side: _Side, join: Join, right: BoundSource, left_key: Typed, right_key: Typed, draft: QueryDraft
) -> JoinForm:
    stream, table = SourceKind.STREAM, SourceKind.TABLE
    match side.kind, right.source.kind:
        case (SourceKind.STREAM, SourceKind.STREAM):
            if join.within is None:
                raise SemanticFailure(
                    "Stream-stream joins must have a WITHIN clause specified. None was provided.",
                    join.at,
                    hint="For example: … JOIN s WITHIN 1 HOUR ON …",
                )
            return JoinForm.STREAM_STREAM
        case (SourceKind.TABLE, SourceKind.STREAM):
            raise SemanticFailure(
                "Invalid join order: table-stream joins are not supported; only stream-table joins.",
                join.at,
                hint="Put the stream first.",
            )
    word = "Stream-Table" if side.kind is stream else "Table-Table"
    if join.within is not None:
        raise SemanticFailure(
            f"A window definition was provided for a {word} join. These joins are not windowed. Please drop the window "
            "definition (i.e. the WITHIN clause) and try to execute your join again.",
            join.within.at,
        )
    got = f"Got {_written_text(left_key, draft)} = {_written_text(right_key, draft)}."
    if len(right.source.key) > 1:
        raise SemanticFailure(
            f"Invalid join condition: joins on the multi-column key of {right.source.name} are not supported. {got}",
            join.at,
        )
    if not _is_key(right_key, _whole_key(right)):
        rule = (
            "stream-table joins require to join on the table's primary key"
            if side.kind is stream
            else "table-table joins require to join on the primary key of the right input table"
        )
        raise SemanticFailure(f"Invalid join condition: {rule}. {got}", join.at)
    if side.kind is stream:
        _check_kind(join, "stream-table", (JoinKind.INNER, JoinKind.LEFT))
        return JoinForm.STREAM_TABLE
    assert side.kind is table
    if _is_key(left_key, side.key):
        return JoinForm.TABLE_TABLE
    _check_kind(join, "foreign-key table-table", (JoinKind.INNER, JoinKind.LEFT))
    return JoinForm.FOREIGN_KEY


def _check_kind(join: Join, form: str, allowed: Sequence[JoinKind]) -> None:
    if join.kind not in allowed:
        words = " and ".join(one.value for one in allowed)
        raise SemanticFailure(f"{join.kind.value} joins are not supported for {form} joins; {words} are.", join.at)


def _is_key(key: Typed, known: tuple[Expression, ...]) -> bool:
    """Return whether the expression is the whole key, or one that a join made equal to it."""
    return key.node in known


def _check_windows(
    draft: QueryDraft, join: Join, right: BoundSource, left_key: Typed, right_key: Typed, side: _Side
) -> None:
    left_window, right_window = draft.left.source.window, right.source.window
    if left_window is None and right_window is None:
        return
    if left_window is None or right_window is None:
        raise SemanticFailure("Can not join windowed source to non-windowed source.", join.at)
    if (left_window.kind is WindowKind.SESSION) != (right_window.kind is WindowKind.SESSION):
        raise SemanticFailure("Incompatible windowed sources: a session window and a time window", join.at)
    if not (_is_key(left_key, side.key) and _is_key(right_key, _whole_key(right))):
        raise SemanticFailure("Implicit repartitioning of windowed sources is not supported.", join.at)


def _check_partitions(side: _Side, right: BoundSource, draft: QueryDraft) -> None:
    if side.partitions is None or right.source.partitions is None or side.partitions == right.source.partitions:
        return
    left_name, right_name = draft.left.source.name, right.source.name
    raise SemanticFailure(
        f"Can't join `{left_name}` with `{right_name}` since the number of partitions don't match. `{left_name}` "
        f"partitions = {side.partitions}; `{right_name}` partitions = {right.source.partitions}. Please repartition "
        "either one so that the number of partitions match."
    )


def _result_key(
    form: JoinForm, kind: JoinKind, side: _Side, left_key: Typed, right_key: Typed, synthetic_name: str
) -> tuple[tuple[Expression, ...], bool]:
    """Return the expressions that the key equals, and whether it is synthetic: no column is among them."""
    if form is JoinForm.FOREIGN_KEY:
        return side.key, False
    rowkey = Column(synthetic_name)
    # What earlier joins made equal stays a choice.
    chain = side.key if _is_key(left_key, side.key) else ()
    found = tuple(dict.fromkeys([*chain, left_key.node, right_key.node]))
    if kind is JoinKind.FULL or not any(isinstance(one, Column) for one in found):
        return (rowkey,), True
    return found, rowkey in found


def _source_columns(draft: QueryDraft) -> dict[str, Column]:
    """Return the columns as people write them, by the names that rows have for them."""
    return {
        one.row_name(column.name): Column(column.name, one.label)
        for one in draft.bound
        for column in one.source.columns()
    }


def _written_text(typed: Typed, draft: QueryDraft) -> str:
    """Return an expression with the columns as people write them."""
    columns = _source_columns(draft)
    return expression_text(
        rewrite(typed.node, lambda node, _: columns.get(node.name) if isinstance(node, Column) else None)
    )


def _key_parts(form: JoinForm, names: tuple[str, ...], draft: QueryDraft) -> tuple[KeyPart, ...]:
    shown = {name: expression_text(column) for name, column in _source_columns(draft).items()}
    if form is JoinForm.FOREIGN_KEY:
        return tuple(KeyPart((Column(name),), "key column", (shown.get(name, name),)) for name in names)
    word = "join expression" if len(names) == 1 else "join expressions"
    choices = tuple(Column(name) for name in names)
    return (KeyPart(choices, word, tuple(shown.get(name, name) for name in names)),)
