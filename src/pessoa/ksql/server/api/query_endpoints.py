"""POST /query and /query-stream: push queries, pull queries and PRINT, as rows that are sent while they are found.

| where | Accept | form |
|---|---|---|
| /query, /query-stream | application/vnd.ksql.v1+json | an array: `{"header":…}`, `{"row":…}`, `{"finalMessage":…}` |
| /query-stream | application/vnd.ksqlapi.delimited.v1 | a line of metadata, then a line with an array for each row |
| /query-stream | application/json | the same lines as one array |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.ksql.analysis.analyser import Decision, Defaults, analyse
from pessoa.ksql.analysis.logical_plan import LogicalPlan, ProjectStep
from pessoa.ksql.analysis.query_kinds import QueryMode
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.server.api.streamed_answer import StreamedAnswer
from pessoa.ksql.server.entities import quoted_schema, schema_of
from pessoa.ksql.server.kafka_clients import KafkaRefused
from pessoa.ksql.server.ksql_problems import (
    BAD_REQUEST,
    BAD_STATEMENT,
    FORBIDDEN_KAFKA,
    NOT_FOUND,
    SERVER_ERROR,
    KsqlProblem,
)
from pessoa.ksql.server.ksql_state import sources_of
from pessoa.ksql.server.pull_queries import PullQueries
from pessoa.ksql.server.query_rows import ResultColumn, ResultRow, RowFeed
from pessoa.ksql.server.row_json import encode_json, json_row
from pessoa.ksql.server.statement_execution import Engine, StatementExecution
from pessoa.ksql.server.statement_session import Session, make_session
from pessoa.ksql.server.topic_printing import TopicPrinter
from pessoa.ksql.syntax import statement_nodes as nodes
from pessoa.ksql.syntax.parser import ParsedStatement
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import media_type
from pessoa.web.bodies import read_json
from pessoa.web.routing import Endpoint
from pessoa.web.websockets import WebsocketAnswer, accept_key

V1_JSON = "application/vnd.ksql.v1+json"
DELIMITED = "application/vnd.ksqlapi.delimited.v1"
JSON = "application/json"
TAKEN = (V1_JSON, JSON, DELIMITED, "application/x-www-form-urlencoded", "application/octet-stream")
# Rows of a pull query that go out together.
_CHUNK_ROWS = 500
_SCAN = "ksql.query.pull.table.scan.enabled"


class QueryRequest(msgspec.Struct, rename="camel"):
    ksql: str = ""
    sql: str = ""
    streams_properties: dict[str, Any] | None = None
    properties: dict[str, Any] | None = None
    session_variables: dict[str, Any] | None = None
    request_properties: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        return self.ksql or self.sql


class CloseRequest(msgspec.Struct, rename="camel"):
    query_id: str


class Form:
    """The format of a response: the bytes before, between and behind the rows. With `is_live` rows are written as
    they arrive."""

    def __init__(self, columns: Sequence[ResultColumn], query_id: str | None, *, is_live: bool) -> None:
        self.columns = columns
        self.kinds = [one.type for one in columns]
        self.query_id = query_id
        self.is_live = is_live

    def head(self) -> bytes:
        raise NotImplementedError

    def rows(self, rows: Sequence[ResultRow]) -> bytes:
        raise NotImplementedError

    def end(self, message: str, failure: KsqlProblem | None) -> bytes:
        raise NotImplementedError


class HeaderForm(Form):
    """A JSON array of a header and rows. Each row of a live query ends with the comma and a line feed, so that
    clients which read lines get it at once."""

    def head(self) -> bytes:
        schema = quoted_schema((one.name, one.type, one.is_key) for one in self.columns)
        header = b"[" + encode_json({"header": {"queryId": self.query_id or "none", "schema": schema}})
        return header + (b",\n" if self.is_live else b"")

    def rows(self, rows: Sequence[ResultRow]) -> bytes:
        written = []
        for row in rows:
            body: dict[str, object] = {"columns": json_row(row.values, self.kinds)}
            if row.is_tombstone:
                body["tombstone"] = True
            line = encode_json({"row": body})
            written.append(line + b",\n" if self.is_live else b",\n" + line)
        return b"".join(written)

    def end(self, message: str, failure: KsqlProblem | None) -> bytes:
        comma = b"" if self.is_live else b",\n"
        if failure is not None:
            return comma + encode_json({"errorMessage": failure.body()}) + b"]\n"
        if self.is_live:
            return encode_json({"finalMessage": message or "Query terminated"}) + b"]\n"
        return b"]\n"


class LineForm(Form):
    before, between, behind = b"", b"\n", b""

    def head(self) -> bytes:
        named = {"columnNames": [one.name for one in self.columns], "columnTypes": [str(one) for one in self.kinds]}
        return (
            self.before + encode_json({"queryId": self.query_id, **named}) + (self.between if not self.before else b"")
        )

    def rows(self, rows: Sequence[ResultRow]) -> bytes:
        return b"".join(encode_json(json_row(row.values, self.kinds)) + b"\n" for row in rows)

    def end(self, message: str, failure: KsqlProblem | None) -> bytes:
        return b"" if failure is None else encode_json(failure.body()) + b"\n"


class ArrayForm(LineForm):
    before = b"["

    def rows(self, rows: Sequence[ResultRow]) -> bytes:
        return b"".join(b",\n" + encode_json(json_row(row.values, self.kinds)) for row in rows)

    def end(self, message: str, failure: KsqlProblem | None) -> bytes:
        return (b"" if failure is None else b",\n" + encode_json(failure.body())) + b"]\n"


class MessageForm(Form):
    """Websocket messages: the columns, then one message for each row; several are separated by a line feed."""

    def head(self) -> bytes:
        return encode_json([{"name": one.name, "schema": schema_of(one.type)} for one in self.columns])

    def rows(self, rows: Sequence[ResultRow]) -> bytes:
        return b"\n".join(encode_json({"row": {"columns": json_row(row.values, self.kinds)}}) for row in rows)

    def end(self, message: str, failure: KsqlProblem | None) -> bytes:
        if failure is not None:
            return encode_json({"errorMessage": failure.body()})
        return encode_json({"finalMessage": message}) if message else b""


FORMS: dict[str, type[Form]] = {V1_JSON: HeaderForm, DELIMITED: LineForm, JSON: ArrayForm}


class Queries:
    def __init__(self, engine: Engine, statements: StatementExecution, pull: PullQueries) -> None:
        self._engine = engine
        self._statements = statements
        self._pull = pull

    def endpoints(self) -> list[Endpoint]:
        forms = (DELIMITED, V1_JSON, JSON)
        return [
            Endpoint("POST", "/query", self.query, "Rows of a query.", body=QueryRequest, consumes=TAKEN,
                     produces=(V1_JSON, JSON, DELIMITED)),
            Endpoint("POST", "/query-stream", self.query_stream, "Rows of a query, a line for each.", body=QueryRequest,
                     consumes=TAKEN, produces=forms),
            Endpoint("POST", "/close-query", self.close_query, "End a push query.", body=CloseRequest, consumes=TAKEN,
                     produces=forms),
            Endpoint("GET", "/ws/query", self.websocket, "Rows of a query as messages of a websocket.", produces=()),
        ]  # fmt: skip

    async def query(self, request: Request) -> Response:
        accepted_type = media_type(request)
        return await self._answer(
            request, HeaderForm if accepted_type != DELIMITED else LineForm, accepted_type, may_print=True
        )

    async def query_stream(self, request: Request) -> Response:
        accepted_type = media_type(request)
        return await self._answer(request, FORMS[accepted_type], accepted_type, may_print=accepted_type == DELIMITED)

    async def websocket(self, request: Request) -> Response:
        accept = accept_key(request)
        try:
            body = msgspec.json.decode(request.query_params.get("request", ""), type=QueryRequest)
        except msgspec.DecodeError as wrong:
            raise KsqlProblem(BAD_REQUEST, f"?request= must be a JSON object with ksql: {wrong}") from None
        session = make_session(body.streams_properties or body.properties, body.session_variables)
        parsed = self.parse_one(body.text, session)
        if isinstance(parsed.statement, nodes.PrintTopic):
            raise KsqlProblem(BAD_STATEMENT, "PRINT is answered at /query-stream.", parsed.text)
        found = await self.open(parsed, session, MessageForm)
        return WebsocketAnswer(_messages(found), accept)

    async def close_query(self, request: Request) -> Response:
        body = await read_json(request, CloseRequest)
        if not self._engine.push.close(body.query_id):
            raise KsqlProblem(BAD_REQUEST, f"No query with id {body.query_id}")
        return Answer(b"", 200, JSON)

    async def _answer(self, request: Request, form: type[Form], content_type: str, *, may_print: bool) -> Response:
        body = await read_json(request, QueryRequest)
        session = make_session(body.streams_properties or body.properties, body.session_variables)
        parsed = self.parse_one(body.text, session)
        if isinstance(parsed.statement, nodes.PrintTopic):
            if not may_print:
                raise KsqlProblem(40600, f"PRINT answers in {DELIMITED}: ask for it with Accept.", parsed.text)
            return await self._print(parsed.statement, parsed.text)
        found = await self.open(parsed, session, form)
        return Answer(found, 200, content_type) if isinstance(found, bytes) else StreamedAnswer(found, content_type)

    def parse_one(self, text: str, session: Session) -> ParsedStatement:
        """Return the query of a text; SET statements before it apply to it."""
        found = self._statements.parse(text, session)
        while len(found) > 1 and isinstance(found[0].statement, (nodes.SetProperty, nodes.DefineVariable)):
            if isinstance(found[0].statement, nodes.SetProperty):
                session.set(found[0].statement.name, found[0].statement.value, found[0].text)
            found = found[1:]
        if len(found) != 1:
            raise KsqlProblem(BAD_STATEMENT, f"Expected exactly one KSQL statement; found {len(found)} instead", text)
        if not isinstance(found[0].statement, (nodes.QueryStatement, nodes.PrintTopic)):
            name = type(found[0].statement).__name__
            raise KsqlProblem(
                BAD_STATEMENT, f"Statement type `{name}' not supported for this resource: send it to /ksql", text
            )
        return found[0]

    async def open(
        self, parsed: ParsedStatement, session: Session, form: type[Form]
    ) -> bytes | AsyncGenerator[bytes, None]:
        """Begin a query, and return its response, whole or as a generator. Raises KsqlProblem if it cannot begin."""
        engine = self._engine
        try:
            decision = analyse(
                parsed,
                engine.commands.state.catalogue,
                Defaults(engine.config.value_format, engine.config.topic_prefix),
            )
        except KsqlError as wrong:
            raise KsqlProblem(BAD_STATEMENT, str(wrong), parsed.text) from None
        assert decision.plan is not None
        is_pull = decision.mode is QueryMode.PULL
        if is_pull and next(sources_of(decision.plan.root)).kind is SourceKind.TABLE:
            return await self._pull_chunks(decision, parsed, session, form)
        return await self._push_chunks(decision, parsed, session, form, to_end=is_pull)

    # A pull query over a table.

    async def _pull_chunks(
        self, decision: Decision, parsed: ParsedStatement, session: Session, form: type[Form]
    ) -> bytes | AsyncGenerator[bytes, None]:
        plan = decision.plan
        assert plan is not None
        scan = session.properties.get(_SCAN)
        rows = self._pull.rows(plan, parsed.text, may_scan=None if scan is None else scan.lower() == "true")
        out = form(result_columns(plan), None, is_live=False)

        def take() -> list[ResultRow]:
            return [row for _, row in zip(range(_CHUNK_ROWS), rows, strict=False)]

        try:
            first = await asyncio.to_thread(take)
        except KafkaRefused as refused:
            raise KsqlProblem(SERVER_ERROR, str(refused), parsed.text) from None
        if len(first) < _CHUNK_ROWS:
            parts = (out.head(), out.rows(first), out.end("", None))
            return (b"\n" if form is MessageForm else b"").join(parts)

        async def chunks() -> AsyncGenerator[bytes, None]:
            yield out.head()
            batch = first
            while batch:
                yield out.rows(batch)
                batch = await asyncio.to_thread(take)
            yield out.end("", None)

        return chunks()

    # A push query, or a stream that is read to its end.

    async def _push_chunks(
        self, decision: Decision, parsed: ParsedStatement, session: Session, form: type[Form], *, to_end: bool
    ) -> AsyncGenerator[bytes, None]:
        engine, plan, feed = self._engine, decision.plan, RowFeed()
        assert plan is not None
        properties = {**engine.commands.state.system, **session.properties}
        try:
            running = await asyncio.to_thread(engine.push.start, parsed.text, plan, properties, feed, to_end=to_end)
        except KafkaRefused as refused:
            code = FORBIDDEN_KAFKA if refused.is_denied else NOT_FOUND
            raise KsqlProblem(code, str(refused), parsed.text) from None
        except KsqlError as wrong:
            raise KsqlProblem(BAD_STATEMENT, str(wrong), parsed.text) from None
        out = form(result_columns(plan), running.id, is_live=True)

        async def chunks() -> AsyncGenerator[bytes, None]:
            try:
                yield b""
                yield out.head()
                async for batch in feed.batches():
                    yield out.rows(batch)
                failure = KsqlProblem(SERVER_ERROR, feed.failure) if feed.failure else None
                final = "Limit Reached" if feed.is_limit_reached else "Query Completed" if to_end else ""
                yield out.end(final, failure)
            finally:
                engine.push.close(running.id)

        begun = chunks()
        # A generator that has not begun has no `finally` to run: its query would go on where no head can be sent.
        await anext(begun)
        return begun

    # PRINT.

    async def _print(self, statement: nodes.PrintTopic, text: str) -> Response:
        engine = self._engine
        printer = TopicPrinter(engine.clients, engine.schemas, statement)
        try:
            await asyncio.to_thread(printer.open)
        except KafkaRefused as refused:
            code = FORBIDDEN_KAFKA if refused.is_denied else BAD_STATEMENT
            raise KsqlProblem(code, str(refused), text) from None
        return StreamedAnswer(printer.lines(), DELIMITED)


async def _messages(found: bytes | AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the response of a query as single messages."""
    if isinstance(found, bytes):
        for message in found.split(b"\n"):
            if message:
                yield message
        return
    try:
        async for chunk in found:
            for message in chunk.split(b"\n"):
                if message:
                    yield message
    finally:
        await found.aclose()


def result_columns(plan: LogicalPlan) -> list[ResultColumn]:
    """Return the selected columns; one that is a key column of the only source is marked as key."""
    assert isinstance(plan.root, ProjectStep)
    sources = list(sources_of(plan.root))
    keys = {one.name for one in sources[0].key} if len(sources) == 1 else set()
    return [
        ResultColumn(name, typed.type, typed.column in keys and bool(typed.column)) for name, typed in plan.root.columns
    ]
