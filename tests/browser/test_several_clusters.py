"""A control centre with two clusters: links keep the chosen one, and the only broker of one stops and returns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from pessoa.testing import Broker
from tests.browser.center_process import ControlCenter, Platform
from tests.browser.test_pages import go
from tests.support.topics import fill, make_topic


class TwoClusters(NamedTuple):
    page: Page
    test: Broker


@pytest.fixture
def two(browser: Browser, platform: Platform, tmp_path: Path) -> Iterator[TwoClusters]:
    with Broker() as test:
        make_topic(test.bootstrap_servers, "trial", 2)
        fill(test.bootstrap_servers, "trial", [(b"k", b"only here")])
        with ControlCenter(
            tmp_path / "center.log", platform.cluster.bootstrap_servers, platform.registry,
            f"confluent.controlcenter.kafka.test.bootstrap.servers={test.bootstrap_servers}",
        ) as center:  # fmt: skip
            context = browser.new_context(base_url=center.url, locale="en-US")
            page = context.new_page()
            yield TwoClusters(page, test)
            context.close()


def test_links_keep_the_chosen_cluster_and_pages_show_when_its_broker_stops_and_returns(two: TwoClusters) -> None:
    page = two.page
    go(page, "/")
    expect(page.locator(".clusters .tile")).to_have_count(2)
    page.get_by_label("Cluster").select_option("test")
    page.wait_for_url("**/?cluster=test")
    page.wait_for_function("window.did_handshake")
    page.get_by_role("link", name="Topics", exact=True).click()
    page.wait_for_url("**/topics?cluster=test")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="trial").click()
    page.get_by_role("link", name="Messages", exact=True).click()
    page.wait_for_url(re.compile("tab=messages.*cluster=test"))
    expect(page.locator(".msg")).to_contain_text("only here")
    # A form, a reload and the search by keyboard keep the cluster too.
    page.wait_for_function("window.did_handshake")
    page.get_by_label("Search keys, values, headers").fill("absent")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**cluster=test**")
    expect(page.get_by_text("No message fits.")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Cluster")).to_have_value("test")
    page.wait_for_function("window.did_handshake")
    page.keyboard.press("Control+k")
    page.get_by_placeholder("Topics, groups, pages …").fill("trial")
    expect(page.locator(".palette-row", has_text="trial")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/trial?cluster=test")
    go(page, "/topics/trial?cluster=main")
    expect(page.locator(".main .notice.bad")).to_contain_text("There is no topic trial.")

    go(page, "/topics?cluster=test")
    two.test.stop()
    banner = page.locator(".main .notice.bad")
    expect(banner).to_contain_text("No broker answered", timeout=30_000)
    # The page keeps the last known topics; the other cluster is not affected.
    expect(page.get_by_role("link", name="trial")).to_be_visible()
    other = page.context.new_page()
    go(other, "/topics/orders?cluster=main")
    expect(other.locator(".part")).to_have_count(3)
    go(other, "/?cluster=main")
    expect(other.locator(".clusters .tile", has_text="test")).to_contain_text("No broker answered", timeout=30_000)
    two.test.start()
    expect(banner).to_have_count(0, timeout=30_000)
    expect(page.get_by_role("link", name="trial")).to_be_visible()
