"""Restart and takeover by a server with the same service id, logins, TLS, user functions, headless mode and limits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import httpx

from pessoa.ksql.query_runner import PersistentQuery
from pessoa.ksql.server.server_config import KsqlConfig
from pessoa.testing import Broker
from pessoa.web.trust import tls_context
from tests.services.certificates import Authority
from tests.services.ksql.serving import ThreadRunner, ksql_server, wait_for

STREAM = "CREATE STREAM S (ID INT KEY, V VARCHAR) WITH (KAFKA_TOPIC='{0}', VALUE_FORMAT='JSON', PARTITIONS=1);"
TABLE = "CREATE TABLE T AS SELECT V, COUNT(*) AS C FROM S GROUP BY V EMIT CHANGES;"


class RecordingRunner(ThreadRunner):
    """Records the ids of the queries that it has started."""

    def __init__(self, config: KsqlConfig) -> None:
        super().__init__(config)
        self.started: list[str] = []

    def start(self, query: PersistentQuery) -> None:
        self.started.append(query.id)
        super().start(query)


def test_a_restarted_ksql_server_restores_its_sources_types_and_queries(broker: Broker, tmp_path: Path) -> None:
    settings = {"ksql.service.id": "restart_"}
    with ksql_server(broker.bootstrap_servers, tmp_path, settings) as ksql:
        ksql.run(STREAM.format("restart") + TABLE + "CREATE TYPE POINT AS STRUCT<X INT, Y INT>;")
        ksql.run("CREATE STREAM GONE AS SELECT * FROM S EMIT CHANGES; DROP STREAM GONE;")
        ksql.run("INSERT INTO S VALUES (1, 'a');")
        before = ksql.run("SHOW STREAMS; SHOW TABLES; SHOW TYPES; SHOW QUERIES; DESCRIBE T;")
        wait_for(lambda: ksql.rows("SELECT C FROM T WHERE V = 'a';") == [[1]], "the count")
    with ksql_server(broker.bootstrap_servers, tmp_path / "elsewhere", settings) as ksql:
        assert ksql.run("SHOW STREAMS; SHOW TABLES; SHOW TYPES; SHOW QUERIES; DESCRIBE T;") == before
        assert wait_for(lambda: ksql.rows("SELECT V FROM T WHERE V = 'a';"), "the table") == [["a"]]
        (made,) = ksql.run("CREATE STREAM NEXT AS SELECT * FROM S EMIT CHANGES;")
        assert made["commandStatus"]["queryId"] == f"CSAS_NEXT_{made['commandSequenceNumber']}"
        assert made["commandSequenceNumber"] == 5


def test_one_of_two_ksql_servers_runs_the_queries_and_the_other_takes_over_when_it_stops(
    broker: Broker, tmp_path: Path
) -> None:
    settings = {"ksql.service.id": "pair_"}
    runners: dict[str, RecordingRunner] = {}

    def runner(name: str) -> Callable[[KsqlConfig], RecordingRunner]:
        def make(config: KsqlConfig) -> RecordingRunner:
            runners[name] = RecordingRunner(config)
            return runners[name]

        return make

    with ksql_server(broker.bootstrap_servers, tmp_path / "b", settings, runner("second")) as second:
        first_is_up, may_end = threading.Event(), threading.Event()

        def serve_first() -> None:
            with ksql_server(broker.bootstrap_servers, tmp_path / "a", settings, runner("first")):
                first_is_up.set()
                may_end.wait(60)

        thread = threading.Thread(target=serve_first)
        thread.start()
        assert first_is_up.wait(60)
        # Each server accepts statements, and both apply them.
        second.run(STREAM.format("pair") + TABLE)
        wait_for(lambda: sum(len(one.started) for one in runners.values()) == 1, "the start of the query, once")
        may_end.set()
        thread.join(60)
        wait_for(lambda: "CTAS_T_1" in getattr(runners.get("second"), "started", ()), "the takeover")
        second.run("INSERT INTO S VALUES (1, 'x');")
        wait_for(lambda: second.rows("SELECT C FROM T WHERE V = 'x';") == [[1]], "the count")


def test_callers_without_a_login_are_refused_and_https_is_served(broker: Broker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    users = tmp_path / "users"
    users.write_text("ana: secret, admin\n")
    settings = {
        "ksql.service.id": "secure_",
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": authority.sign("localhost"),
        "pessoa.authentication.users.file": str(users),
    }
    with ksql_server(broker.bootstrap_servers, tmp_path / "home", settings) as ksql:
        url = str(ksql.base_url).replace("127.0.0.1", "localhost")
        with httpx.Client(base_url=url, verify=tls_context(authority.path), timeout=30) as caller:
            refused = caller.get("/info")
            assert (refused.status_code, refused.json()["error_code"]) == (401, 40100)
            assert caller.get("/info", auth=("ana", "wrong")).status_code == 401
            assert caller.get("/info", auth=("ana", "secret")).status_code == 200
            assert caller.post("/ksql", json={"ksql": "SHOW STREAMS;"}, auth=("ana", "secret")).status_code == 200


FUNCTIONS = """
from pessoa.ksql.functions.user_functions import udaf, udf, udtf


@udf("SHOUT", "(STRING) STRING", doc="Says it aloud.")
def shout(text):
    return text.upper() + "!"


@udf("BROKEN", "(INT) INT")
def broken(number):
    return number // 0


@udtf("LETTERS", "(STRING) STRING")
def letters(text):
    return list(text)


@udaf("LONGEST", "(STRING) STRING")
class Longest:
    def initial(self):
        return ""

    def add(self, state, text):
        return max(state, text, key=len)

    def merge(self, one, other):
        return max(one, other, key=len)

    def result(self, state):
        return state
"""


def test_user_functions_of_a_directory_work_in_statements(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "mine.py").write_text(FUNCTIONS)
    (tmp_path / "ext" / "wrong.py").write_text("this is no Python")
    with ksql_server(broker.bootstrap_servers, tmp_path, {"ksql.service.id": "functions_"}) as ksql:
        ksql.run(STREAM.format("functions"))
        ksql.run("INSERT INTO S VALUES (1, 'ab'); INSERT INTO S VALUES (1, 'c');")
        said = ksql.all_rows("SELECT SHOUT(V), BROKEN(ID) FROM S EMIT CHANGES LIMIT 2;")
        assert said == [["AB!", None], ["C!", None]]
        assert ksql.all_rows("SELECT LETTERS(V) AS L FROM S EMIT CHANGES LIMIT 3;") == [["a"], ["b"], ["c"]]
        longest = ksql.all_rows("SELECT ID, LONGEST(V) AS L FROM S GROUP BY ID EMIT CHANGES LIMIT 2;")
        assert longest == [[1, "ab"], [1, "ab"]]
        assert ksql.run("DESCRIBE FUNCTION SHOUT;")[0]["description"] == "Says it aloud."


def test_a_headless_server_runs_its_queries_file_and_refuses_other_statements(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "queries.sql"
    file.write_text(STREAM.format("headless") + TABLE)
    settings = {"ksql.service.id": "headless_", "ksql.queries.file": str(file)}
    with ksql_server(broker.bootstrap_servers, tmp_path, settings) as ksql:
        refused = ksql.post("/ksql", json={"ksql": "SHOW STREAMS;"})
        assert (refused.status_code, refused.json()["error_code"]) == (403, 40300)
        assert ksql.rows("SELECT * FROM T WHERE V = 'x';") == []


def test_terminate_ends_queries_drops_sources_and_deletes_the_listed_topics(broker: Broker, tmp_path: Path) -> None:
    with ksql_server(broker.bootstrap_servers, tmp_path, {"ksql.service.id": "terminate_"}) as ksql:
        ksql.run(STREAM.format("ended") + TABLE)
        ended = ksql.post("/ksql/terminate", json={"deleteTopicList": ["terminate_T"]})
        assert ended.status_code == 200, ended.text
        streams, tables, queries, topics = ksql.run("SHOW STREAMS; SHOW TABLES; SHOW QUERIES; SHOW TOPICS;")
        assert (streams["streams"], tables["tables"], queries["queries"]) == ([], [], [])
        names = [one["name"] for one in topics["topics"]]
        assert "ended" in names
        wait_for(
            lambda: "terminate_T" not in [one["name"] for one in ksql.run("SHOW TOPICS;")[0]["topics"]],
            "the end of the topic",
        )


def test_push_queries_above_max_push_queries_are_refused(broker: Broker, tmp_path: Path) -> None:
    settings = {"ksql.service.id": "most_", "max.push.queries": "1"}
    with ksql_server(broker.bootstrap_servers, tmp_path, settings) as ksql:
        ksql.run(STREAM.format("most"))
        asked = {"sql": "SELECT * FROM S EMIT CHANGES;"}
        with ksql.stream("POST", "/query-stream", json=asked) as one:
            assert one.status_code == 200
            assert ksql.post("/query-stream", json=asked).json()["error_code"] == 40003
