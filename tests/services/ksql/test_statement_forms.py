"""Every statement form of ksqlDB's reference, run on a server; statement_forms.txt has the forms and their format.

The tables of docs/KSQL.md list the same forms. These tests fail for a form of the page without a test, a tested form
that the page lacks, a keyword of a form that is in none of its statements, and a statement class without a form.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, get_args
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from pessoa.ksql.analysis.with_properties import INSERT_PROPERTIES, SOURCE_PROPERTIES
from pessoa.ksql.syntax import statement_nodes
from pessoa.ksql.syntax.parser import parse_statements
from pessoa.testing import Broker, SchemaRegistry
from tests.connect.serving import PretendingRunner, connect_worker
from tests.ksql.test_ksql_cases import CASES
from tests.services.ksql.serving import DEADLINE_S, Ksql, ksql_server

PAGE = Path(__file__).parents[3] / "docs" / "KSQL.md"
FORMS_FILE = Path(__file__).parent / "statement_forms.txt"
NAMES = {"S": "FORM_S", "T": "FORM_T", "U": "FORM_U", "U2": "FORM_U2", "FILE": "/tmp/script.sql"}


@dataclass
class Exchange:
    """Statements that are sent together, and the expected response."""

    text: str
    expected: list[tuple[str, str]] = field(default_factory=list)


def read_forms(text: str) -> dict[str, list[Exchange]]:
    forms: dict[str, list[Exchange]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        exchanges: list[Exchange] = []
        for line in body.strip().splitlines():
            if line.startswith("> "):
                kind, _, rest = line[2:].partition(" ")
                exchanges[-1].expected.append((kind, rest))
            elif not exchanges or exchanges[-1].expected:
                exchanges.append(Exchange(line))
            else:
                exchanges[-1].text += "\n" + line
        assert name not in forms, f"{name} is there twice"
        forms[name] = exchanges
    return forms


FORMS = read_forms(FORMS_FILE.read_text(encoding="utf-8"))
# Forms of queries and expressions; the names of other cases in that file (failing ASSERTs) have no backquotes.
CASE_FORMS = {case.name: case.statements for name, case in CASES if name == "forms/queries" and "`" in case.name}


@pytest.fixture(scope="module")
def server(broker: Broker, registry: SchemaRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ksql]:
    home = tmp_path_factory.mktemp("forms")
    with connect_worker(broker.bootstrap_servers, home / "connect", runner=PretendingRunner()) as worker:
        settings = {
            "ksql.service.id": "forms_",
            "ksql.output.topic.name.prefix": "",
            "ksql.connect.url": str(worker.base_url),
            "ksql.schema.registry.url": registry.url,
        }
        with ksql_server(broker.bootstrap_servers, home, settings) as client:
            yield client


@pytest.mark.parametrize("form", FORMS)
def test_each_statement_form_gets_its_expected_response(server: Ksql, form: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("SHOW STREAMS;")
    own = {name: f"{name}{uuid4().hex[:8].upper()}" for name in ("S", "T", "U", "U2")} | {"FILE": str(script)}
    for exchange in FORMS[form]:
        text = Template(exchange.text).safe_substitute(own)
        expected = [(kind, Template(rest).safe_substitute(own)) for kind, rest in exchange.expected]
        check(server, text, expected)


def check(server: Ksql, text: str, expected: list[tuple[str, str]]) -> None:
    kind, rest = expected[0]
    if kind == "cli":
        command = [sys.executable, "-m", "pessoa", "ksql", "-e", text, str(server.base_url)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert rest in done.stdout, done
        return
    last = text.strip().splitlines()[-1]
    asks = last.startswith(("SELECT", "PRINT"))
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = server.post("/query-stream", json={"sql": text}) if asks else server.post("/ksql", json={"ksql": text})
        wrong = difference(answer.status_code, answer.text, expected)
        # The table of a pull query lags behind its topic.
        if not wrong or kind != "row" or time.monotonic() > deadline:
            assert not wrong, f"{text}\n{wrong}\n{answer.text}"
            return
        time.sleep(0.05)


def difference(status: int, body: str, expected: list[tuple[str, str]]) -> str:
    """Return how the response differs from the expected one; "" if it does not."""
    kind, rest = expected[0]
    if kind == "error":
        code, _, words = rest.partition(" ")
        found = json.loads(body)
        same = status != 200 and found["error_code"] == int(code) and words in found["message"]
        return "" if same else f"not refused with {rest}"
    if status != 200:
        return "refused"
    if kind == "row":
        rows = [json.loads(line) for line in body.splitlines()[1:]]
        wanted = [json.loads(row) for _, row in expected]
        return "" if sorted(rows, key=str) == sorted(wanted, key=str) else f"not the rows {wanted}"
    if kind == "line":
        lines = body.splitlines()
        same = len(lines) == len(expected) and all(
            word in line for line, (_, word) in zip(lines, expected, strict=True)
        )
        return "" if same else "not these lines"
    entities: list[dict[str, Any]] = json.loads(body)
    if kind == "nothing":
        return "" if entities == [] else "not nothing"
    if [one["@type"] for one in entities] != [wanted for wanted, _ in expected]:
        return "not of these types"
    shown = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in entities]
    missing = [words for one, (_, words) in zip(shown, expected, strict=True) if words not in one]
    return f"not there: {missing}" if missing else ""


def test_retention_ms_and_cleanup_policy_of_create_stream_become_topic_configs(
    server: Ksql, broker: Broker, name: str
) -> None:
    server.run(
        f"CREATE STREAM {name} (V VARCHAR) WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=1, "
        "RETENTION_MS=3600000, CLEANUP_POLICY='compact');"
    )
    resource = ConfigResource(ResourceType.TOPIC, name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found = admin.describe_configs([resource])[resource].result()
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("3600000", "compact")


# Completeness of the list.


def forms_of_the_page() -> list[str]:
    """Return the first cells of the tables below `## Statements` and `## Queries and expressions`."""
    text = PAGE.read_text(encoding="utf-8")
    found: list[str] = []
    for heading in ("## Statements", "## Queries and expressions"):
        section = text.split(f"\n{heading}\n")[1].split("\n## ")[0]
        cells = [re.split(r"(?<!\\)\|", line)[1] for line in section.splitlines() if line.startswith("|")]
        found += [cell.strip().replace("\\|", "|") for cell in cells[2:]]
    return found


def test_the_ksql_page_lists_exactly_the_tested_statement_forms() -> None:
    assert sorted(forms_of_the_page()) == sorted([*FORMS, *CASE_FORMS])


def test_each_keyword_of_a_statement_form_is_in_one_of_its_statements() -> None:
    texts = {name: "\n".join(one.text for one in exchanges) for name, exchanges in FORMS.items()} | CASE_FORMS
    missing = {}
    for name, text in texts.items():
        marked = " ".join(re.findall(r"`+([^`]+)`+", name))
        wanted = {re.sub(r"\[S\]$", "", word) for word in re.findall(r"\b[A-Z_]{2,}\b(?:\[S\])?", marked)}
        there = set(re.findall(r"[A-Z_]+", text))
        if wanted - there:
            missing[name] = wanted - there
    assert missing == {}


def test_every_statement_class_of_the_parser_has_a_statement_form() -> None:
    texts = [Template(one.text).safe_substitute(NAMES) for exchanges in FORMS.values() for one in exchanges]
    found = {type(parsed.statement) for text in [*texts, *CASE_FORMS.values()] for parsed in parse_statements(text)}
    assert {kind.__name__ for kind in get_args(statement_nodes.Statement)} == {kind.__name__ for kind in found}


def test_every_with_property_is_in_one_of_the_statement_forms() -> None:
    there = {word for name in FORMS for word in re.findall(r"\b[A-Z_]+\b", name)}
    assert {*SOURCE_PROPERTIES, *INSERT_PROPERTIES} - there == set()
