"""Waiting for transaction markers, which are written after EndTxn was answered."""

from __future__ import annotations

import asyncio

from pessoa.coordinator.transactions.marker_writer import MarkerWriter


async def wait_until_idle(writer: MarkerWriter) -> None:
    """Wait until no transaction has markers to be written, also none that was ended while this waits."""
    while writer._tasks:
        await asyncio.wait(tuple(writer._tasks))
