"""User actions on each page of the control centre, in a real Chromium on a cluster with data."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import Page, expect

from tests.browser.center_process import Platform
from tests.browser.sample_data import commit


def go(page: Page, path: str) -> None:
    """Open a page, and wait until its events reach the server."""
    page.goto(path)
    page.wait_for_function("window.did_handshake")


def test_home_reports_the_state_of_the_cluster_in_words_and_lists_its_services(page: Page) -> None:
    go(page, "/")
    expect(page.get_by_text("Everything is well: 3 brokers")).to_be_visible()
    expect(page.locator(".tile", has_text="Brokers")).to_contain_text("3/3")
    expect(page.locator("li", has_text="Schema Registry")).to_contain_text("up")
    expect(page.locator("li", has_text="Connect")).to_contain_text("is not configured here")
    expect(page.locator(".chart svg").first).to_be_visible()


def test_search_finds_a_topic_by_keyboard_and_enter_opens_it(page: Page) -> None:
    go(page, "/")
    expect(page.get_by_role("button", name="Search")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_placeholder("Topics, groups, pages …").fill("paym")
    expect(page.locator(".palette-row", has_text="payments")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/payments")


def test_pages_switch_to_portuguese_and_to_the_dark_theme(page: Page) -> None:
    go(page, "/topics")
    page.get_by_role("button", name="Português").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Tópicos")
    page.get_by_role("button", name="Tema: automático").click()
    page.get_by_role("button", name="Tema: claro").click()
    expect(page.locator("body")).to_have_class(re.compile("theme-dark"))


def test_a_topic_is_created_found_marked_as_favourite_and_deleted_by_typing_its_name(page: Page) -> None:
    go(page, "/topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("bad name!")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_text("has a character other than")).to_be_visible()
    page.get_by_label("Name").fill("fresh")
    page.get_by_label("Configuration: a key=value on each line").fill("retention.ms=1000")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/topics/fresh")
    go(page, "/topics?q=fre")
    page.get_by_role("button", name="Favourite: fresh").click()
    expect(page.locator(".star.on")).to_be_visible()
    go(page, "/topics/fresh?tab=config")
    expect(page.locator("tr", has_text="retention.ms").first).to_contain_text("1000")
    go(page, "/topics/fresh")
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("Type fresh to go on").fill("wrong")
    page.locator(".q-dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("That is not the name of the topic.")).to_be_visible()
    page.get_by_label("Type fresh to go on").fill("fresh")
    page.locator(".q-dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/topics")
    go(page, "/audit")
    expect(page.locator("tr", has_text="delete topic")).to_contain_text("fresh")


def test_a_topic_page_draws_each_partition_with_its_leader_and_offsets(page: Page) -> None:
    go(page, "/topics/orders")
    expect(page.locator(".part")).to_have_count(3)
    expect(page.locator(".rep.lead")).to_have_count(3)
    expect(page.locator(".part").first.locator(".cell.next")).to_be_visible()


def test_messages_are_searched_filtered_and_opened_and_a_wrong_filter_is_reported(page: Page) -> None:
    go(page, "/topics/orders?tab=messages")
    expect(page.locator(".msg")).to_have_count(50)
    # The newest messages come from all partitions, although partitions are read one after the other.
    places = page.locator(".msg summary .where:first-child").all_inner_texts()
    assert {one.partition(" ")[0] for one in places} == {"0", "1", "2"}
    page.get_by_label("Search keys, values, headers").fill("t-123")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".msg")).to_have_count(1)
    expect(page.get_by_text("1 found")).to_be_visible()
    page.locator(".msg summary").click()
    expect(page.locator(".msg pre")).to_contain_text('"id": 123')
    go(page, "/topics/orders?tab=messages&limit=100")
    page.get_by_label("Filter", exact=True).fill('value.city == "Braga" and value.amount > 500')
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".msg").first).to_contain_text("Braga")
    assert page.locator(".msg").count() == 7
    page.get_by_label("Filter", exact=True).fill("amount > 3")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("there is no field amount")).to_be_visible()


def test_a_saved_filter_is_listed_in_the_settings_and_messages_are_downloaded_as_csv(page: Page) -> None:
    go(page, "/topics/orders?tab=messages&filter=partition == 0")
    page.get_by_role("button", name="Save the filter").click()
    page.get_by_label("Name").fill("first partition")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("All users find it")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "orders.csv"
    go(page, "/settings")
    expect(page.locator("tr", has_text="first partition")).to_contain_text("partition == 0")


def test_avro_messages_are_decoded_by_their_registered_schema(page: Page) -> None:
    go(page, "/topics/payments?tab=messages")
    expect(page.locator(".msg").first.locator(".badge")).to_have_text("avro")
    expect(page.locator(".msg .value").first).to_contain_text('"amount"')


def test_a_custom_serde_decodes_searches_and_encodes_messages(page: Page, platform: Platform) -> None:
    httpx.post(f"{platform.url}/api/v1/topics", json={"name": "notes", "partitions": 1}).raise_for_status()
    go(page, "/topics/notes?tab=messages")
    page.get_by_role("button", name="Produce").click()
    dialog = page.locator(".q-dialog")
    dialog.get_by_label("Value", exact=True).fill("buy tea")
    dialog.get_by_role("combobox", name="Format of values").click()
    page.locator(".q-menu").get_by_role("option", name="backwards").click()
    dialog.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("The message is in the topic.")).to_be_visible()
    go(page, "/topics/notes?tab=messages&search=buy")
    expect(page.locator(".msg .value")).to_have_text("buy tea")
    expect(page.locator(".msg .badge").first).to_have_text("backwards")
    page.locator(".msg summary").click()
    page.get_by_role("button", name="Send again").click()
    expect(dialog.get_by_role("combobox", name="Format of values")).to_have_value("backwards")
    go(page, "/topics/notes?tab=messages&value=text")
    expect(page.locator(".msg .value")).to_have_text("aet yub")


def test_messages_with_scripts_are_shown_as_text_and_not_executed(page: Page) -> None:
    go(page, "/topics/hostile?tab=messages")
    script = page.locator(".msg", has_text="<script>")
    expect(script).to_be_visible()
    script.locator("summary").click()
    expect(script.locator("pre")).to_contain_text("<script>window.hacked")
    expect(page.locator(".msg", has_text="binary")).to_contain_text("00 01 02 03")
    big = page.locator(".msg", has_text="xxxxxxxx")
    big.locator("summary").click()
    with page.expect_download() as download:
        big.get_by_role("button", name="All of it").click()
    assert download.value.path().stat().st_size > 5_000_000
    assert page.evaluate("window.hacked") is None


def test_a_live_tail_shows_messages_produced_on_the_page_and_by_the_api(page: Page, platform: Platform) -> None:
    go(page, "/topics/empty?tab=messages&start=live")
    expect(page.get_by_text("Live: 0 messages so far")).to_be_visible()
    page.get_by_role("button", name="Produce").click()
    page.get_by_label("Key", exact=True).fill("k")
    page.get_by_label("Value", exact=True).fill("hello from the page")
    page.locator(".q-dialog").get_by_role("button", name="Produce").click()
    expect(page.get_by_text("Live: 1 messages so far")).to_be_visible()
    url = f"{platform.url}/api/v1/topics/empty/messages"
    for number in range(5):
        httpx.post(url, json={"value": f"message {number}"}).raise_for_status()
    expect(page.get_by_text("Live: 6 messages so far")).to_be_visible()
    expect(page.locator(".msg")).to_have_count(6)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".msg")).to_have_count(6)


def test_offsets_of_a_group_are_previewed_and_reset_and_the_group_is_deleted(page: Page, platform: Platform) -> None:
    commit(platform.cluster.bootstrap_servers, "to-reset", "orders", 5)
    go(page, "/consumers/to-reset")
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".q-dialog tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("The offsets are reset.")).to_be_visible()
    offsets = httpx.get(f"{platform.url}/api/v1/groups/to-reset").json()["offsets"]
    assert [one["committed"] for one in offsets] == [0, 0, 0]
    page.get_by_role("button", name="Delete").click()
    page.locator(".q-dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/consumers")
    expect(page.get_by_text("billing")).to_be_visible()


def test_schema_pages_show_a_diff_of_versions_and_report_an_incompatible_schema(page: Page) -> None:
    go(page, "/schemas")
    page.get_by_role("link", name="payments-value").click()
    page.get_by_role("link", name="compare with 1").click()
    expect(page.locator(".diff .add").first).to_contain_text("+")
    page.get_by_role("button", name="New version").click()
    text = '{"type":"record","name":"Payment","namespace":"shop","fields":[{"name":"new","type":"int"}]}'
    page.locator(".q-dialog textarea").fill(text)
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("It is not compatible.")).to_be_visible()


def test_pages_of_services_without_a_url_show_that_they_are_not_configured(page: Page) -> None:
    go(page, "/connect")
    expect(page.get_by_text("Connect is not configured here.")).to_be_visible()
    go(page, "/ksql")
    expect(page.get_by_text("ksql is not configured here.").first).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_disabled()


def test_the_lineage_page_connects_a_topic_with_the_groups_that_read_it(page: Page) -> None:
    go(page, "/lineage")
    expect(page.locator("svg a[href='/topics/orders']")).to_be_visible()
    expect(page.locator("svg a[href='/consumers/billing']")).to_be_visible()


def test_the_fourth_consumer_of_the_classroom_stays_idle(page: Page) -> None:
    go(page, "/classroom")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator(".scene")).to_contain_text("Consumer B")
    page.get_by_role("button", name="Add a consumer").click()
    page.get_by_role("button", name="Add a consumer").click()
    expect(page.locator(".scene")).to_contain_text("Consumer D")
    expect(page.locator(".scene rect.idle")).not_to_have_count(0)
    expect(page.locator(".scene .wide text", has_text=re.compile("^idle$"))).to_have_count(1, timeout=30_000)


def test_an_alert_rule_fires_and_its_alert_ends_when_the_rule_is_switched_off(page: Page) -> None:
    go(page, "/alerts")
    page.get_by_role("button", name="Add a rule").click()
    page.get_by_label("Name").fill("slow billing")
    page.get_by_label("Fires above").fill("10")
    page.get_by_label("Group (* for any)").fill("billing")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".notice.bad", has_text="Group billing is")).to_be_visible()
    page.locator("tr", has_text="slow billing").first.get_by_role("button", name="Switch off").click()
    expect(page.locator(".notice.bad")).to_have_count(0)


def test_a_list_of_1000_topics_is_paged_on_the_server(page: Page, platform: Platform) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": platform.cluster.bootstrap_servers})
    wanted = [NewTopic(f"many-{number:04d}", 1, 1) for number in range(1000)]
    for future in admin.create_topics(wanted).values():
        future.result(60)
    try:
        go(page, "/topics?q=many-&sort=name&page=20")
        expect(page.locator("tbody tr")).to_have_count(50)
        expect(page.get_by_text("many-0999")).to_be_visible()
        expect(page.get_by_text("page 20 of 20")).to_be_visible()
    finally:
        for future in admin.delete_topics([one.topic for one in wanted]).values():
            future.result(60)


def test_open_pages_show_that_a_broker_was_killed_and_that_its_leaders_moved(page: Page, platform: Platform) -> None:
    go(page, "/")
    expect(page.get_by_text("Everything is well")).to_be_visible()
    platform.cluster.kill(2)
    try:
        expect(page.get_by_text("broker 2 is away since")).to_be_visible(timeout=30_000)
        expect(page.locator(".tile", has_text="Brokers")).to_contain_text("2/3")
        go(page, "/topics/orders")
        expect(page.locator(".rep.out")).to_have_count(3)
        expect(page.locator(".rep.lead")).to_have_count(3)
    finally:
        platform.cluster.start(2)
        platform.cluster.wait_until_in_sync()
    go(page, "/")
    expect(page.get_by_text("Everything is well")).to_be_visible(timeout=30_000)
