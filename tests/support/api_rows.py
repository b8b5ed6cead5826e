"""Questions about rows of the API table (`broker/apis`) that only tests ask."""

from __future__ import annotations

from typing import Any

from pessoa.broker.api_row import ApiRow


def is_decided_by_controller(row: ApiRow[Any]) -> bool:
    return row._decide is not None


def is_refusable(row: ApiRow[Any]) -> bool:
    return row._refuse is not None
