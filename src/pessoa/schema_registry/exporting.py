"""Exporting: the leader copies what exporters take to the registries that they name.

A round compares what is registered here with what has been copied since the exporter was started, and copies the
difference: new versions in the order of their ids, so that what is referred to comes first; then soft deletions, then
those for good. In the destination ids and versions are those of here, which is why its context is put into the mode
IMPORT (with contextType NONE the destination's operator does that). What has been copied is remembered in memory: a
new leader copies everything once more, which changes nothing there.

A round that fails is tried again; the status says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextlib import aclosing
from urllib.parse import quote

import msgspec

from pessoa.base.json_value import JsonObject
from pessoa.client.registry_client import AsyncRegistryClient, RegistryFailed, RegistryRefused, do
from pessoa.client.topic_creation import TopicUnavailable
from pessoa.schema_registry.exporters import (
    NONE,
    RUNNING,
    STARTING,
    Exporter,
    Status,
    all_exporters,
    decide_status,
    status_of,
)
from pessoa.schema_registry.model import as_json
from pessoa.schema_registry.registry import NotLeader, Registry
from pessoa.schema_registry.registry_records import SchemaKey
from pessoa.schema_registry.state import Entry, State, qualify
from pessoa.serde.subjects import parse_subject
from pessoa.web.problems import HttpProblem

log = logging.getLogger("pessoa.schema_registry")

_RETRY_S = 5.0


class Exporting:
    def __init__(self, registry: Registry, cluster_id: str) -> None:
        self._registry = registry
        self._cluster_id = cluster_id
        self._task: asyncio.Task[None] | None = None
        # exporter, as it was then → version → whether it was deleted when it was copied
        self._copied: dict[bytes, dict[SchemaKey, bool]] = {}

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(_tell_of_mistake)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        registry = self._registry
        while True:
            offset = registry.store.applied_offset
            if registry.is_leader:
                for exporter in all_exporters(registry.state):
                    await self._export_once(exporter)
            else:
                self._copied.clear()
            # Until something is written, or it is time to try again.
            with contextlib.suppress(TopicUnavailable):
                await registry.store.wait_until(offset + 1, _RETRY_S)

    async def _export_once(self, exporter: Exporter) -> None:
        state = self._registry.state
        status = status_of(state, exporter.name)
        version = msgspec.json.encode(exporter)
        if status.state not in (STARTING, RUNNING):
            if status.offset < 0:
                self._copied.pop(version, None)  # it was reset, and begins from the start
            return
        copied = self._copied.setdefault(version, {})
        offset = self._registry.store.applied_offset
        found = Status(exporter.name, RUNNING, status.offset, status.ts)
        try:
            if await self._copy(exporter, state, copied) or status.state == STARTING:
                found = Status(exporter.name, RUNNING, offset, int(time.time() * 1000))
        except RegistryFailed as failure:
            log.warning("the exporter %s cannot export: %s", exporter.name, failure)
            found = Status(exporter.name, status.state, status.offset, status.ts, str(failure))
        if found != status:
            with contextlib.suppress(NotLeader, HttpProblem):
                await self._registry.write(lambda state: decide_status(state, found))

    async def _copy(self, exporter: Exporter, state: State, copied: dict[SchemaKey, bool]) -> bool:
        """Copy new, softly deleted and removed versions to the destination; return True if there were any."""
        present = {
            SchemaKey(subject, number): entry
            for subject, versions in state.subjects.items()
            if exporter.takes(subject)
            for number, entry in versions.items()
        }
        fresh = [key for key, entry in present.items() if not entry.value.deleted and copied.get(key) is not False]
        hidden = [key for key, entry in present.items() if entry.value.deleted and copied.get(key) is False]
        removed = [key for key in copied if key not in present]
        if not (fresh or hidden or removed):
            return False
        async with aclosing(AsyncRegistryClient(exporter.config)) as client:
            destination = _Destination(client, exporter, self._cluster_id)
            for key in sorted(fresh, key=lambda key: (present[key].value.id, key)):
                await destination.register(present[key])
                copied[key] = False
            # What refers to others goes first.
            for key in sorted(hidden, key=lambda key: -present[key].value.id):
                await destination.delete(key)
                copied[key] = True
            for key in removed:
                if not copied[key]:
                    await destination.delete(key)
                await destination.delete(key, permanent=True)
                del copied[key]
        return True


class _Destination:
    """The destination registry of an exporter, and the names that subjects have there."""

    def __init__(self, client: AsyncRegistryClient, exporter: Exporter, cluster_id: str) -> None:
        self._client = client
        self._exporter = exporter
        self._cluster_id = cluster_id
        self._open_contexts: set[str] = set()

    def _destination_name(self, subject: str) -> str:
        return self._exporter.destination_of(subject, self._cluster_id)

    async def register(self, entry: Entry) -> None:
        value = entry.value
        subject = self._destination_name(value.subject)
        await self._open(parse_subject(subject).context)
        body: JsonObject = {"schema": value.schema, "schemaType": value.schemaType}
        body |= {"id": value.id, "version": value.version}
        if value.references:
            context = parse_subject(value.subject).context
            body["references"] = [
                {**as_json(each), "subject": self._destination_name(qualify(each.subject, context))}
                for each in value.references
            ]
        if value.metadata is not None:
            body["metadata"] = as_json(value.metadata)
        if value.ruleSet is not None:
            body["ruleSet"] = as_json(value.ruleSet)
        await self._client.ask(do("POST", f"/subjects/{quote(subject, safe='')}/versions", body))

    async def delete(self, key: SchemaKey, *, permanent: bool = False) -> None:
        path = f"/subjects/{quote(self._destination_name(key.subject), safe='')}/versions/{key.version}"
        try:
            await self._client.ask(do("DELETE", f"{path}?permanent=true" if permanent else path))
        except RegistryRefused as refused:
            # It is deleted already, or was never there.
            if refused.status != 404:
                raise

    async def _open(self, context: str) -> None:
        if self._exporter.contextType == NONE or context in self._open_contexts:
            return
        path = f"/mode/{quote(f':{context}:', safe='')}?force=true"
        await self._client.ask(do("PUT", path, {"mode": "IMPORT"}))
        self._open_contexts.add(context)


def _tell_of_mistake(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("exporting has ended by a mistake", exc_info=task.exception())
