"""Logins and roles on the pages of the control centre, and their look: accessibility, dark theme, phone width."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, ViewportSize, expect

from pessoa import control_center
from tests.browser.axe_core import axe_script, serious_faults
from tests.browser.center_process import Platform

# The checked pages; `test_the_list_of_checked_pages_has_an_example_of_every_route` fails if one is missing.
PAGES = (
    "/", "/classroom", "/brokers", "/brokers/1", "/topics", "/topics/orders", "/topics/orders?tab=messages",
    "/topics/orders?tab=config", "/topics/payments?tab=schema", "/topics/orders?tab=groups",
    "/topics/orders?tab=analysis", "/topics/orders?tab=access", "/consumers", "/consumers/billing", "/schemas",
    "/schemas/payments-value", "/schemas/payments-value?version=2&against=1", "/connect", "/connect/nowhere", "/ksql",
    "/lineage", "/access", "/access?tab=quotas", "/access?tab=users", "/alerts", "/settings", "/audit", "/login",
)  # fmt: skip
# RULES_OF_LOOKS depend on theme and width; the other rules of axe-core are checked once per page.
DESKTOP: ViewportSize = {"width": 1360, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
TURN_DARK = "window.Quasar && Quasar.Dark.set(true); document.body.classList.replace('theme-light', 'theme-dark')"
TURN_LIGHT = "window.Quasar && Quasar.Dark.set(false); document.body.classList.replace('theme-dark', 'theme-light')"
RULES_OF_LOOKS = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"]


def test_a_user_with_the_reader_role_sees_masked_fields_and_cannot_change_anything(
    browser: Browser, platform: Platform
) -> None:
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


def test_after_a_logout_open_pages_lead_to_the_login_and_their_buttons_do_nothing(
    browser: Browser, platform: Platform
) -> None:
    context = browser.new_context(base_url=platform.guarded, locale="en-US")
    page = context.new_page()
    page.goto("/login")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Home")
    page.wait_for_function("window.did_handshake")
    # One page follows messages; the other is idle, and its button must do nothing after the logout.
    tail, still = context.new_page(), context.new_page()
    tail.goto("/topics/orders?tab=messages&start=live")
    still.goto("/access?tab=users")
    for one in (tail, still):
        one.wait_for_function("window.did_handshake")
    still.get_by_role("button", name="Set a password").click()
    still.get_by_label("User").fill("intruder")
    still.get_by_label("Password").fill("let me in")
    cookies = {one["name"]: one["value"] for one in context.cookies()}
    httpx.get(f"{platform.guarded}/logout", cookies=cookies)
    page.wait_for_url("**/login**", timeout=20_000)
    tail.wait_for_url("**/login?next=/topics/orders%3Ftab%3Dmessages%26start%3Dlive", timeout=20_000)
    still.get_by_role("button", name="Save").click()
    still.wait_for_url("**/login?next=/access%3Ftab%3Dusers", timeout=20_000)
    context.close()
    users = httpx.get(f"{platform.guarded}/api/v1/users", auth=("ada", "secret")).raise_for_status()
    assert "intruder" not in users.text


def test_the_api_requires_a_login_and_a_role_and_refuses_other_origins_and_hosts(platform: Platform) -> None:
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


def served_paths() -> set[str]:
    """Return the paths that the files in `pages` register, with each tab as a query parameter."""
    found = {"/login"}
    for file in (Path(control_center.__file__).parent / "pages").glob("*.py"):
        tree = ast.parse(file.read_text())
        tabs = [
            str(key)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TABS"
            for key, _ in ast.literal_eval(node.value)
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "page":
                path = ast.literal_eval(node.args[1])
                found |= {f"{path}?tab={tab}" if tab else path for tab in tabs or [""]}
    return found


def test_the_list_of_checked_pages_has_an_example_of_every_route() -> None:
    paths = served_paths()
    assert len(paths) > 25
    shapes = {path: re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))) for path in paths}
    missing = [path for path, shape in shapes.items() if not any(shape.fullmatch(one) for one in PAGES)]
    assert not missing, "add an example of each to PAGES"


def faults_of_ksql(page: Page, script: str) -> list[tuple[str, ...]]:
    faults: list[tuple[str, ...]] = []
    for theme in ("dark", "light"):
        page.context.add_cookies([{"name": "pessoa_theme", "value": theme, "url": page.url}])
        page.set_viewport_size(DESKTOP)
        page.reload()
        # Wait until the editor has its colours and its completions.
        page.wait_for_selector("[data-completes]", state="attached")
        faults += [(theme, *one) for one in serious_faults(page, script)]
        page.set_viewport_size(PHONE)
        faults += [(f"{theme} phone", *one) for one in serious_faults(page, script, RULES_OF_LOOKS)]
    return faults


def test_axe_finds_no_serious_accessibility_fault_on_any_page_theme_and_width(
    browser: Browser, platform: Platform
) -> None:
    script = axe_script()
    context = browser.new_context(base_url=platform.url, locale="en-US", bypass_csp=True)
    context.add_cookies([{"name": "pessoa_theme", "value": "light", "url": platform.url}])
    page = context.new_page()
    faults = []
    for path in PAGES:
        page.set_viewport_size(DESKTOP)
        page.goto(path)
        page.wait_for_selector(".main, .login")
        if path == "/ksql":
            # The editor takes its colours only when the page is loaded.
            faults += faults_of_ksql(page, script)
            continue
        faults += [("light", *one) for one in serious_faults(page, script)]
        page.evaluate(TURN_DARK)
        faults += [("dark", *one) for one in serious_faults(page, script, RULES_OF_LOOKS)]
        page.set_viewport_size(PHONE)
        faults += [("dark phone", *one) for one in serious_faults(page, script, RULES_OF_LOOKS)]
        page.evaluate(TURN_LIGHT)
        faults += [("phone", *one) for one in serious_faults(page, script, RULES_OF_LOOKS)]
    context.close()
    assert not faults


def test_a_phone_shows_every_page_without_scrolling_sideways(browser: Browser, platform: Platform) -> None:
    context = browser.new_context(base_url=platform.url, locale="en-US", viewport={"width": 390, "height": 844})
    page = context.new_page()
    wide = []
    for path in PAGES:
        page.goto(path)
        page.wait_for_selector(".main, .login")
        if page.evaluate("document.documentElement.scrollWidth") > 391:
            wide.append(path)
    context.close()
    assert not wide
