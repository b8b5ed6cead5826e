"""The first page is fast: no module is imported and no certificate file read during the request."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pessoa.control_center
from pessoa.control_center.center_app import PAGE_ELEMENTS
from pessoa.web import trust
from pessoa.web.trust import trust_for


def test_every_element_that_a_page_uses_is_imported_at_the_start() -> None:
    pages = Path(pessoa.control_center.__file__).parent / "pages"
    used = {name for one in pages.glob("*.py") for name in re.findall(r"\bui\.([a-z_]+)", one.read_text("utf-8"))}
    assert used <= set(PAGE_ELEMENTS)


def test_certificate_authorities_are_read_once_and_only_for_services_with_tls() -> None:
    trust._public_trust.cache_clear()
    assert trust_for(["http://localhost:8083", ""]) is False
    assert trust._public_trust.cache_info().misses == 0
    first = trust_for(["HTTPS://connect.example"])
    assert isinstance(first, ssl.SSLContext)
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert trust_for(["http://a", "https://ksql.example"]) is first
    own = ssl.create_default_context()
    assert trust_for(["https://ksql.example"], own) is own
