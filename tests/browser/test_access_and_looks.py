"""Who sees what on the pages of the control centre, and how they look: to axe-core, in the dark and on a phone."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.axe_core import axe_script
from tests.browser.center_process import Platform

PAGES = (
    "/", "/classroom", "/brokers", "/brokers/1", "/topics", "/topics/orders", "/topics/orders?tab=messages",
    "/topics/orders?tab=config", "/topics/payments?tab=schema", "/topics/orders?tab=groups",
    "/topics/orders?tab=access", "/consumers", "/consumers/billing", "/schemas", "/schemas/payments-value",
    "/schemas/payments-value?version=2&against=1", "/connect", "/ksql", "/lineage", "/access", "/access?tab=quotas",
    "/access?tab=users", "/alerts", "/settings", "/audit",
)  # fmt: skip
# Colours are of the style sheet, and these have all of them.
DARK_PAGES = ("/", "/topics", "/topics/orders?tab=messages", "/consumers/billing", "/alerts")
# The colours of the editor on /ksql are CodeMirror's own.
PLAIN_PAGES = tuple(one for one in PAGES if one != "/ksql")


def test_a_reader_sees_masked_fields_and_cannot_change_anything(browser: Browser, platform: Platform) -> None:
    context = browser.new_context(base_url=platform.guarded, locale="en-US")
    page = context.new_page()
    page.goto("/topics/orders?tab=messages")
    page.get_by_label("Name").fill("ruy")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("Name or password is wrong.")).to_be_visible()
    page.get_by_label("Name").fill("ruy")
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".msg .value").first).to_contain_text("••••")
    expect(page.locator(".main")).not_to_contain_text("4000-0")
    expect(page.get_by_role("button", name="Produce")).to_be_disabled()
    cookies = {one["name"]: one["value"] for one in context.cookies()}
    refused = httpx.delete(f"{platform.guarded}/api/v1/topics/orders", cookies=cookies)
    assert refused.status_code == 403
    context.close()


def test_a_session_that_has_ended_leads_to_the_login(browser: Browser, platform: Platform) -> None:
    context = browser.new_context(base_url=platform.guarded, locale="en-US")
    page = context.new_page()
    page.goto("/login")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Home")
    page.wait_for_function("window.did_handshake")
    cookies = {one["name"]: one["value"] for one in context.cookies()}
    httpx.get(f"{platform.guarded}/logout", cookies=cookies)
    page.wait_for_url("**/login**", timeout=20_000)
    context.close()


def test_api_wants_a_login_and_no_foreign_page(platform: Platform) -> None:
    url = f"{platform.guarded}/api/v1/topics"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, auth=("ruy", "secret")).status_code == 200
    body = {"name": "forged"}
    assert httpx.post(url, json=body, auth=("ruy", "secret")).status_code == 403
    foreign = {"Origin": "http://evil.example"}
    assert httpx.post(f"{platform.url}/api/v1/topics", json=body, headers=foreign).status_code == 403
    assert httpx.get(f"{platform.url}/", headers={"Host": "evil.example"}).status_code == 403
    document = httpx.get(f"{platform.url}/api/openapi.json").json()
    assert "/api/v1/topics/{topic}/messages" in document["paths"]


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_fault_on_any_page(browser: Browser, platform: Platform, is_dark: bool) -> None:
    script = axe_script()
    context = browser.new_context(base_url=platform.url, locale="en-US", bypass_csp=True)
    theme = "dark" if is_dark else "light"
    context.add_cookies([{"name": "pessoa_theme", "value": theme, "url": platform.url}])
    page = context.new_page()
    faults = []
    for path in DARK_PAGES if is_dark else PLAIN_PAGES:
        page.goto(path)
        page.wait_for_selector(".main")
        page.evaluate(script)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults += [
            (path, one["id"], one["nodes"][0]["html"][:160])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
    context.close()
    assert not faults


def test_a_phone_shows_every_page_without_scrolling_sideways(browser: Browser, platform: Platform) -> None:
    context = browser.new_context(base_url=platform.url, locale="en-US", viewport={"width": 390, "height": 844})
    page = context.new_page()
    wide = []
    for path in PAGES:
        page.goto(path)
        page.wait_for_selector(".main")
        if page.evaluate("document.documentElement.scrollWidth") > 391:
            wide.append(path)
    context.close()
    assert not wide
