"""Statements of every kind through POST /ksql, on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from pessoa.testing import Broker
from tests.services.ksql.serving import Ksql, wait_for

ORDERS = "(ID INT KEY, ITEM VARCHAR, AMOUNT DOUBLE)"


def create(ksql: Ksql, name: str, columns: str = ORDERS, more: str = "") -> None:
    (made,) = ksql.run(
        f"CREATE STREAM {name} {columns} WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=1{more});"
    )
    assert made["@type"] == "currentStatus"
    assert made["commandStatus"]["status"] == "SUCCESS"
    assert made["commandStatus"]["message"] == "Stream created"
    assert made["commandId"] == f"stream/{name}/create"


def test_a_stream_is_created_with_its_topic_listed_described_and_dropped_with_its_topic(
    ksql: Ksql, broker: Broker, name: str
) -> None:
    create(ksql, name)
    listed, described, topics = ksql.run(f"SHOW STREAMS; DESCRIBE {name} EXTENDED; SHOW TOPICS;")
    assert {"type": "STREAM", "name": name, "topic": name, "keyFormat": "KAFKA", "valueFormat": "JSON",
            "isWindowed": False} in listed["streams"]  # fmt: skip
    source = described["sourceDescription"]
    assert [(one["name"], one["schema"]["type"], one.get("type")) for one in source["fields"]] == [
        ("ID", "INTEGER", "KEY"),
        ("ITEM", "STRING", None),
        ("AMOUNT", "DOUBLE", None),
    ]
    assert (source["partitions"], source["replication"]) == (1, 1)
    assert {"name": name, "replicaInfo": [1]} in topics["topics"]
    (dropped,) = ksql.run(f"DROP STREAM {name} DELETE TOPIC;")
    assert dropped["commandStatus"]["message"] == f"Source `{name}` (topic: {name}) was dropped."
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wait_for(lambda: name not in admin.list_topics(timeout=10).topics, "the topic's end")


def test_a_stream_over_a_missing_topic_is_refused_with_a_hint_to_partitions(ksql: Ksql, name: str) -> None:
    refused = ksql.refused(f"CREATE STREAM {name} {ORDERS} WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON');")
    assert refused["@type"] == "statement_error"
    assert refused["error_code"] == 40001
    assert refused["message"].startswith(f"Kafka topic does not exist: {name}")
    assert "PARTITIONS" in refused["message"]


def test_a_stream_with_another_partition_count_than_its_topic_is_refused(ksql: Ksql, name: str) -> None:
    create(ksql, name)
    refused = ksql.refused(
        f"CREATE STREAM {name}2 {ORDERS} WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=7);"
    )
    assert "KSQL expects 7 partitions (topic has 1)" in refused["message"]


def test_statements_before_a_failing_one_are_run_and_returned_with_the_error(ksql: Ksql, name: str) -> None:
    refused = ksql.refused(
        f"CREATE STREAM {name} {ORDERS} WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=1);"
        f"DESCRIBE NO_SUCH_{name};"
    )
    assert [one["@type"] for one in refused["entities"]] == ["currentStatus"]
    assert refused["statementText"] == f"DESCRIBE NO_SUCH_{name};"
    assert f"Could not find STREAM/TABLE 'NO_SUCH_{name}' in the Metastore" in refused["message"]


def test_a_syntax_error_is_answered_with_line_column_and_a_suggestion(ksql: Ksql) -> None:
    refused = ksql.refused("SHOW STREEMS;")
    assert refused["error_code"] == 40001
    assert "line 1:6" in refused["message"]
    assert "Did you mean STREAMS?" in refused["message"]


def test_select_and_print_get_40002_at_the_ksql_endpoint(ksql: Ksql) -> None:
    assert ksql.refused("SELECT * FROM X EMIT CHANGES;")["error_code"] == 40002
    assert ksql.refused("PRINT x;")["error_code"] == 40002


def test_create_if_not_exists_and_drop_if_exists_answer_with_a_warning(ksql: Ksql, name: str) -> None:
    create(ksql, name)
    with_ = f"WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON')"
    (again,) = ksql.run(f"CREATE STREAM IF NOT EXISTS {name} {ORDERS} {with_};")
    assert again["@type"] == "warning_entity"
    assert again["message"] == f"Cannot add stream '{name}': A stream with the same name already exists"
    (gone,) = ksql.run(f"DROP STREAM IF EXISTS {name}_NOT_THERE;")
    assert gone["@type"] == "warning_entity"
    assert "already exists" in ksql.refused(f"CREATE STREAM {name} {ORDERS} {with_};")["message"]


def test_a_query_is_created_listed_explained_paused_resumed_and_terminated(ksql: Ksql, name: str) -> None:
    create(ksql, name)
    (made,) = ksql.run(f"CREATE STREAM {name}_BIG AS SELECT * FROM {name} WHERE AMOUNT > 10 EMIT CHANGES;")
    query_id = made["commandStatus"]["queryId"]
    assert made["commandStatus"]["message"] == f"Created query with ID {query_id}"
    assert query_id == f"CSAS_{name}_BIG_{made['commandSequenceNumber']}"
    (queries,) = ksql.run("SHOW QUERIES;")
    row = next(one for one in queries["queries"] if one["id"] == query_id)
    assert (row["sinks"], row["sinkKafkaTopics"], row["queryType"]) == ([f"{name}_BIG"], [f"{name}_BIG"], "PERSISTENT")
    explained = ksql.run(f"EXPLAIN {query_id};")[0]["queryDescription"]
    assert explained["sources"] == [name]
    assert "WHERE" in explained["executionPlan"]
    assert explained["topology"] == "runs in a thread of the test"

    def state() -> str:
        return str(ksql.run(f"EXPLAIN {query_id};")[0]["queryDescription"]["state"])

    assert ksql.run(f"PAUSE {query_id};")[0]["commandStatus"]["message"] == "Query paused."
    wait_for(lambda: state() == "PAUSED", "the pause")
    ksql.run(f"RESUME {query_id};")
    wait_for(lambda: state() == "RUNNING", "the resumption")
    assert "read from this source" in ksql.refused(f"DROP STREAM {name};")["message"]
    ended = ksql.run(f"TERMINATE {query_id};")[0]
    assert ended["commandStatus"]["message"] == "Query terminated."
    assert query_id not in [one["id"] for one in ksql.run("SHOW QUERIES;")[0]["queries"]]
    ksql.run(f"DROP STREAM {name}_BIG; DROP STREAM {name};")


def test_insert_into_select_writes_into_an_existing_stream(ksql: Ksql, name: str) -> None:
    create(ksql, name)
    create(ksql, f"{name}_ALL")
    (made,) = ksql.run(f"INSERT INTO {name}_ALL SELECT * FROM {name} EMIT CHANGES;")
    assert made["commandStatus"]["queryId"].startswith("INSERTQUERY_")
    ksql.run(f"INSERT INTO {name} VALUES (1, 'pen', 2.5);")
    assert ksql.all_rows(f"SELECT ID, ITEM FROM {name}_ALL EMIT CHANGES LIMIT 1;") == [[1, "pen"]]


def test_alter_stream_adds_a_column(ksql: Ksql, name: str) -> None:
    create(ksql, name)
    (altered,) = ksql.run(f"ALTER STREAM {name} ADD COLUMN COLOUR VARCHAR;")
    assert altered["commandStatus"]["message"] == f"Stream {name} altered successfully."
    ksql.run(f"INSERT INTO {name} (ID, COLOUR) VALUES (7, 'red');")
    assert ksql.all_rows(f"SELECT * FROM {name} EMIT CHANGES LIMIT 1;") == [[7, None, None, "red"]]


def test_types_are_registered_used_listed_and_dropped(ksql: Ksql, name: str) -> None:
    (made,) = ksql.run(f"CREATE TYPE T{name} AS STRUCT<STREET VARCHAR, NUMBER INT>;")
    assert made["commandStatus"]["message"].startswith(f"Registered custom type with name 'T{name}' and SQL type")
    assert ksql.run("SHOW TYPES;")[0]["types"][f"T{name}"]["type"] == "STRUCT"
    create(ksql, name, f"(ID INT KEY, HOME T{name})")
    ksql.run(f"INSERT INTO {name} VALUES (1, STRUCT(STREET := 'Rua A', NUMBER := 3));")
    assert ksql.all_rows(f"SELECT HOME->STREET, HOME FROM {name} EMIT CHANGES LIMIT 1;") == [
        ["Rua A", {"STREET": "Rua A", "NUMBER": 3}]
    ]
    assert ksql.run(f"DROP TYPE T{name};")[0]["commandStatus"]["message"] == f"Dropped type 'T{name}'"


def test_variables_and_properties_apply_to_their_request(ksql: Ksql, name: str) -> None:
    ksql.run(
        f"DEFINE s = '{name}'; CREATE STREAM ${{s}} {ORDERS} WITH (KAFKA_TOPIC='${{s}}', VALUE_FORMAT='JSON', "
        "PARTITIONS=1);"
    )
    found = ksql.run("SHOW VARIABLES;", sessionVariables={"colour": "red"})[0]
    assert found["variables"] == [{"name": "COLOUR", "value": "red"}]
    shown = ksql.run("SET 'auto.offset.reset'='earliest'; SHOW PROPERTIES;")[0]
    assert shown["overwrittenProperties"] == ["auto.offset.reset"]
    assert not any("password" in one["name"] or "jaas" in one["name"] for one in shown["properties"])
    assert ksql.refused("SET 'no.such'='x';")["message"].startswith("Not recognizable")
    assert ksql.refused("SET 'auto.offset.reset'='never';")["error_code"] == 40001


def test_functions_are_listed_and_described(ksql: Ksql) -> None:
    listed, described = ksql.run("SHOW FUNCTIONS; DESCRIBE FUNCTION SUBSTRING;")
    assert {"name": "COUNT", "type": "AGGREGATE", "category": "AGGREGATE"} in listed["functions"]
    assert len(listed["functions"]) > 140
    assert described["name"] == "SUBSTRING"
    assert described["functions"]
    assert "Did you mean" in ksql.refused("DESCRIBE FUNCTION SUBSTRIN;")["message"]


def test_assert_topic_and_assert_schema_succeed_or_fail_with_41700(ksql: Ksql, name: str) -> None:
    create(ksql, name)
    found = ksql.run(f"ASSERT TOPIC {name} WITH (PARTITIONS=1); ASSERT NOT EXISTS TOPIC nope TIMEOUT 1 SECOND;")
    assert [one["@type"] for one in found] == ["assert_topic", "assert_topic"]
    failed = ksql.refused(f"ASSERT TOPIC {name} WITH (PARTITIONS=3) TIMEOUT 100 MILLISECONDS;")
    assert failed["error_code"] == 41700
    assert ksql.run("ASSERT NOT EXISTS SCHEMA SUBJECT 'nope' TIMEOUT 1 SECOND;")[0]["exists"] is False


def test_describe_extended_in_the_form_of_ksql_5_x_works_with_a_warning(ksql: Ksql, name: str) -> None:
    create(ksql, name)
    (described,) = ksql.run(f"DESCRIBE EXTENDED {name};")
    assert described["sourceDescription"]["extended"] is True
    assert described["warnings"]


@pytest.mark.parametrize("value_format", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_columns_are_read_from_the_registry_and_schemas_are_registered_there(
    ksql: Ksql, name: str, value_format: str
) -> None:
    ksql.run(
        f"CREATE STREAM {name} (ID VARCHAR KEY, ITEM VARCHAR, COUNTED INT, PRICE DOUBLE, TAGS ARRAY<VARCHAR>) "
        f"WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='{value_format}', PARTITIONS=1);"
    )
    assert ksql.run(f"ASSERT SCHEMA SUBJECT '{name}-value';")[0]["exists"] is True
    ksql.run(f"CREATE STREAM {name}_TOO (ID VARCHAR KEY) WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='{value_format}');")
    fields = ksql.run(f"DESCRIBE {name}_TOO;")[0]["sourceDescription"]["fields"]
    assert [(one["name"], one["schema"]["type"]) for one in fields] == [
        ("ID", "STRING"),
        ("ITEM", "STRING"),
        ("COUNTED", "INTEGER"),
        ("PRICE", "DOUBLE"),
        ("TAGS", "ARRAY"),
    ]
    ksql.run(f"INSERT INTO {name} VALUES ('k', 'pen', 3, 1.5, ARRAY['a', 'b']);")
    assert ksql.all_rows(f"SELECT * FROM {name}_TOO EMIT CHANGES LIMIT 1;") == [["k", "pen", 3, 1.5, ["a", "b"]]]


def test_the_status_endpoint_returns_the_status_of_a_command(ksql: Ksql, name: str) -> None:
    create(ksql, name)
    assert ksql.get(f"/status/stream/{name}/create").json()["status"] == "SUCCESS"
    assert ksql.get("/status").json()["commandStatuses"][f"stream/{name}/create"] == "SUCCESS"
    missing = ksql.get("/status/stream/nope/create")
    assert (missing.status_code, missing.json()["error_code"]) == (404, 40400)


def test_info_health_property_cluster_and_metrics_endpoints_of_a_ksql_server_answer(ksql: Ksql) -> None:
    info = ksql.get("/info").json()["KsqlServerInfo"]
    assert info["ksqlServiceId"] == "shared_"
    assert info["serverStatus"] == "RUNNING"
    health = ksql.get("/healthcheck").json()
    assert health["isHealthy"] is True
    assert health["details"]["kafka"] == {"isHealthy": True}
    root = ksql.get("/", follow_redirects=False)
    assert (root.status_code, root.headers["location"]) == (307, "/info")
    assert ksql.get("/is_valid_property/ksql.streams.auto.offset.reset").json() is True
    assert ksql.get("/is_valid_property/nope").json()["error_code"] == 40000
    assert ksql.get("/clusterStatus").json()["clusterStatus"]
    assert ksql.get("/v1/metadata/id").json()["scope"]["clusters"]["ksql-cluster"] == "shared_"
    assert "ksql_persistent_queries" in ksql.get("/metrics").text


def test_malformed_requests_to_the_ksql_endpoint_are_refused(ksql: Ksql) -> None:
    assert ksql.post("/ksql", content=b"{").status_code == 400
    assert ksql.post("/ksql", json={"ksql": ""}).json()["error_code"] == 40000
    assert ksql.post("/ksql", json={}).status_code == 422
    assert ksql.get("/ksql").status_code == 405
