"""Neither valid nor invalid requests of our OpenAPI document make the registry answer with 5xx.

The registry is used by this test only, because the requests change modes and configs. Half of the requests name a
subject that exists and have a schema that parses, so that they pass the first checks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from pessoa.testing.broker import Broker
from tests.services.schema_registry.serving import registry_client

# schemathesis imports its parts late, and pytest compiles them in the test's thread then. In Python 3.11 that can fail
# with "AST constructor recursion depth mismatch" while another thread compiles too, as those of the broker and the
# registry do. So everything is imported here, before there are threads.
import_module("schemathesis.generation.jsonschema.strategy")
schemathesis.openapi.from_dict({"openapi": "3.1.0", "info": {"title": "nothing", "version": "1"}, "paths": {}})

EXAMPLES = int(os.environ.get("PESSOA_SCHEMATHESIS_EXAMPLES", "4"))
SUBJECT = {"subject": "known", "version": "1", "id": 1}
BODIES: list[dict[str, Any]] = [
    {"schema": '"string"'},
    {"schema": '{"type":"object"}', "schemaType": "JSON"},
    {"schema": 'syntax="proto3"; message A { int32 a = 1; }', "schemaType": "PROTOBUF"},
    {"schema": '"n.X"', "references": [{"name": "n.X", "subject": "known", "version": 1}]},
]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with Broker() as broker, registry_client(broker.bootstrap_servers) as client:
        yield client


@pytest.mark.parametrize(
    ("mode", "is_known"),
    [(GenerationMode.POSITIVE, True), (GenerationMode.POSITIVE, False), (GenerationMode.NEGATIVE, True)],
    ids=["allowed-known", "allowed-drawn", "not-allowed"],
)
def test_no_request_to_the_registry_drawn_from_its_openapi_document_gets_a_5xx_response(
    http: httpx.Client, mode: GenerationMode, is_known: bool, record_property: Callable[[str, object], None]
) -> None:
    document = schemathesis.openapi.from_dict(http.get("/openapi.json").json())
    seen: dict[int, int] = {}
    operations: list[Any] = [result.ok() for result in cast(Any, document).get_all_operations()]
    for operation in operations:
        given_parameters = {name: value for name, value in SUBJECT.items() if f"{{{name}}}" in operation.path}
        http.delete("/mode?recursive=true")
        http.post("/subjects/known/versions", json=BODIES[0])

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(mode, path_parameters=given_parameters if is_known else None))
        def answered(case: Any) -> None:
            for body in BODIES if is_known and isinstance(case.body, dict) and "schema" in case.body else [None]:
                if body is not None:
                    case.body = {**case.body, **body}
                answer = case.call(base_url=str(http.base_url), timeout=60)
                seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
                assert answer.status_code < 500, f"{case.as_curl_command()}\n{answer.text}"

        # An operation that allows every request has no invalid one.
        with contextlib.suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else contextlib.nullcontext():
            answered()
    assert len(operations) > 35
    record_property("summary", f"schemathesis: {sum(seen.values())} requests, {dict(sorted(seen.items()))}")
