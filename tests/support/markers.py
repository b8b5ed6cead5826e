"""Waiting for the markers of transactions, which are written behind the responses."""

from __future__ import annotations

import asyncio

from pessoa.coordinator.transactions.marker_writer import MarkerWriter


async def wait_until_idle(writer: MarkerWriter) -> None:
    """Wait until no transaction has markers to be written, those included that begin meanwhile."""
    while writer._tasks:
        await asyncio.wait(tuple(writer._tasks))
