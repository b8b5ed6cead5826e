"""Push and pull queries, PRINT and inserts over HTTP and websockets, in every response format."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import quote

import httpx
import pytest

from pessoa.web.websockets import take_frame
from tests.services.ksql.serving import Ksql, wait_for

V1 = "application/vnd.ksql.v1+json"
JSON = "application/json"
DELIMITED = "application/vnd.ksqlapi.delimited.v1"


@pytest.fixture
def stream(ksql: Ksql, name: str) -> str:
    ksql.run(
        f"CREATE STREAM {name} (K VARCHAR KEY, N INT) WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=2);"
    )
    for number in range(4):
        ksql.run(f"INSERT INTO {name} VALUES ('k{number % 2}', {number});")
    return name


@pytest.fixture
def counts(ksql: Ksql, stream: str) -> str:
    table = f"{stream}_COUNTS"
    ksql.run(f"CREATE TABLE {table} AS SELECT K, COUNT(*) AS C, SUM(N) AS TOTAL FROM {stream} GROUP BY K EMIT CHANGES;")
    wait_for(lambda: ksql.rows(f"SELECT * FROM {table} WHERE K = 'k1';") == [["k1", 2, 4]], "the count")
    wait_for(lambda: ksql.rows(f"SELECT * FROM {table} WHERE K = 'k0';") == [["k0", 2, 2]], "the count")
    return table


# Push queries.


def test_a_push_query_from_earliest_returns_existing_and_new_rows_and_ends_with_its_client(
    ksql: Ksql, stream: str
) -> None:
    sql = f"SELECT N FROM {stream} WHERE K = 'k0' EMIT CHANGES;"
    body = {"sql": sql, "properties": {"auto.offset.reset": "earliest"}}
    with ksql.stream("POST", "/query-stream", json=body) as answer:
        assert answer.headers["content-type"] == DELIMITED
        lines = answer.iter_lines()
        head = json.loads(next(lines))
        assert head["columnNames"] == ["N"]
        assert head["columnTypes"] == ["INTEGER"]
        assert [json.loads(next(lines)) for _ in range(2)] == [[0], [2]]
        assert head["queryId"] in [one["id"] for one in ksql.run("SHOW QUERIES;")[0]["queries"]]
        ksql.run(f"INSERT INTO {stream} VALUES ('k0', 9);")
        assert json.loads(next(lines)) == [9]
    wait_for(
        lambda: head["queryId"] not in [one["id"] for one in ksql.run("SHOW QUERIES;")[0]["queries"]],
        "the end of the query whose client has gone",
    )


def test_close_query_ends_a_push_query_that_has_returned_rows(ksql: Ksql, stream: str) -> None:
    body = {"sql": f"SELECT N FROM {stream} WHERE K = 'k0' EMIT CHANGES;"}
    with ksql.stream("POST", "/query-stream", json=body) as answer:
        lines = answer.iter_lines()
        query_id = json.loads(next(lines))["queryId"]
        # After the header the query is running: it starts from latest, and returns rows that are written from now on.
        ksql.run(f"INSERT INTO {stream} VALUES ('k0', 9);")
        assert json.loads(next(lines)) == [9]
        assert ksql.post("/close-query", json={"queryId": query_id}).status_code == 200
        assert list(lines) == []


def test_close_query_ends_a_push_query_without_rows(ksql: Ksql, stream: str) -> None:
    with ksql.stream("POST", "/query-stream", json={"sql": f"SELECT * FROM {stream} EMIT CHANGES;"}) as answer:
        lines = answer.iter_lines()
        query_id = json.loads(next(lines))["queryId"]
        assert ksql.post("/close-query", json={"queryId": query_id}).status_code == 200
        assert list(lines) == []
    assert ksql.post("/close-query", json={"queryId": query_id}).json()["error_code"] == 40000


def test_the_accept_header_and_the_endpoint_choose_the_format_of_the_rows(ksql: Ksql, stream: str) -> None:
    asked = {"sql": f"SELECT K, N FROM {stream} WHERE N < 1 EMIT CHANGES LIMIT 1;",
             "properties": {"auto.offset.reset": "earliest"}}  # fmt: skip
    array = ksql.post("/query-stream", json=asked, headers={"Accept": JSON}).json()
    assert array[0]["columnNames"] == ["K", "N"]
    assert array[1:] == [["k0", 0]]
    rows = ksql.post("/query-stream", json=asked, headers={"Accept": V1}).json()
    assert rows[0]["header"]["schema"] == "`K` STRING KEY, `N` INTEGER"
    assert rows[1:] == [{"row": {"columns": ["k0", 0]}}, {"finalMessage": "Limit Reached"}]
    old = {"ksql": asked["sql"], "streamsProperties": {"ksql.streams.auto.offset.reset": "earliest"}}
    assert ksql.post("/query", json=old).json()[1:] == rows[1:]


def test_push_queries_return_windowed_aggregations_and_stream_table_joins(ksql: Ksql, stream: str, counts: str) -> None:
    windowed = ksql.all_rows(
        f"SELECT K, COUNT(*) FROM {stream} WINDOW TUMBLING (SIZE 100 DAYS) GROUP BY K EMIT CHANGES LIMIT 4;"
    )
    assert sorted(map(tuple, windowed)) == [("k0", 1), ("k0", 2), ("k1", 1), ("k1", 2)]
    ksql.run(f"INSERT INTO {stream} VALUES ('k0', 100);")
    wait_for(lambda: ksql.rows(f"SELECT C FROM {counts} WHERE K = 'k0';") == [[3]], "the count")
    joined = ksql.all_rows(f"SELECT S.N, T.C FROM {stream} S JOIN {counts} T ON S.K = T.K EMIT CHANGES LIMIT 1;")
    assert len(joined) == 1


def test_a_query_over_an_unknown_source_and_a_request_that_is_not_one_query_are_refused(ksql: Ksql, name: str) -> None:
    answer = ksql.post("/query-stream", json={"sql": f"SELECT * FROM {name} EMIT CHANGES;"})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40001)
    assert answer.json()["@type"] == "statement_error"
    both = ksql.post("/query", json={"ksql": "SELECT 1 FROM X EMIT CHANGES; SHOW STREAMS;"})
    assert "exactly one" in both.json()["message"]
    assert "send it to /ksql" in ksql.post("/query", json={"ksql": "SHOW STREAMS;"}).json()["message"]


# Pull queries.


def test_pull_queries_read_a_table_by_key_by_keys_by_condition_and_as_a_whole(ksql: Ksql, counts: str) -> None:
    assert ksql.rows(f"SELECT C, K FROM {counts} WHERE K = 'k0';") == [[2, "k0"]]
    assert ksql.rows(f"SELECT * FROM {counts} WHERE K = 'k9';") == []
    assert ksql.rows(f"SELECT K FROM {counts} WHERE K IN ('k0', 'k1', 'k7');") == [["k0"], ["k1"]]
    assert ksql.rows(f"SELECT K, TOTAL * 2 AS T FROM {counts} WHERE TOTAL > 3;") == [["k1", 8]]
    assert ksql.rows(f"SELECT K FROM {counts} WHERE K >= 'k1';") == [["k1"]]
    assert len(ksql.rows(f"SELECT * FROM {counts};")) == 2
    assert len(ksql.rows(f"SELECT * FROM {counts} LIMIT 1;")) == 1
    scan_off = {"ksql.query.pull.table.scan.enabled": "false"}
    assert ksql.rows(f"SELECT C FROM {counts} WHERE K = 'k0';", scan_off) == [[2]]
    refused = ksql.post("/query-stream", json={"sql": f"SELECT * FROM {counts};", "properties": scan_off})
    assert refused.json()["error_code"] == 40001
    assert "Name the key" in refused.json()["message"]


def test_pull_queries_read_windowed_tables_by_key_and_window_bounds(ksql: Ksql, name: str) -> None:
    ksql.run(
        f"CREATE STREAM {name} (K VARCHAR KEY, N INT) WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=1);"
        f"CREATE TABLE {name}_W AS SELECT K, COUNT(*) AS C FROM {name} WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY K;"
        f"CREATE TABLE {name}_E AS SELECT K, COUNT(*) AS C FROM {name} WINDOW SESSION (1 SECOND) GROUP BY K;"
    )
    start = int(time.time()) // 60 * 60_000
    for after_ms, key in ((0, "a"), (59_999, "a"), (60_000, "a"), (120_000, "a"), (0, "ab")):
        ksql.run(f"INSERT INTO {name} (ROWTIME, K, N) VALUES ({start + after_ms}, '{key}', 1);")
    by_key = f"SELECT WINDOWSTART - {start}, WINDOWEND - {start}, C FROM {name}_W WHERE K = 'a'"
    every = [[0, 60_000, 2], [60_000, 120_000, 1], [120_000, 180_000, 1]]
    wait_for(lambda: ksql.rows(f"{by_key};") == every, "the windows")
    assert ksql.rows(f"{by_key} AND WINDOWSTART >= {start + 60_000} AND WINDOWEND <= {start + 120_000};") == every[1:2]
    assert ksql.rows(f"{by_key} AND WINDOWSTART BETWEEN {start + 1} AND {start + 120_000};") == every[1:]
    assert len(ksql.rows(f"SELECT K FROM {name}_W;")) == 4
    sessions = f"SELECT WINDOWSTART - {start}, C FROM {name}_E"
    wait_for(lambda: len(ksql.rows(f"{sessions} WHERE K = 'a';")) == 3, "the sessions")
    refused = ksql.post("/query-stream", json={"sql": f"{sessions};"}).json()
    assert "session" in refused["message"]


def test_a_pull_query_over_a_stream_reads_to_its_end(ksql: Ksql, stream: str) -> None:
    assert sorted(ksql.rows(f"SELECT N FROM {stream};")) == [[0], [1], [2], [3]]
    assert len(ksql.rows(f"SELECT N FROM {stream} LIMIT 2;")) == 2


def test_a_source_table_answers_pull_queries_and_refuses_inserts(ksql: Ksql, name: str) -> None:
    ksql.run(
        f"CREATE TABLE {name} (ID INT PRIMARY KEY, V VARCHAR) WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', "
        f"PARTITIONS=1); INSERT INTO {name} VALUES (1, 'one'); INSERT INTO {name} VALUES (1, 'uno');"
        f"CREATE SOURCE TABLE {name}_S (ID INT PRIMARY KEY, V VARCHAR) WITH (KAFKA_TOPIC='{name}', "
        "VALUE_FORMAT='JSON');"
    )
    wait_for(lambda: ksql.rows(f"SELECT * FROM {name}_S WHERE ID = 1;") == [[1, "uno"]], "the table")
    assert "read-only" in ksql.refused(f"INSERT INTO {name}_S VALUES (2, 'two');")["message"]


# PRINT and inserts.


def test_print_shows_records_with_guessed_formats(ksql: Ksql, stream: str) -> None:
    answer = ksql.post("/query-stream", json={"sql": f"PRINT {stream} FROM BEGINNING LIMIT 2;"})
    assert answer.status_code == 200
    lines = answer.text.splitlines()
    assert lines[0] == "Key format: KAFKA_STRING"
    assert lines[1] == "Value format: JSON or KAFKA_STRING"
    assert len(lines) == 4
    assert 'value: {"N":' in lines[2]
    assert "rowtime: " in lines[2]
    refused = ksql.post("/query-stream", json={"sql": f"PRINT {stream};"}, headers={"Accept": JSON})
    assert refused.status_code == 406


def test_inserts_stream_acknowledges_or_refuses_each_line(ksql: Ksql, name: str) -> None:
    ksql.run(
        f"CREATE STREAM {name} (K VARCHAR KEY, N INT, D DECIMAL(6, 2)) "
        f"WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    lines = [{"target": name}, {"K": "a", "N": 1, "D": 1.25}, {"K": "b", "N": "x"}, {"k": "c", "n": 3}, {"nope": 1}]
    answer = ksql.post("/inserts-stream", content="\n".join(map(json.dumps, lines)),
                       headers={"Content-Type": DELIMITED})  # fmt: skip
    assert answer.status_code == 200, answer.text
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [(one["status"], one["seq"]) for one in told] == [("ok", 0), ("error", 1), ("ok", 2), ("error", 3)]
    assert ksql.all_rows(f"SELECT K, N, D FROM {name} EMIT CHANGES LIMIT 2;") == [["a", 1, 1.25], ["c", 3, None]]
    unknown = ksql.post("/inserts-stream", content=b'{"target": "NOPE"}\n', headers={"Content-Type": DELIMITED})
    assert unknown.json()["error_code"] == 40000


def test_a_push_query_is_answered_while_another_client_does_not_read_its_rows(ksql: Ksql, stream: str) -> None:
    with (
        httpx.Client(base_url=ksql.base_url, timeout=60) as slow,
        slow.stream("POST", "/query-stream", json={"sql": f"SELECT * FROM {stream} EMIT CHANGES;"}) as answer,
    ):
        assert answer.status_code == 200
        assert len(ksql.all_rows(f"SELECT * FROM {stream} EMIT CHANGES LIMIT 4;")) == 4


# Websockets.


def handshake(ksql: Ksql, sql: str) -> socket.socket:
    connection = socket.create_connection((ksql.base_url.host, ksql.base_url.port or 80), timeout=60)
    asked = quote(json.dumps({"ksql": sql, "streamsProperties": {"auto.offset.reset": "earliest"}}))
    head = (
        f"GET /ws/query?request={asked} HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket",
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
    )  # fmt: skip
    connection.sendall("\r\n".join(head).encode())
    return connection


def test_a_websocket_query_sends_columns_rows_and_a_final_message(ksql: Ksql, stream: str) -> None:
    with handshake(ksql, f"SELECT N FROM {stream} WHERE K = 'k1' EMIT CHANGES LIMIT 2;") as connection:
        lines = connection.makefile("rb")
        assert lines.readline().startswith(b"HTTP/1.1 101 ")
        head = b"".join(iter(lines.readline, b"\r\n"))
        # The example of RFC 6455.
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
        held = bytearray(lines.read())
        frames = list(iter(lambda: take_frame(held), None))
    assert [opcode for opcode, _ in frames] == [1, 1, 1, 1, 8]
    assert json.loads(frames[0][1]) == [
        {"name": "N", "schema": {"type": "INTEGER", "fields": None, "memberSchema": None}}
    ]
    assert [json.loads(one[1]) for one in frames[1:4]] == [
        {"row": {"columns": [1]}},
        {"row": {"columns": [3]}},
        {"finalMessage": "Limit Reached"},
    ]


def test_a_websocket_query_ends_when_the_client_sends_a_close_frame(ksql: Ksql, stream: str) -> None:
    with handshake(ksql, f"SELECT N FROM {stream} EMIT CHANGES;") as connection:
        lines = connection.makefile("rb")
        while lines.readline() != b"\r\n":
            pass
        wait_for(lambda: ksql.run("SHOW QUERIES;")[0]["queries"], "the query")
        connection.sendall(
            bytes([0x89, 0x82, 1, 2, 3, 4, ord("h") ^ 1, ord("i") ^ 2]) + bytes([0x88, 0x80, 1, 2, 3, 4])
        )
        held = bytearray(lines.read())
    frames = list(iter(lambda: take_frame(held), None))
    assert (10, b"hi") in frames
    assert frames[-1][0] == 8
    wait_for(lambda: not [one for one in ksql.run("SHOW QUERIES;")[0]["queries"] if stream in one["queryString"]
                          and one["queryType"] == "PUSH"], "the end of the query")  # fmt: skip
    assert ksql.get("/ws/query?request={}").status_code == 426
