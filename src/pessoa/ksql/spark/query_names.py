"""Names that a persistent query has outside of ksql: with the engine, its consumer group, its internal topics.

engine's query     CSAS_X_1; of a stage before the last, CSAS_X_1-1
consumer group     _confluent-ksql-default_query_CSAS_X_1
internal topic     _confluent-ksql-default_query_CSAS_X_1-Aggregate-GroupBy-repartition
"""

from __future__ import annotations

import hashlib
import re

_LONGEST = 80
_ODD = re.compile(r"[^A-Za-z0-9._-]")
_REPARTITION = "-repartition"


def engine_name(query_id: str, stage: int, stage_count: int) -> str:
    """Return the name of a stage's query; the last stage has the name of the whole query."""
    name = _ODD.sub("-", query_id)
    if name != query_id or len(name) > _LONGEST or not name[0].isalnum():
        # Two ids that differ in odd characters alone stay two.
        name = f"q{name[:_LONGEST]}-{hashlib.sha256(query_id.encode()).hexdigest()[:8]}"
    return name if stage == stage_count - 1 else f"{name}-{stage + 1}"


def application_id(service_id: str, query_id: str) -> str:
    return f"_confluent-ksql-{service_id}query_{_ODD.sub('-', query_id)}"


def internal_topic(service_id: str, query_id: str, suffix: str) -> str:
    ending = "" if suffix.endswith(_REPARTITION) else _REPARTITION
    return f"{application_id(service_id, query_id)}-{suffix}{ending}"
