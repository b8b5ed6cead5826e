"""The redirect after a login: to a page of the control centre, and to no other host."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui")

from pessoa.control_center.pages.login_page import safe_path


@pytest.mark.parametrize("path", ["/", "/topics/orders?tab=messages", "/topics/preço"])
def test_a_login_redirects_to_the_requested_page(path: str) -> None:
    assert safe_path(path) == path


@pytest.mark.parametrize(
    "path", [None, "", "topics", "https://other.example", "//other.example", "/\\other.example", "/\t/other.example",
             "/\n/other.example", "/\x00/other.example"],
)  # fmt: skip
def test_a_login_does_not_redirect_to_another_host(path: str | None) -> None:
    assert safe_path(path) == "/"
