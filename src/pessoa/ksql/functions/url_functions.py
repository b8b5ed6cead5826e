"""The parts of URLs, and parameters encoded and decoded. What a URL has not is null."""

from __future__ import annotations

from urllib.parse import SplitResult, quote_plus, unquote, unquote_plus, urlsplit

from pessoa.ksql.functions.function_rows import Function, function, variant
from pessoa.ksql.types.sql_types import EvaluationFailure

_CATEGORY = "URL"
_URL = "http://test.com:8080/docs/ksql?q1=a%20b&q2#frag"


def _split(url: str) -> SplitResult:
    # Java's URI has no blanks and control characters in it.
    if any(character <= " " or character in '"<>\\^`{|}' for character in url):
        raise EvaluationFailure(f"URL input has invalid syntax: {url}")
    try:
        found = urlsplit(url)
        # A port that is no number raises only when the attribute is read.
        _ = found.port
    except ValueError as wrong:
        raise EvaluationFailure(f"URL input has invalid syntax: {url} ({wrong})") from None
    return found


def _host(url: str) -> str | None:
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2]
    return (host if parts.port is None else host.rpartition(":")[0]).rstrip(":") or None


def _path(url: str) -> str | None:
    parts = _split(url)
    # mailto:someone has no path in Java's sense.
    return unquote(parts.path) if parts.netloc or parts.path.startswith("/") or not parts.scheme else None


def _query(url: str) -> str | None:
    return unquote(_split(url).query) if "?" in url.partition("#")[0] else None


def _parameter(url: str, name: str) -> str | None:
    query = _split(url).query
    for pair in query.split("&") if query else []:
        key, _, value = pair.partition("=")
        # As java.net.URI decodes a query: a plus stays one.
        if unquote(key) == name:
            return unquote(value)
    return None


ROWS: list[Function] = [
    function(
        "URL_ENCODE_PARAM",
        _CATEGORY,
        "Encoded as a parameter of a URL.",
        ["URL_ENCODE_PARAM('a b&c') = 'a+b%26c'"],
        variant("(STRING) STRING", lambda text: quote_plus(text, safe="*-._", errors="replace").replace("~", "%7E")),
    ),
    function(
        "URL_DECODE_PARAM",
        _CATEGORY,
        "Decoded from a parameter of a URL.",
        ["URL_DECODE_PARAM('a+b%26c') = 'a b&c'"],
        variant("(STRING) STRING", unquote_plus),
    ),
    function(
        "URL_EXTRACT_FRAGMENT",
        _CATEGORY,
        "What stands behind the #.",
        [f"URL_EXTRACT_FRAGMENT('{_URL}') = 'frag'"],
        variant("(STRING) STRING", lambda url: unquote(_split(url).fragment) if "#" in url else None),
    ),
    function(
        "URL_EXTRACT_HOST",
        _CATEGORY,
        "The host.",
        [f"URL_EXTRACT_HOST('{_URL}') = 'test.com'"],
        variant("(STRING) STRING", _host),
    ),
    function(
        "URL_EXTRACT_PARAMETER",
        _CATEGORY,
        "The value of a parameter.",
        [
            f"URL_EXTRACT_PARAMETER('{_URL}', 'q1') = 'a b'",
            f"URL_EXTRACT_PARAMETER('{_URL}', 'q2') = ''",
            f"URL_EXTRACT_PARAMETER('{_URL}', 'nope') IS NULL",
            "URL_EXTRACT_PARAMETER('http://a/?q=1+%2B+2', 'q') = '1+++2'",
        ],
        variant("(STRING, STRING) STRING", _parameter),
    ),
    function(
        "URL_EXTRACT_PATH",
        _CATEGORY,
        "The path.",
        [f"URL_EXTRACT_PATH('{_URL}') = '/docs/ksql'"],
        variant("(STRING) STRING", _path),
    ),
    function(
        "URL_EXTRACT_PORT",
        _CATEGORY,
        "The port, if it is written.",
        [f"URL_EXTRACT_PORT('{_URL}') = 8080", "URL_EXTRACT_PORT('http://test.com') IS NULL"],
        variant("(STRING) INTEGER", lambda url: _split(url).port),
    ),
    function(
        "URL_EXTRACT_PROTOCOL",
        _CATEGORY,
        "The protocol.",
        [f"URL_EXTRACT_PROTOCOL('{_URL}') = 'http'"],
        variant("(STRING) STRING", lambda url: _split(url).scheme or None),
    ),
    function(
        "URL_EXTRACT_QUERY",
        _CATEGORY,
        "What stands behind the ?.",
        [f"URL_EXTRACT_QUERY('{_URL}') = 'q1=a b&q2'"],
        variant("(STRING) STRING", _query),
    ),
]
