"""Sources of every kind, and statements analysed against them."""

from __future__ import annotations

import pytest

from pessoa.ksql.analysis.analyser import Decision, analyse
from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.analysis.source_catalogue import Catalogue
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.parser import parse_statement, parse_statements

SETUP = """
CREATE STREAM orders (id BIGINT KEY, item STRING, amount INT, price DECIMAL(6,2), at TIMESTAMP, tags ARRAY<STRING>,
    address STRUCT<city STRING, zip INT>, props MAP<STRING, STRING>)
    WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=4);
CREATE STREAM payments (pid STRING KEY, id BIGINT, paid INT)
    WITH (KAFKA_TOPIC='payments', VALUE_FORMAT='AVRO', PARTITIONS=4);
CREATE STREAM clicks (url STRING, user STRING) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', KEY_FORMAT='NONE');
CREATE STREAM raw (k STRING KEY, v STRING) WITH (KAFKA_TOPIC='raw', FORMAT='KAFKA');
CREATE STREAM two (a INT KEY, b STRING KEY, v INT) WITH (KAFKA_TOPIC='two', FORMAT='JSON');
CREATE STREAM shipments (id BIGINT KEY, carrier STRING) WITH (KAFKA_TOPIC='sh', VALUE_FORMAT='JSON', PARTITIONS=3);
CREATE STREAM wins (id BIGINT KEY, n INT)
    WITH (KAFKA_TOPIC='w', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='5 SECONDS');
CREATE STREAM sessions (id BIGINT KEY, n INT) WITH (KAFKA_TOPIC='ws', VALUE_FORMAT='JSON', WINDOW_TYPE='SESSION');
CREATE TABLE users (uid STRING PRIMARY KEY, name STRING, region INT) WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON');
CREATE TABLE regions (rid INT PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC='regions', VALUE_FORMAT='JSON');
CREATE TABLE more_users (uid STRING PRIMARY KEY, email STRING) WITH (KAFKA_TOPIC='more', VALUE_FORMAT='JSON');
CREATE SOURCE TABLE stock (item STRING PRIMARY KEY, n INT) WITH (KAFKA_TOPIC='stock', VALUE_FORMAT='JSON');
CREATE TABLE wtable (id BIGINT PRIMARY KEY, n INT) WITH (KAFKA_TOPIC='wt', VALUE_FORMAT='JSON', WINDOW_TYPE='SESSION');
CREATE TYPE price AS DECIMAL(6, 2);
"""


def build() -> Catalogue:
    catalogue = Catalogue()
    for parsed in parse_statements(SETUP):
        catalogue = analyse(parsed, catalogue).catalogue
    return catalogue


CATALOGUE = build()


def decide(text: str, catalogue: Catalogue = CATALOGUE) -> Decision:
    return analyse(parse_statement(text), catalogue)


def plan(text: str) -> LogicalPlan:
    found = decide(text).plan
    assert found is not None
    return found


def failure(text: str) -> SemanticFailure:
    with pytest.raises(SemanticFailure) as caught:
        decide(text)
    return caught.value
