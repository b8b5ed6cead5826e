"""Invalid input in forms of the control centre is refused with a sentence, and nothing is changed."""

from __future__ import annotations

import httpx
from playwright.sync_api import Page, expect

from tests.browser.center_process import Platform
from tests.browser.sample_data import commit
from tests.browser.test_pages import go


def press(page: Page, name: str) -> None:
    page.locator(".q-dialog").get_by_role("button", name=name, exact=True).click()


def expect_message(page: Page, text: str) -> None:
    """Assert that the page shows the text in a notification, or in a notice of the dialog."""
    expect(page.locator(".q-notification, .q-dialog .notice.bad").filter(has_text=text).first).to_be_visible()


def test_a_topic_with_invalid_settings_is_not_created(page: Page, platform: Platform) -> None:
    go(page, "/topics?create=1")
    page.get_by_label("Name").fill("never-made")
    configs = page.get_by_label("Configuration: a key=value on each line")
    configs.fill("retention.ms")
    press(page, "Create")
    expect_message(page, "retention.ms: write key=value")
    configs.fill("retention.ms=soon")
    press(page, "Create")
    expect_message(page, "retention.ms")
    expect_message(page, "soon")
    configs.fill("retention.ns=1")
    press(page, "Create")
    expect_message(page, "retention.ns")
    configs.fill("")
    page.get_by_label("Replicas (0: the default)").fill("9")
    press(page, "Create")
    expect_message(page, "cannot be replicated 9 times")
    assert httpx.get(f"{platform.url}/api/v1/topics/never-made").status_code == 404


def test_an_offset_reset_without_a_valid_number_or_time_is_refused(page: Page, platform: Platform) -> None:
    commit(platform.cluster.bootstrap_servers, "not-reset", "orders", 5)
    go(page, "/consumers/not-reset")
    page.get_by_role("button", name="Reset offsets").click()
    amount = page.get_by_label("Number, or time as 2026-11-17 14:00")
    for way, text, told in (
        ("to a time", "tomorrow", "That is no number and no time."),
        ("by a number of messages", "", "A reset by shift needs a number."),
        ("to an offset", "12.5", "That is no number and no time."),
    ):
        page.get_by_role("combobox", name="Where to").click()
        page.get_by_role("option", name=way).click()
        amount.fill(text)
        press(page, "Preview")
        expect_message(page, told)
        expect(page.locator(".q-dialog").get_by_role("button", name="Apply")).to_be_disabled()
    offsets = httpx.get(f"{platform.url}/api/v1/groups/not-reset").json()["offsets"]
    assert [one["committed"] for one in offsets] == [5, 5, 5]


def test_an_invalid_or_incompatible_schema_or_one_without_a_subject_is_not_registered(
    page: Page, platform: Platform
) -> None:
    go(page, "/schemas")
    page.get_by_role("button", name="Register a schema").click()
    text = page.locator(".q-dialog textarea")
    text.fill('{"type": "string"}')
    press(page, "Check")
    expect_message(page, "A schema needs a subject")
    page.get_by_label("Subject").fill("wrong-value")
    text.fill('{"type": "recrd"}')
    press(page, "Register")
    expect_message(page, "recrd")
    page.get_by_label("Subject").fill("payments-value")
    text.fill('{"type":"record","name":"Payment","namespace":"shop","fields":[{"name":"new","type":"int"}]}')
    press(page, "Register")
    expect_message(page, "incompatible")
    assert httpx.get(f"{platform.registry}/subjects").json() == ["payments-value"]


def test_a_message_with_a_wrong_partition_or_header_or_a_too_long_value_is_not_produced(
    page: Page, platform: Platform
) -> None:
    before = httpx.get(f"{platform.url}/api/v1/topics/customers").json()["messages"]
    go(page, "/topics/customers?tab=messages")
    page.get_by_role("button", name="Produce").click()
    page.get_by_label("Value", exact=True).fill("never there")
    page.get_by_label("Headers: a name: value on each line").fill("trace")
    press(page, "Produce")
    expect_message(page, "trace: write name: value")
    page.get_by_label("Headers: a name: value on each line").fill("trace: 1")
    page.get_by_label("Partition (empty: by the key)").fill("7")
    press(page, "Produce")
    expect_message(page, "Unknown partition")
    page.get_by_label("Partition (empty: by the key)").fill("")
    page.get_by_label("Value", exact=True).fill("x" * 1_200_000)
    expect_message(page, "This is too long for a page")
    expect(page.get_by_label("Value", exact=True)).to_have_value("")
    assert httpx.get(f"{platform.url}/api/v1/topics/customers").json()["messages"] == before


def test_an_alert_rule_without_a_name_a_number_or_a_valid_url_is_not_saved(page: Page) -> None:
    go(page, "/alerts")
    page.get_by_role("button", name="Add a rule").click()
    press(page, "Save")
    expect_message(page, "A rule needs a name.")
    page.get_by_label("Name").fill("never kept")
    page.get_by_label("Fires above").fill("")
    press(page, "Save")
    expect_message(page, "A rule needs a number")
    page.get_by_label("Fires above").fill("5")
    page.get_by_label("Webhook (empty: none)").fill("ftp://somewhere")
    press(page, "Save")
    expect_message(page, "A webhook is an http:// or https:// URL.")
    press(page, "Cancel")
    expect(page.locator("tr", has_text="never kept")).to_have_count(0)


def test_a_user_without_a_password_is_not_created(page: Page) -> None:
    go(page, "/access?tab=users")
    page.get_by_role("button", name="Set a password").click()
    page.get_by_label("User").fill("pessoa")
    press(page, "Save")
    expect_message(page, "A user has a name and a password.")


def test_acls_of_an_application_need_a_valid_principal_and_are_previewed_created_and_deleted(page: Page) -> None:
    go(page, "/access")
    page.get_by_role("button", name="Let an application in").click()
    page.get_by_label("Topics, with commas").fill("orders, click*")
    press(page, "Preview")
    expect_message(page, "A principal is written as User:name.")
    page.get_by_label("Principal").fill("User:shop")
    press(page, "Preview")
    expect(page.locator(".q-dialog tbody tr")).to_have_count(4)
    press(page, "Add")
    expect(page.locator(".main tbody tr", has_text="topic click*")).to_have_count(2)
    for left in (3, 2, 1, 0):
        page.get_by_role("button", name="Delete").first.click()
        expect(page.locator(".main tbody tr")).to_have_count(left)


def test_an_invalid_topic_config_is_refused_and_the_old_value_stays(page: Page) -> None:
    go(page, "/topics/customers?tab=config")
    row = page.locator("tr", has=page.get_by_text("retention.ms", exact=True))
    row.get_by_role("button", name="Edit").click()
    page.locator(".q-dialog input").fill("for ever")
    press(page, "Save")
    expect_message(page, "retention.ms")
    go(page, "/topics/customers?tab=config")
    expect(row.locator("code")).to_have_text("604800000")


def test_a_page_of_an_unknown_topic_group_subject_or_broker_reports_what_is_missing(page: Page) -> None:
    for path, told in (
        ("/topics/nowhere", "There is no topic nowhere."),
        ("/consumers/nobody", "nobody"),
        ("/schemas/nowhere-value", "not found"),
        ("/brokers/99", "99"),
    ):
        go(page, path)
        expect(page.locator(".main .notice.bad")).to_contain_text(told)
