"""One cluster with data, two control centres and one Chromium for all tests of pages.

These tests are in the part of `make test` that runs without parallel workers, so one cluster is enough.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pessoa.testing import Cluster
from pessoa.testing.in_process_services import SchemaRegistry
from tests.browser.center_process import ControlCenter, Platform
from tests.browser.sample_data import fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# ACLs can be listed and created; a topic without any ACL is open to all users.
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true", "super.users": "User:ANONYMOUS",
}  # fmt: skip
# A custom serde: values of the topic `notes` are written backwards.
SERDES = """
class Backwards:
    name = "backwards"

    def can_read(self, topic, part):
        return topic == "notes" and part == "value"

    def decode(self, data):
        return data.decode()[::-1]

    def encode(self, value):
        return str(value)[::-1].encode()


SERDES = [Backwards()]
"""
USERS = "ada: secret, admin\nruy: secret, reader\nedu: secret, editor\n"


@pytest.fixture(scope="session")
def chromium() -> str:
    pytest.importorskip("nicegui")
    pytest.importorskip("playwright")
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not on PATH, so the pages of the control centre are not tested")
    return found


@pytest.fixture(scope="session")
def platform(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("control-center")
    users = folder / "users"
    users.write_text(USERS)
    serdes = folder / "backwards.py"
    serdes.write_text(SERDES)
    with Cluster(brokers=3, settings=SETTINGS) as cluster, SchemaRegistry(cluster.bootstrap_servers) as registry:
        fill(cluster.bootstrap_servers, registry.url)
        servers = cluster.bootstrap_servers
        data = f"pessoa.control.center.data.dir={folder}"
        with (
            ControlCenter(
                folder / "open.log", servers, registry.url, data, f"pessoa.control.center.serdes={serdes}",
            ) as center,
            ControlCenter(
                folder / "guarded.log", servers, registry.url, f"pessoa.authentication.users.file={users}",
                "pessoa.control.center.masks=orders: value.card.number", "pessoa.control.center.role=reader",
                "pessoa.control.center.session.idle.ms=600000",
            ) as guarded,
        ):  # fmt: skip
            yield Platform(cluster, registry.url, center.url, guarded.url)


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, platform: Platform) -> Iterator[Page]:
    """Open a page in a new browser context; an uncaught error of a script on it fails the test."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, base_url=platform.url, locale="en-US")
    context.set_default_timeout(20_000)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert not errors
