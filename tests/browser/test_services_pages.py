"""User actions on the pages of Connect, ksql and the lineage, with real servers and Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe_core import axe_script, serious_faults
from tests.browser.live_services import LiveServices, live_services
from tests.support.spark import spark_address
from tests.support.topics import fill, make_topic

__all__ = ["spark_address"]
FLOWS = Path(__file__).parents[1] / "pipelines" / "flows.py"
# Queries and tasks start on a Spark that other tests share.
SPARK_MS = 180_000


@pytest.fixture(scope="module")
def live(chromium: str, spark_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServices]:
    with live_services(tmp_path_factory.mktemp("live"), spark_address) as services:
        yield services


@pytest.fixture
def page(browser: Browser, live: LiveServices) -> Iterator[Page]:
    """Open a page of the control centre with services; an uncaught error of a script on it fails the test."""
    context = browser.new_context(
        viewport={"width": 1360, "height": 900}, base_url=live.url, locale="en-US", bypass_csp=True
    )
    context.set_default_timeout(30_000)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert not errors


def go(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for_function("window.did_handshake")


def type_statement(page: Page, text: str) -> None:
    """Replace the text of the editor with key presses, and close its list of completions."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    page.keyboard.press("Escape")


def run(page: Page, text: str) -> None:
    type_statement(page, text)
    page.get_by_role("button", name="Run").click()


def test_a_ksql_query_is_written_with_completion_run_charted_paused_and_terminated(
    page: Page, live: LiveServices
) -> None:
    make_topic(live.servers, "sales", 1)
    go(page, "/ksql")
    page.wait_for_selector("[data-completes]", state="attached")
    run(page, "CREATE STREAM sales (city VARCHAR KEY, amount INT) WITH (kafka_topic='sales', value_format='JSON');")
    expect(page.get_by_text("Stream created")).to_be_visible()
    expect(page.locator("tr", has_text="SALES")).to_contain_text("AMOUNT INTEGER")

    # The names of streams are completed once the page has loaded them from the server.
    go(page, "/ksql")
    page.wait_for_selector("[data-completes]", state="attached")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.type("SELECT * FROM sal", delay=20)
    # Click: within 75 ms after the list appears, the editor inserts an Enter into the text instead.
    page.locator(".cm-tooltip-autocomplete li", has_text="SALES").click()
    expect(page.locator(".cm-content")).to_contain_text("SELECT * FROM SALES")

    run(page, "SELECT * FROM nowhere EMIT CHANGES;")
    expect(page.locator(".notice.bad")).to_contain_text("does not exist")

    for city, amount in (("Porto", 3), ("Faro", 9), ("Porto", 5)):
        live.ksql.run(f"INSERT INTO sales (city, amount) VALUES ('{city}', {amount});")
    run(page, "SELECT city, amount FROM sales EMIT CHANGES;")
    expect(page.locator(".card", has_text="Result").locator("tbody tr")).to_have_count(3, timeout=SPARK_MS)
    page.get_by_role("button", name="Bars").click()
    expect(page.locator(".bar-row")).to_have_count(2)
    expect(page.locator(".bar-row").first).to_contain_text("Faro")
    live.ksql.run("INSERT INTO sales (city, amount) VALUES ('Porto', 20);")
    expect(page.locator(".bar-row").first).to_contain_text("Porto")
    page.get_by_role("button", name="Line").click()
    expect(page.locator(".chart svg")).to_be_visible()
    page.get_by_role("button", name="Stop").click()

    run(page, "CREATE STREAM large AS SELECT * FROM sales WHERE amount > 4 EMIT CHANGES;")
    expect(page.get_by_text("Created query with ID CSAS_LARGE")).to_be_visible(timeout=SPARK_MS)
    query = page.locator(".query", has_text="CSAS_LARGE")
    expect(query).to_contain_text(re.compile("real-time|micro-batch"), timeout=SPARK_MS)
    expect(query.locator(".query-way")).to_contain_text("sales")
    expect(query.locator(".query-way")).to_contain_text("LARGE")
    query.get_by_text("Statement and plan").click()
    expect(query.locator("pre").last).to_contain_text("WHERE AMOUNT > 4")
    assert serious_faults(page, axe_script()) == []
    query.get_by_role("button", name="Pause").click()
    expect(query.locator(".badge").first).to_have_text("PAUSED", timeout=SPARK_MS)
    query.get_by_role("button", name="Terminate").click()
    expect(page.get_by_text("There is no running query.")).to_be_visible(timeout=SPARK_MS)


def test_a_connector_is_created_through_its_form_shows_dead_letters_and_is_deleted(
    page: Page, live: LiveServices
) -> None:
    make_topic(live.servers, "readings", 1)
    make_topic(live.servers, "readings-refused", 1)
    good = b'{"schema": {"type": "string", "optional": false}, "payload": "21"}'
    fill(live.servers, "readings", [(b"a", good), (b"b", b"this is no JSON"), (b"c", good)])
    target = live.folder / "readings.txt"
    go(page, "/connect")
    page.get_by_role("button", name="Create a connector").click()
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_text("A connector needs a plugin and a name.")).to_be_visible()
    page.get_by_role("combobox", name="Plugin").fill("FileStreamSink")
    page.get_by_role("option", name=re.compile("FileStreamSinkConnector")).click()
    page.get_by_label("Name", exact=True).fill("archive")
    page.get_by_role("button", name="Validate").click()
    expect(page.locator(".q-dialog .notice.bad")).to_contain_text("topics")
    page.get_by_label("topics", exact=True).fill("readings")
    page.get_by_label("file", exact=True).fill(str(target))
    page.get_by_text("More settings").click()
    page.get_by_label("value.converter", exact=True).fill("org.apache.kafka.connect.json.JsonConverter")
    page.get_by_label("errors.tolerance", exact=True).fill("all")
    page.get_by_label("errors.deadletterqueue.topic.name", exact=True).fill("readings-refused")
    page.get_by_label("errors.deadletterqueue.topic.replication.factor", exact=True).fill("1")
    page.get_by_label("errors.deadletterqueue.context.headers.enable", exact=True).fill("true")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/connect/archive")
    expect(page.locator(".tile", has_text="State")).to_contain_text("RUNNING", timeout=SPARK_MS)
    letters = page.locator(".card", has=page.get_by_role("heading", name="Dead letters"))
    expect(letters.locator("tbody tr")).to_have_count(1, timeout=SPARK_MS)
    expect(letters).to_contain_text("this is no JSON")
    expect(page.locator(".tile", has_text="Dead letters")).to_contain_text("1")
    expect(page.locator(".tile", has_text="Throughput")).to_contain_text("/s", timeout=SPARK_MS)
    assert serious_faults(page, axe_script()) == []
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".tile", has_text="State")).to_contain_text("PAUSED", timeout=SPARK_MS)
    go(page, "/connect")
    row = page.locator("tr", has_text="archive")
    expect(row).to_contain_text("readings")
    expect(row.locator(".badge.bad")).to_have_text("1")
    row.get_by_role("link", name="archive").click()
    page.get_by_role("button", name="Delete").click()
    page.locator(".q-dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/connect")
    expect(page.get_by_text("There is no connector.")).to_be_visible()


def test_the_lineage_page_draws_the_topics_that_a_pipeline_a_ksql_query_and_a_connector_read_and_write(
    page: Page, live: LiveServices
) -> None:
    for topic in ("input", "loud"):
        make_topic(live.servers, topic, 1)
    fill(live.servers, "input", [(b"k", b"hello")])
    wanted = {"id": "shout", "start_function": f"{FLOWS}:shout", "topic": "loud"}
    httpx.post(f"{live.pipelines}/queries", json=wanted, timeout=180).raise_for_status()
    live.ksql.run("CREATE STREAM noise (k VARCHAR KEY, v VARCHAR) WITH (kafka_topic='loud', value_format='KAFKA');")
    live.ksql.run("CREATE STREAM noise_again AS SELECT * FROM noise EMIT CHANGES;")
    source = live.folder / "lines.txt"
    source.write_text("um\n")
    config = {"connector.class": "FileStreamSource", "file": str(source), "topic": "input", "tasks.max": "1"}
    live.connect.post("/connectors", json={"name": "lines", "config": config}).raise_for_status()
    go(page, "/lineage")
    flows = page.locator(".card", has=page.get_by_role("heading", name="Readers and writers"))
    for name, reads, writes in (("shout", "input", "loud"), ("CSAS_NOISE_AGAIN", "loud", "NOISE_AGAIN")):
        cells = flows.locator("tr", has_text=name).locator("td")
        expect(cells.nth(2)).to_have_text(reads, timeout=SPARK_MS)
        expect(cells.nth(3)).to_have_text(writes)
    expect(flows.locator("tr", has_text="lines").locator("td").nth(3)).to_have_text("input", timeout=SPARK_MS)
    for link in ("/topics/input", "/topics/loud", "/topics/NOISE_AGAIN", "/connect/lines", "/ksql"):
        expect(page.locator(f"svg a[href='{link}']")).to_be_visible()
    assert serious_faults(page, axe_script()) == []
