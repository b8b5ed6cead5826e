"""Which tables and columns a change-data source captures: lists of regular expressions, as Debezium has them. Pure.

table.include.list=public\\.orders, public\\.item.*      the whole of <schema>.<table>, whatever the case
column.exclude.list=public\\.orders\\.secret             the whole of <schema>.<table>.<column>
"""

from __future__ import annotations

import re

from pessoa.base.config_values import Value
from pessoa.connect.definition import LIST, MEDIUM, Config, Key, Settings, key
from pessoa.connect.java_regex import JavaPattern, pattern_complaint

KINDS = {"schema": "<schema>", "table": "<schema>.<table>", "column": "<schema>.<table>.<column>"}


def _complaint(value: Value, settings: Settings) -> str | None:
    assert isinstance(value, tuple)
    for each in value:
        complaint = pattern_complaint(each, settings)
        if complaint is not None:
            return complaint
    return None


def filter_keys(group: str) -> list[Key]:
    rows = []
    for kind, what in KINDS.items():
        rows.append(key(f"{kind}.include.list", LIST, (), _complaint, MEDIUM,
                        f"Regular expressions for {what}; only what matches is captured.", group=group))  # fmt: skip
        rows.append(key(f"{kind}.exclude.list", LIST, (), _complaint, MEDIUM,
                        f"Regular expressions for {what}; what matches is not captured.", group=group))  # fmt: skip
    return rows


class TableFilter:
    def __init__(self, config: Config) -> None:
        self._patterns = {
            name: [re.compile(JavaPattern(each).compiled.pattern, re.IGNORECASE) for each in config.entries(name)]
            for kind in KINDS
            for name in (f"{kind}.include.list", f"{kind}.exclude.list")
        }

    def __repr__(self) -> str:
        return f"<TableFilter {self._patterns}>"

    def _takes(self, kind: str, name: str) -> bool:
        included, excluded = self._patterns[f"{kind}.include.list"], self._patterns[f"{kind}.exclude.list"]
        if included:
            return any(each.fullmatch(name) for each in included)
        return not any(each.fullmatch(name) for each in excluded)

    def takes_table(self, schema: str, table: str) -> bool:
        return self._takes("schema", schema) and self._takes("table", f"{schema}.{table}")

    def takes_column(self, schema: str, table: str, column: str) -> bool:
        return self._takes("column", f"{schema}.{table}.{column}")
