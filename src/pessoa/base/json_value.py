"""The types of JSON: what a parser returns, and what a body, a schema or a configuration in JSON is made of.

A `JsonValue` is narrowed with isinstance where it is used; a body whose members are known is a TypedDict beside its
reader or writer. A function that only writes JSON takes `object`: `json.dumps` is the judge of what can be written.
"""

from __future__ import annotations

from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]
