"""References to config providers are found as Apache finds them, in linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.connect import config_providers
from pessoa.connect.config_providers import Providers, references, replace_references

# ConfigTransformer.DEFAULT_PATTERN.
APACHE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("${env:X}", ("env", "", "X")),
        ("${file:/a:key}", ("file", "/a", "key")),
        ("${file:/a:b:c:d}", ("file", "/a", "b:c:d")),
        ("${file::key}", ("file", "", "key")),
        ("${:}", ("", "", "")),
    ],
)
def test_a_config_provider_reference_is_split_at_its_first_two_colons(text: str, parts: tuple[str, str, str]) -> None:
    (one,) = references(f"a{text}b")
    assert (one.provider, one.path, one.key, one.text) == (*parts, text)


@given(st.text("${}:a\n", max_size=24))
def test_references_are_found_by_apaches_regular_expression(text: str) -> None:
    theirs = [(*one.span(), one[1], one[3] or "", one[4], one[0]) for one in APACHE.finditer(text)]
    assert [tuple(one) for one in references(text)] == theirs
    assert replace_references(text, lambda _: "<>") == APACHE.sub("<>", text)


@pytest.mark.parametrize("hostile", ["${" * 500_000, "${" + ":" * 1_000_000, "${a:" * 300_000 + "}", "${:" * 300_000])
def test_a_hostile_text_of_a_megabyte_is_scanned_for_references_in_linear_time(hostile: str) -> None:
    assert len(list(references(hostile))) == ("}" in hostile)


def test_a_text_is_not_scanned_for_references_if_no_provider_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_providers, "references", lambda _: pytest.fail("the text was searched"))
    assert Providers({}).resolve({"a": "${env:X}"}) == {"a": "${env:X}"}
    assert Providers({}).known_values("${env:X}") == {}
