"""The operators of a stage as a tree: inputs are its leaves, and what a task binds it to stands at its root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pessoa.ksql.operators.flow_events import Emit, TaskContext
from pessoa.ksql.operators.row_operators import Operator

# From the task and what comes behind, to what takes the left side's events and the right side's.
JoinBinding: TypeAlias = Callable[[TaskContext, Emit], tuple[Emit, Emit]]


@dataclass(frozen=True)
class InputNode:
    index: int

    def bind(self, context: TaskContext, emit: Emit) -> dict[int, Emit]:
        """Return the functions that take the events of each input, by its index."""
        return {self.index: emit}


@dataclass(frozen=True)
class OperatorNode:
    below: StageNode
    operator: Operator

    def bind(self, context: TaskContext, emit: Emit) -> dict[int, Emit]:
        return self.below.bind(context, self.operator(context, emit))


@dataclass(frozen=True)
class JoinNode:
    left: StageNode
    right: StageNode
    binding: JoinBinding

    def bind(self, context: TaskContext, emit: Emit) -> dict[int, Emit]:
        left, right = self.binding(context, emit)
        return {**self.left.bind(context, left), **self.right.bind(context, right)}


StageNode: TypeAlias = InputNode | OperatorNode | JoinNode
