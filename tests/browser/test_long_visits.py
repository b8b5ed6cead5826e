"""Slow tests of pages: an expired session (in another control centre), and 10,000 topics."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser.center_process import ControlCenter, Platform
from tests.browser.test_pages import go


def test_an_open_page_with_an_expired_session_leads_to_the_login_which_leads_back_to_the_page(
    browser: Browser, platform: Platform, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("ada: secret, admin\n")
    with ControlCenter(
        tmp_path / "center.log", platform.cluster.bootstrap_servers, platform.registry,
        f"pessoa.authentication.users.file={users}", "pessoa.control.center.session.idle.ms=6000",
    ) as center:  # fmt: skip
        context = browser.new_context(base_url=center.url, locale="en-US")
        page = context.new_page()
        # This page does not refresh itself: a page that does keeps its session in use.
        page.goto("/schemas?q=pay")
        log_in(page)
        expect(page.get_by_role("link", name="payments-value")).to_be_visible()
        page.wait_for_url("**/login?next=**")
        # The session is over for other pages of this browser as well.
        page.goto("/schemas/payments-value")
        page.wait_for_url("**/login?next=**")
        log_in(page)
        page.wait_for_url("**/schemas/payments-value")
        expect(page.get_by_role("heading", level=1)).to_contain_text("payments-value")
        context.close()


def log_in(page: Page) -> None:
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Log in").click()


def test_a_list_of_10000_topics_is_paged_searched_and_found_by_keyboard(page: Page, platform: Platform) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": platform.cluster.bootstrap_servers})
    names = [f"many-{number:05d}" for number in range(10_000)]
    parts = [names[start : start + 1000] for start in range(0, len(names), 1000)]
    for part in parts:
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in part], request_timeout=60).values():
            failure = future.exception(90)
            # On a busy machine librdkafka repeats the request, and the topic exists already.
            assert failure is None or "already exists" in str(failure)
    try:
        go(page, "/topics?q=many-&sort=name&page=200")
        expect(page.locator("tbody tr")).to_have_count(50)
        expect(page.get_by_text("many-09999")).to_be_visible()
        expect(page.get_by_text("page 200 of 200")).to_be_visible()
        page.keyboard.press("Control+k")
        page.get_by_placeholder("Topics, groups, pages …").fill("many-0777")
        expect(page.locator(".palette-row")).to_have_count(10)
        page.keyboard.press("Enter")
        page.wait_for_url("**/topics/many-07770")
        expect(page.locator(".part")).to_have_count(1)
    finally:
        for part in parts:
            for future in admin.delete_topics(part, request_timeout=60).values():
                future.result(90)
