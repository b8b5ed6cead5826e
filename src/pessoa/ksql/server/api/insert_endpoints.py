"""POST /inserts-stream: a line `{"target": "S"}`, then a line for each row; each is answered with a line, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.operators.format_codecs import CodecFailure
from pessoa.ksql.operators.json_format import json_reader
from pessoa.ksql.server.api.query_endpoints import DELIMITED, JSON, TAKEN
from pessoa.ksql.server.api.streamed_answer import StreamedAnswer
from pessoa.ksql.server.ksql_problems import BAD_REQUEST, BAD_STATEMENT, KsqlProblem
from pessoa.ksql.server.row_json import encode_json
from pessoa.ksql.server.statement_execution import Engine
from pessoa.ksql.types.sql_types import Value
from pessoa.web.bodies import too_large
from pessoa.web.routing import Endpoint

_LONGEST_LINE = 1024 * 1024


class InsertTarget(msgspec.Struct):
    target: str
    properties: dict[str, Any] | None = None


class Inserts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/inserts-stream", self.insert, "Write rows.", body=InsertTarget, consumes=TAKEN,
                     produces=(DELIMITED, JSON))
        ]  # fmt: skip

    async def insert(self, request: Request) -> Response:
        lines = _lines(request)
        try:
            first = msgspec.json.decode(await anext(lines), type=InsertTarget)
        except StopAsyncIteration:
            raise KsqlProblem(BAD_REQUEST, 'The first line must be {"target": "NAME"}.') from None
        except msgspec.DecodeError as wrong:
            raise KsqlProblem(BAD_REQUEST, f'The first line must be {{"target": "NAME"}}: {wrong}') from None
        source = self._source(first.target)
        return StreamedAnswer(self._answers(source, lines), DELIMITED, watches=False)

    def _source(self, name: str) -> Source:
        wanted = name[1:-1] if name.startswith("`") and name.endswith("`") else name.upper()
        source = self._engine.commands.state.catalogue.sources.get(wanted)
        if source is None:
            raise KsqlProblem(BAD_REQUEST, f"Cannot insert values into an unknown stream/table: `{wanted}`")
        if source.read_only or source.window is not None:
            raise KsqlProblem(BAD_REQUEST, f"Cannot insert values into {wanted}: it is read-only or windowed.")
        return source

    async def _answers(self, source: Source, lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        number = 0
        async for line in lines:
            try:
                row = self._row(source, line)
                await asyncio.to_thread(self._engine.inserter.write, source, row)
            except KsqlProblem as problem:
                yield _error_line(number, problem.code, problem.message)
            except KsqlError as wrong:
                yield _error_line(number, BAD_STATEMENT, str(wrong))
            else:
                yield encode_json({"status": "ok", "seq": number}) + b"\n"
            number += 1

    def _row(self, source: Source, line: bytes) -> dict[str, Value]:
        try:
            given = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as wrong:
            raise KsqlProblem(BAD_REQUEST, f"A line is no object of JSON: {wrong}") from None
        kinds = {column.name: column.type for column in (*source.key, *source.value)}
        row: dict[str, Value] = {}
        for name, value in given.items():
            known = name.strip("`") if name.startswith("`") else name if name in kinds else name.upper()
            if known not in kinds:
                raise KsqlProblem(BAD_REQUEST, f"Column name {name} does not exist in {source.name}.")
            try:
                row[known] = json_reader(kinds[known])(value)
            except CodecFailure as wrong:
                raise KsqlProblem(BAD_REQUEST, f"Can't coerce a field of type {known}: {wrong}") from None
        return row


def _error_line(number: int, code: int, message: str) -> bytes:
    return encode_json({"status": "error", "seq": number, "error_code": code, "message": message}) + b"\n"


async def _lines(request: Request) -> AsyncGenerator[bytes, None]:
    kept = b""
    async for chunk in request.stream():
        *whole, kept = (kept + chunk).split(b"\n")
        if len(kept) > _LONGEST_LINE:
            raise too_large(_LONGEST_LINE)
        for line in whole:
            if line.strip():
                yield line
    if kept.strip():
        yield kept
