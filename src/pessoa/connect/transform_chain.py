"""The transforms of one connector, in order, each with the predicate that it may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.config_values import split_list
from pessoa.connect.data import Record
from pessoa.connect.predicates import Predicate
from pessoa.connect.transforms.transform import Transform
from pessoa.web.settings import settings_below

if TYPE_CHECKING:
    from pessoa.connect.plugins import Plugins


class Step(NamedTuple):
    alias: str
    transform: Transform
    predicate: Predicate | None
    negate: bool


class TransformChain:
    def __init__(self, settings: Mapping[str, str], plugins: Plugins) -> None:
        predicates = {
            alias: plugins.predicate(settings[f"predicates.{alias}.type"])(
                settings_below(settings, f"predicates.{alias}.")
            )
            for alias in split_list(settings.get("predicates", ""))
        }
        self.steps: list[Step] = []
        for alias in split_list(settings.get("transforms", "")):
            own = settings_below(settings, f"transforms.{alias}.")
            transform = plugins.transform(own["type"])(own)
            predicate = predicates[own["predicate"]] if "predicate" in own else None
            self.steps.append(Step(alias, transform, predicate, own.get("negate", "false").lower() == "true"))

    def __repr__(self) -> str:
        return f"<TransformChain {' → '.join(step.alias for step in self.steps) or 'empty'}>"

    def apply(self, record: Record) -> Record | None:
        """Return the record after the last transform; None if one of them dropped it."""
        for step in self.steps:
            if step.predicate is None or step.predicate.test(record) != step.negate:
                changed = step.transform.apply(record)
                if changed is None:
                    return None
                record = changed
        return record

    def close(self) -> None:
        for step in self.steps:
            step.transform.close()
