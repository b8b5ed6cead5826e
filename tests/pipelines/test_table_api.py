"""The HTTP interface of materialised tables, on a real broker and without Spark."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pessoa.pipelines.table_api import table_endpoints
from pessoa.pipelines.table_shelf import TableShelf, folder_of
from pessoa.testing import Broker
from pessoa.web.asgi_app import App, make_app
from pessoa.web.serving import ThreadedServer
from tests.support.topics import eventually, fill, make_topic

WAIT = {"wait_ms": "30000"}


@pytest.fixture(scope="module")
def url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = broker.bootstrap_servers
    make_topic(servers, "totais")
    fill(
        servers, "totais", [(b"ana", b'{"total": 1}'), (b"rui", b"text"), (b"ana", b'{"total": 2}'), (b"\xff", b"\xfe")]
    )
    make_topic(servers, "janelas")
    fill(servers, "janelas", [(b"ana" + struct.pack(">q", start), b"%d" % start) for start in (0, 60_000, 120_000)])
    make_topic(servers, "numeros")
    fill(servers, "numeros", [(struct.pack(">q", 7), b"seven")])
    shelf = TableShelf({"bootstrap.servers": servers}, tmp_path_factory.mktemp("tables"))

    async def make() -> App:
        return make_app("tables", table_endpoints(shelf))

    with ThreadedServer(make) as server:
        yield server.url
    shelf.close()


def get(url: str, path: str, **query: str) -> Any:
    answer = httpx.get(f"{url}{path}", params={**WAIT, **query}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_table_rows_are_found_by_key_range_and_prefix_and_the_answer_reports_the_lag(url: str) -> None:
    found = get(url, "/tables/totais/rows", key="ana")
    (row,) = found["rows"]
    assert (row["key"], row["value"], row["offset"]) == ("ana", {"total": 2}, 2)
    assert (found["topic"], found["trouble"], found["next"]) == ("totais", "", None)
    assert get(url, "/tables/totais/rows", key="eva")["rows"] == []
    rows = get(url, "/tables/totais/rows")["rows"]
    assert [row["key"] for row in rows] == ["ana", "rui", {"base64": base64.urlsafe_b64encode(b"\xff").decode()}]
    assert [row["key"] for row in get(url, "/tables/totais/rows", **{"from": "b", "to": "s"})["rows"]] == ["rui"]
    assert [row["value"] for row in get(url, "/tables/totais/rows", prefix="r")["rows"]] == ["text"]
    eventually(lambda: get(url, "/tables/totais/rows", key="ana")["lag"] == 0)
    (listed,) = [each for each in get(url, "/tables") if each["topic"] == "totais"]
    assert (listed["count"], sum(listed["offsets"].values())) == (3, 4)


def test_table_rows_are_paged_and_keys_are_read_and_shown_in_the_requested_format(url: str) -> None:
    first = get(url, "/tables/totais/rows", limit="1")
    second = get(url, "/tables/totais/rows", limit="1", key_format="base64", **{"from": first["next"]})
    assert [first["rows"][0]["key"], second["rows"][0]["key"]] == ["ana", "rui"]
    assert [row["value"] for row in get(url, "/tables/numeros/rows", key="7", key_format="long")["rows"]] == ["seven"]


def test_windowed_rows_of_a_key_are_found_by_window_start(url: str) -> None:
    found = get(url, "/tables/janelas/windows", key="ana", start="60000")["rows"]
    assert [(row["key"], row["window_start"], row["value"]) for row in found] == [
        ("ana", 60_000, 60_000), ("ana", 120_000, 120_000),
    ]  # fmt: skip
    assert len(get(url, "/tables/janelas/windows", key="ana", end="60000")["rows"]) == 1


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/tables/totais/rows?key=a&prefix=b", 400, "not for several at once"),
        ("/tables/totais/rows?limit=many", 400, "limit is a number from 0 to 10000, not many"),
        ("/tables/totais/rows?key=x&key_format=long", 400, "key=x is no key of format long"),
        ("/tables/totais/rows?key=x&key_format=xml", 400, "there is no key_format xml: base64, string"),
        ("/tables/totais/windows", 400, "of which key"),
        ("/tables/nenhum/rows?wait_ms=3000", 404, "the topic nenhum does not exist"),
    ],
)
def test_an_invalid_table_request_is_refused_with_the_reason(url: str, path: str, status: int, words: str) -> None:
    answer = httpx.get(f"{url}{path}", timeout=60)
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text


def test_folder_names_of_tables_are_short_and_cannot_leave_their_directory() -> None:
    assert folder_of("totais.v2") == "totais.v2"
    assert folder_of("../x").startswith("topic-")
    assert folder_of("..").startswith("topic-")
    assert len(Path(folder_of("x" * 300)).name) < 80
