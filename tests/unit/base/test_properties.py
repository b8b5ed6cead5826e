"""Java's properties files: read as Java reads them, and written so that Java reads the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.base.properties import (
    MalformedProperties,
    java_date,
    parse_properties,
    read_properties,
    render_properties,
)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a : b \n", {"a": "b "}),
        ("a b=c", {"a": "b=c"}),
        ("  a\t=\t b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("# a=b\n ! c=d\n\n \t\ne=f", {"e": "f"}),
        ("a=b\\\n   c\\\n#d", {"a": "bc#d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("#comment\\\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b\\=c\\:=d", {"a b=c:": "d"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u0041\\u00e9\\uD83D\\uDE00", {"a": "Aé😀"}),
        ("a=b\ra=c\r\n", {"a": "c"}),
    ],
)
def test_java_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("a", "b", "a=b"),
        ("a b", "c d", "a\\ b=c d"),
        (" a", " b", "\\ a=\\ b"),
        ("a=:", "b=:", "a\\=\\:=b\\=\\:"),
        ("#a!", "#b!", "\\#a\\!=\\#b\\!"),
        ("a\\", "\t\n\r\f", "a\\\\=\\t\\n\\r\\f"),
        ("é", "😀", "\\u00E9=\\uD83D\\uDE00"),
        ("", "", "="),
    ],
)
def test_java_properties_are_written_so_that_java_reads_the_same(key: str, value: str, line: str) -> None:
    text = render_properties({key: value}, 0)
    assert text == f"#\n#Thu Jan 01 00:00:00 UTC 1970\n{line}\n"
    assert parse_properties(text) == {key: value}


@pytest.mark.parametrize(
    ("now_ms", "text"),
    [
        (0, "Thu Jan 01 00:00:00 UTC 1970"),
        (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
        (1_735_689_599_999, "Tue Dec 31 23:59:59 UTC 2024"),
    ],
)
def test_a_date_is_rendered_as_java_renders_it(now_ms: int, text: str) -> None:
    assert java_date(now_ms) == text


@pytest.mark.parametrize("digits", ["", "12", "00g0"])
def test_an_invalid_unicode_escape_in_properties_is_named_in_the_error(digits: str) -> None:
    with pytest.raises(MalformedProperties) as malformed:
        parse_properties(f"a=\\u{digits}")
    assert str(malformed.value) == f"\\u{digits} is not a character"


def test_a_properties_file_strips_trailing_white_space_of_values_unless_it_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "my.properties"
    path.write_text("a = b \t\nc=d\\ \ne=\\n\nf=g\\\\ \nh= \n i\\\n = j \n", encoding="utf-8")
    assert read_properties(path) == {"a": "b", "c": "d ", "e": "\n", "f": "g\\", "h": "", "i": "j"}


def test_a_properties_file_is_read_as_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "my.properties"
    path.write_bytes("a=é".encode())
    assert read_properties(path) == {"a": "é"}
    path.write_bytes("a=é".encode("latin-1"))
    with pytest.raises(MalformedProperties, match="byte 2 is not UTF-8"):
        read_properties(path)
