"""The endpoints of `/api/v1`: each asks the centre and answers with its view.

Callers log in with HTTP Basic or a bearer token, or with the session of a browser (the cookie). What changes something
wants a body of JSON or no body, and never an Origin of another site (`request_guard.py`): no foreign page can send it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.client.config_admin import ResourceType
from pessoa.control_center.accounts import COOKIE, Person, demand
from pessoa.control_center.alerts import shown_rules
from pessoa.control_center.center import Center, cluster_rows
from pessoa.control_center.filter_expressions import BadFilter, compile_filter
from pessoa.control_center.message_reading import Message, MessageQuery, Scan, newest
from pessoa.control_center.stored_state import AlertRule, SavedFilter
from pessoa.control_center.texts import Text
from pessoa.control_center.topic_analysis import TopicReport
from pessoa.control_center.views import (
    BrokerView,
    ClusterRow,
    ConfigRow,
    GroupRow,
    GroupView,
    Overview,
    ServiceState,
    TopicPage,
    TopicView,
)
from pessoa.web.asgi_app import json_response
from pessoa.web.bodies import read_json
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import UNDESCRIBED, Endpoint, Query

Handle = Callable[[Center, Person, Request], Awaitable[object]]
STARTS = ("newest", "earliest", "offset", "time")
# The key of the caller's `Person` in the scope of a request.
CALLER = "pessoa.caller"
# How soon a caller that has disconnected is noticed.
_LOOK_S = 0.5


class NewTopicBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    partitions: int = -1
    replication: int = -1
    configs: dict[str, str] = {}


class ConfigBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new config value; null resets the key to its default."""

    value: str | None


class PartitionsBody(msgspec.Struct, forbid_unknown_fields=True):
    total: int


class ProduceBody(msgspec.Struct, forbid_unknown_fields=True):
    value: str | None = None
    key: str | None = None
    headers: dict[str, str] = {}
    partition: int = -1
    # The own serde that makes the bytes; none: they are those of the text.
    key_format: str = ""
    value_format: str = ""


class PlacedBody(msgspec.Struct):
    partition: int
    offset: int


class ResetBody(msgspec.Struct, forbid_unknown_fields=True):
    """`way`: earliest, latest, time, shift or exact; `amount` is the time in ms, the shift or the offset."""

    topic: str
    way: str
    amount: int | None = None
    dry_run: bool = True


class FoundMessages(msgspec.Struct):
    messages: list[Message]
    scanned: int
    matched: int
    total: int
    error: str | None = None


class DescribedMessage(msgspec.Struct):
    """A `Message`, for the document: keys and values are any JSON."""

    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: list[tuple[str, Any]]
    size: int
    key_format: str
    value_format: str
    schema_id: int | None
    trouble: str | None
    is_cut: bool


class DescribedMessages(msgspec.Struct):
    messages: list[DescribedMessage]
    scanned: int
    matched: int
    total: int
    error: str | None = None


def endpoints(center: Center) -> list[Endpoint]:
    def row(method: str, path: str, handle: Handle, summary: str, **more: Any) -> Endpoint:
        async def answer(request: Request) -> Response:
            person = await caller_of(center, request)
            chosen = center.of_cluster(request.query_params.get("cluster"))
            return json_response(request, await handle(chosen, person, request), more.get("status", 200))

        cluster = Query("cluster", help="one of several clusters; the first without it")
        more["query"] = (*more.get("query", ()), cluster)
        return Endpoint(method, f"/api/v1{path}", answer, summary, **more)

    text = Query
    return [
        row("GET", "/clusters", _clusters, "The clusters, by name.", answer=list[ClusterRow]),
        row("GET", "/overview", _overview, "The cluster, its health in words, and its services.", answer=Overview),
        row("GET", "/services", _services, "Which services answer.", answer=list[ServiceState]),
        row("GET", "/brokers", _brokers, "Brokers.", answer=list[BrokerView]),
        row("GET", "/brokers/{broker}/configs", _broker_configs, "A broker's configuration.", answer=list[ConfigRow]),
        row("GET", "/topics", _topics, "A page of topics.", answer=TopicPage, query=(
            text("search"), text("sort", help="name, messages, size, rate, lag, partitions"),
            text("descending", "boolean"), text("page", "integer"), text("per_page", "integer"),
            text("internal", "boolean"))),
        row("POST", "/topics", _create_topic, "Create a topic.", body=NewTopicBody, answer=TopicView, status=201),
        row("GET", "/topics/{topic}", _topic, "A topic with its partitions.", answer=TopicView),
        row("DELETE", "/topics/{topic}", _delete_topic, "Delete a topic.", answer=UNDESCRIBED),
        row("POST", "/topics/{topic}/partitions", _partitions, "Add partitions.", body=PartitionsBody,
            answer=TopicView),
        row("GET", "/topics/{topic}/configs", _topic_configs, "Its configuration.", answer=list[ConfigRow]),
        row("PUT", "/topics/{topic}/configs/{key}", _set_config, "Set a key.", body=ConfigBody, answer=UNDESCRIBED),
        row("POST", "/topics/{topic}/empty", _empty, "Delete all records.", answer=UNDESCRIBED),
        row("GET", "/topics/{topic}/messages", _messages, "Browse or search.", answer=DescribedMessages, query=(
            text("start", help="newest, earliest, offset, time"), text("amount", "integer"), text("limit", "integer"),
            text("partition", "integer", many=True), text("search"), text("filter"), text("key_format"),
            text("value_format"))),
        row("POST", "/topics/{topic}/analysis", _analyse, "Read the whole topic, and count.", answer=TopicReport),
        row("POST", "/topics/{topic}/messages", _produce, "Produce a message.", body=ProduceBody, answer=PlacedBody,
            status=201),
        row("GET", "/groups", _groups, "Groups of every kind, with lag.", answer=list[GroupRow]),
        row("GET", "/groups/{group}", _group, "A group with members and offsets.", answer=GroupView),
        row("GET", "/groups/{group}/history", _lag_history, "Its lag over time.", answer=list[tuple[int, float]]),
        row("POST", "/groups/{group}/reset", _reset, "Reset offsets, or see what that would do.", body=ResetBody,
            answer=UNDESCRIBED),
        row("DELETE", "/groups/{group}", _delete_group, "Delete a group.", answer=UNDESCRIBED),
        row("GET", "/acls", _acls, "Access control lists.", answer=UNDESCRIBED),
        row("GET", "/quotas", _quotas, "Client quotas.", answer=UNDESCRIBED),
        row("GET", "/users", _users, "Users with SCRAM credentials.", answer=UNDESCRIBED),
        row("GET", "/alerts", _alerts, "What fires now, and the last events.", answer=UNDESCRIBED),
        row("GET", "/alerts/rules", _rules, "The rules.", answer=list[AlertRule]),
        row("GET", "/filters", _filters, "Saved filters.", answer=list[SavedFilter]),
        row("GET", "/audit", _audit, "What was changed, by whom.", answer=UNDESCRIBED),
    ]  # fmt: skip


async def caller_of(center: Center, request: Request) -> Person:
    """Return the user of the session cookie or of the Authorization header. 401 without either."""
    if isinstance(known := request.scope.get(CALLER), Person):
        return known
    person = center.accounts.by_cookie(request.cookies.get(COOKIE))
    return person or await center.accounts.by_header(request.headers.get("authorization"))


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    try:
        return default if text is None else int(text)
    except ValueError:
        raise HttpProblem(400, f"{name} must be a whole number, not {text!r}.") from None


def _is_number(text: str) -> bool:
    """Whether a text is the number of a broker or a partition: digits that `int` reads, which ² is not."""
    return text.isdecimal() and len(text) <= 10


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


async def _clusters(center: Center, _: Person, __: Request) -> object:
    return await cluster_rows(center, Text())


async def _overview(center: Center, _: Person, __: Request) -> object:
    return await center.overview(Text())


async def _services(center: Center, _: Person, __: Request) -> object:
    return await center.services.states()


async def _brokers(center: Center, _: Person, __: Request) -> object:
    return (await center.overview(Text())).brokers


async def _broker_configs(center: Center, _: Person, request: Request) -> object:
    broker = request.path_params["broker"]
    if not _is_number(broker):
        raise HttpProblem(400, f"A broker has a number, and {broker!r} is none.")
    return await center.configs(ResourceType.BROKER, broker)


async def _topics(center: Center, person: Person, request: Request) -> object:
    return await center.watch.topic_page(
        search=request.query_params.get("search", ""),
        sort=request.query_params.get("sort", "name"),
        descending=_flag(request, "descending"),
        page=_number(request, "page", 1),
        per_page=max(1, min(_number(request, "per_page", 50), 1000)),
        internal=_flag(request, "internal"),
        favourites=center.state.favourites_of(person.name),
    )


async def _create_topic(center: Center, person: Person, request: Request) -> object:
    body = await read_json(request, NewTopicBody)
    await center.create_topic(person, body.name, body.partitions, body.replication, body.configs)
    return await center.watch.topic(body.name)


async def _topic(center: Center, _: Person, request: Request) -> object:
    return await center.watch.topic(request.path_params["topic"])


async def _delete_topic(center: Center, person: Person, request: Request) -> object:
    await center.delete_topic(person, request.path_params["topic"])
    return {}


async def _partitions(center: Center, person: Person, request: Request) -> object:
    topic = request.path_params["topic"]
    await center.add_partitions(person, topic, (await read_json(request, PartitionsBody)).total)
    return await center.watch.topic(topic)


async def _topic_configs(center: Center, _: Person, request: Request) -> object:
    return await center.configs(ResourceType.TOPIC, request.path_params["topic"])


async def _set_config(center: Center, person: Person, request: Request) -> object:
    body = await read_json(request, ConfigBody)
    names = request.path_params
    await center.set_config(person, ResourceType.TOPIC, names["topic"], names["key"], body.value)
    return {}


async def _empty(center: Center, person: Person, request: Request) -> object:
    await center.empty_topic(person, request.path_params["topic"])
    return {}


def message_query(center: Center, person: Person, request: Request) -> MessageQuery:
    """Return the query that the request's parameters describe. Raises an `HttpProblem`."""
    given = request.query_params
    topic = request.path_params["topic"]
    query = MessageQuery(
        topic, given.get("start", "newest"), _number(request, "amount", 0), limit=_number(request, "limit", 50),
        search=given.get("search", ""), key_format=given.get("key_format", "auto"),
        value_format=given.get("value_format", "auto"), hidden=center.hidden_paths(topic, person),
    )  # fmt: skip
    if query.start not in STARTS:
        raise HttpProblem(400, f"start must be one of {', '.join(STARTS)}.")
    formats = center.decoder.formats
    if query.key_format not in formats or query.value_format not in formats:
        raise HttpProblem(400, f"A format is one of {', '.join(formats)}.")
    if partitions := given.getlist("partition"):
        if not all(map(_is_number, partitions)):
            raise HttpProblem(400, "partition must be a number.")
        query = replace(query, partitions=tuple(map(int, partitions)))
    if text := given.get("filter", ""):
        try:
            query = replace(query, passes=compile_filter(text))
        except BadFilter as wrong:
            raise HttpProblem(400, str(wrong)) from None
    return query


async def _messages(center: Center, person: Person, request: Request) -> object:
    query = message_query(center, person, request)
    scan = await center.messages(person, query)
    found: list[Message] = []
    async with _stop_at_end(scan, request):
        async for batch in scan.batches():
            found += batch
            if query.start == "newest":
                found = newest(found, query.limit)
    progress = scan.progress
    if progress.error is not None and not found:
        raise HttpProblem(502, progress.error)
    return FoundMessages(found[: query.limit], progress.scanned, progress.matched, progress.total, progress.error)


async def _analyse(center: Center, person: Person, request: Request) -> object:
    scan = await center.analyse(person, request.path_params["topic"])
    async with _stop_at_end(scan, request):
        async for _batch in scan.batches():
            continue
    return scan.report()


@asynccontextmanager
async def _stop_at_end(scan: Scan, request: Request) -> AsyncIterator[None]:
    """Stop the scan at the end of the block, or as soon as the caller disconnects."""

    async def watch() -> None:
        while not await request.is_disconnected():  # noqa: ASYNC110 - ASGI has no event for it
            await asyncio.sleep(_LOOK_S)
        scan.stop()

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        scan.stop()


async def _produce(center: Center, person: Person, request: Request) -> object:
    body = await read_json(request, ProduceBody)
    position = await center.produce(
        person, request.path_params["topic"], center.encoded(body.key, body.key_format),
        center.encoded(body.value, body.value_format),
        [(name, value.encode()) for name, value in body.headers.items()], body.partition,
    )  # fmt: skip
    return PlacedBody(*position)


async def _groups(center: Center, _: Person, __: Request) -> object:
    return await center.watch.group_rows()


async def _group(center: Center, _: Person, request: Request) -> object:
    return await center.group(request.path_params["group"])


async def _lag_history(center: Center, _: Person, request: Request) -> object:
    return center.watch.history.of(f"lag:{request.path_params['group']}")


async def _reset(center: Center, person: Person, request: Request) -> object:
    body = await read_json(request, ResetBody)
    group = request.path_params["group"]
    rows = await center.plan_reset(group, body.topic, body.way, body.amount)
    if not body.dry_run:
        await center.reset_offsets(person, group, rows)
    return {"applied": not body.dry_run, "partitions": [one._asdict() for one in rows]}


async def _delete_group(center: Center, person: Person, request: Request) -> object:
    await center.delete_group(person, request.path_params["group"])
    return {}


async def _acls(center: Center, _: Person, __: Request) -> object:
    return [
        {
            "resource_type": pattern.kind.name, "name": pattern.name, "pattern": pattern.pattern_type.name,
            "principal": entry.principal, "host": entry.host, "operation": entry.operation.name,
            "permission": entry.permission.name,
        }
        for pattern, entry in await center.acls()
    ]  # fmt: skip


async def _quotas(center: Center, _: Person, __: Request) -> object:
    return [{"entity": entity, "quotas": values} for entity, values in await center.quotas()]


async def _users(center: Center, person: Person, __: Request) -> object:
    demand(person, "admin")
    return await center.users()


async def _alerts(center: Center, _: Person, __: Request) -> object:
    return {
        "firing": [
            {"since_ms": at, "rule": one.rule, "subject": one.subject, "text": one.text}
            for at, one in center.alerts.firing.values()
        ],
        "events": [one._asdict() for one in center.alerts.events],
    }


async def _rules(center: Center, person: Person, _: Request) -> object:
    return shown_rules(center.state.stored.rules, to_admin=person.may("admin"))


async def _filters(center: Center, _: Person, __: Request) -> object:
    return center.state.stored.filters


async def _audit(center: Center, person: Person, __: Request) -> object:
    demand(person, "admin")
    return list(center.audit.entries)
