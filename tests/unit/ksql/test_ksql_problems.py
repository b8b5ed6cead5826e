"""Error bodies of the ksql server."""

from __future__ import annotations

import json

import pytest

from pessoa.ksql.server.kafka_clients import KafkaRefused
from pessoa.ksql.server.ksql_problems import KsqlProblem, error_body
from pessoa.web.problems import HttpProblem, plain_problem


@pytest.mark.parametrize(
    ("sentence", "denied"),
    [
        ("the topic s could not be created: Not authorised for the topic.", True),
        ("Broker: Topic authorization failed", True),
        ("no broker answered", False),
    ],
)
def test_a_kafka_error_about_missing_acls_is_recognised_as_denied(sentence: str, denied: bool) -> None:
    assert KafkaRefused(sentence).is_denied is denied


def test_the_http_status_is_the_ksql_error_code_without_its_last_digits() -> None:
    problem = KsqlProblem(40301, "no", "SHOW TOPICS;")
    assert problem.status == 403
    body, kind = error_body(problem, "application/vnd.ksqlapi.delimited.v1")
    assert kind == "application/json"
    assert json.loads(body) == {
        "@type": "statement_error",
        "error_code": 40301,
        "message": "no",
        "statementText": "SHOW TOPICS;",
        "entities": [],
    }


@pytest.mark.parametrize("problem", [plain_problem(404), HttpProblem(400, "x"), HttpProblem(401, "Unauthorized")])
def test_a_problem_of_the_framework_has_a_code_of_five_digits(problem: HttpProblem) -> None:
    body = json.loads(error_body(problem, "application/json")[0])
    assert body["@type"] == "generic_error"
    assert body["error_code"] == problem.status * 100
