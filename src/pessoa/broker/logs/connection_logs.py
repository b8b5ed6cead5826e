"""The agent log and the referrer log: a line for each connection, when it asks for ApiVersions, as clients do first.

    agent     which software the client is (KIP-511), which clients say from version 3 of ApiVersions on
    referrer  on whose behalf it connects: a service of the platform, a connector, a ksql query, another broker; clients
              say so by their client id, which Kafka's own services form in fixed ways

A connection that begins with another request has no line here; the access log has its requests.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pessoa.broker.logs.access_log import caller_fields
from pessoa.broker.logs.log_lines import LONGEST_NAME, shortened
from pessoa.wire.api.api_versions import FIRST_API_VERSIONS_WITH_SOFTWARE, ApiVersionsRequest
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyRow
    from pessoa.broker.logs.log_writer import LogWriter
    from pessoa.broker.observers import Begin
    from pessoa.net.pending import Observation
    from pessoa.wire.frames import Buffer
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


class Referrer(NamedTuple):
    """The service that a client id belongs to, and its part: a connector, a query, a broker, a group."""

    service: str
    name: str | None


# In this order, since the last ones are the least particular. The group is the name.
_REFERRERS = [
    (service, re.compile(pattern))
    for service, pattern in (
        ("broker", r"(?:broker|raft|node|controller)-([0-9]+)(?:-.*)?"),
        ("schema-registry", r"(?:sr|schema-registry)-(.+)"),
        ("kafka-rest", r"(?:rest-proxy|kafka-rest)(?:-(.+))?"),
        ("connector", r"connector-(?:dlq-)?(?:producer|consumer|adminclient)-(.+)-[0-9]+"),
        ("connector", r"connector-(?:dlq-)?(?:producer|consumer|adminclient)-(.+)"),
        ("connect", r"connect-(.+)"),
        ("ksql", r"_?confluent-ksql-.*?query_([A-Z]+_.+?_[0-9]+)-.*"),
        ("ksql", r"_?confluent-ksql-(.+?)(?:-[0-9a-f-]{36}.*)?"),
        ("streams", r"(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-(?:StreamThread|GlobalStreamThread|admin).*"),
        ("control-center", r"(?:_confluent-controlcenter|control-center)(?:-(.+))?"),
        ("tool", r"(console-(?:producer|consumer)|perf-(?:producer|consumer)-client|adminclient-[0-9]+|pessoa-up)"),
        ("consumer", r"consumer-(.+)-[0-9]+"),
    )
]


def referrer_of(client_id: str | None) -> Referrer:
    text = (client_id or "")[:LONGEST_NAME]
    for service, pattern in _REFERRERS:
        match = pattern.fullmatch(text)
        if match is not None:
            return Referrer(service, match.group(1))
    return Referrer("client", client_id or None)


class AgentLog:
    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer

    def __repr__(self) -> str:
        return f"<AgentLog of {self.writer!r}>"

    def watches(self, row: AnyRow) -> bool:
        return row.key is ApiKey.API_VERSIONS

    def begin_of(self, row: AnyRow) -> Begin:
        return self.begin

    def begin(self, context: RequestContext, request: Message, size: int) -> Observation:
        assert isinstance(request, ApiVersionsRequest)
        says_it = context.version >= FIRST_API_VERSIONS_WITH_SOFTWARE
        self.writer.write(
            {
                **caller_fields(context),
                "connection": context.connection_id,
                "software": shortened(request.client_software_name) if says_it else None,
                "software_version": shortened(request.client_software_version) if says_it else None,
            }
        )
        return UNLOGGED_REQUEST


class ReferrerLog:
    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer

    def __repr__(self) -> str:
        return f"<ReferrerLog of {self.writer!r}>"

    def watches(self, row: AnyRow) -> bool:
        return row.key is ApiKey.API_VERSIONS

    def begin_of(self, row: AnyRow) -> Begin:
        return self.begin

    def begin(self, context: RequestContext, request: Message, size: int) -> Observation:
        referrer = referrer_of(context.client_id)
        self.writer.write(
            {
                **caller_fields(context),
                "connection": context.connection_id,
                "service": referrer.service,
                "name": None if referrer.name is None else shortened(referrer.name),
            }
        )
        return UNLOGGED_REQUEST


class _UnloggedRequest:
    """The observation of a request whose response is not logged."""

    def wait(self) -> None: ...

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None: ...

    def lose(self) -> None: ...


UNLOGGED_REQUEST = _UnloggedRequest()
