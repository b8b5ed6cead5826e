"""Spark's errors about a plan, explained in terms of the plan.

Spark says no in terms of its own operators, with the whole plan attached and the names of our helper columns within.
The author of `filter("valr > 10")` wants to read: the filter `valr > 10`: there is no column valr; there are produto,
valor. So when Spark refuses a whole plan, its nodes are compiled one by one from the sources up, and the first that
fails alone is the culprit.

`explain_refusal(error)` is also for errors that come later, from a query that runs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pessoa.pipelines.explain import describe
from pessoa.pipelines.plan import Node, PlanRefused, every, inputs
from pessoa.pipelines.shapes import shape

if TYPE_CHECKING:
    from pessoa.pipelines.compiler import Compiler

_CONDITION = re.compile(r"\[([A-Z_0-9]+(?:\.[A-Z_0-9]+)?)\]\s*")
_QUOTED = re.compile(r"`([^`]+)`")
_OUR_SENTENCE = re.compile(r"a bad record stopped the pipeline: [^\n]*")


def _refusals() -> tuple[type[Exception], ...]:
    """Return the exception classes that are errors of the plan; others (Spark has ended) are not explained."""
    from pyspark.errors import (
        AnalysisException,
        IllegalArgumentException,
        PySparkTypeError,
        PySparkValueError,
        UnsupportedOperationException,
    )

    return (
        AnalysisException,
        IllegalArgumentException,
        PySparkTypeError,
        PySparkValueError,
        UnsupportedOperationException,
    )


@contextmanager
def in_the_plans_words(plan: Node, compiler: Compiler) -> Iterator[None]:
    # It writes every refusal to standard error, pages long.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        yield
    except _refusals() as refused:
        culprit = _failing_node(plan, compiler)
        raise PlanRefused(f"{describe(culprit)}: {explain_refusal(refused, culprit)}") from refused


def _failing_node(plan: Node, compiler: Compiler) -> Node:
    for node in every(plan):
        try:
            compiler.flow(node).frame.schema  # noqa: B018
        except _refusals():
            return node
    return plan


def explain_refusal(error: Exception, node: Node | None = None) -> str:
    """Return one sentence for the long error message of Spark."""
    text = str(error)
    match = _CONDITION.search(text)
    condition = match[1] if match else ""
    if "USER_RAISED_EXCEPTION]" in text and (ours := _OUR_SENTENCE.search(text)):
        return ours[0].partition(" SQLSTATE")[0].rstrip(". ")
    said = text[match.end() :] if match else text
    if condition.startswith("UNRESOLVED_COLUMN"):
        column = _QUOTED.search(said)
        return f"there is no column {column[1] if column else ''}{_there_are(node)}"
    if condition == "UNRESOLVED_ROUTINE":
        routine = _QUOTED.search(said)
        return f"there is no function {routine[1] if routine else ''} in Spark SQL"
    if condition == "PARSE_SYNTAX_ERROR":
        return "this is no Spark SQL expression: " + said.partition(" SQLSTATE")[0].strip().partition("\n")[0]
    first = said.partition(" SQLSTATE")[0].strip().partition("\n")[0].strip()
    return first or type(error).__name__


def _there_are(node: Node | None) -> str:
    if node is None:
        return ""
    columns = [name for each in (inputs(node) or (node,)) for name in shape(each).columns]
    return f"; there are {', '.join(columns)}"
