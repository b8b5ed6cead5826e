"""The text of a `sasl.jaas.config`: one login module with options, in the syntax of Java's JAAS files.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="p" user_ana="q";

In Apache Kafka the first word names a Java class, which is loaded. Here it names one of three, and nothing is ever
imported: a module that is not known is an error (CVE-2023-25194 and its heirs are about classes that were loaded).

    username, password   what this node says when it logs in elsewhere
    user_NAME            of PLAIN: the password of a user who may log in here
    anything else        kept, and not read

As in Kafka values stand in quotes, single or double, or are plain words; a number without quotes is an error. A
backslash takes the next character as it is, or makes a control character of it as in Java. Comments are Java's.

Texts hold passwords: no error here repeats any of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

# The login module of each mechanism.
_PACKAGE = "org.apache.kafka.common.security"
_PLAIN = f"{_PACKAGE}.plain.PlainLoginModule"
_SCRAM = f"{_PACKAGE}.scram.ScramLoginModule"
_OAUTHBEARER = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule"
MODULES = {"PLAIN": _PLAIN, "SCRAM-SHA-256": _SCRAM, "SCRAM-SHA-512": _SCRAM, "OAUTHBEARER": _OAUTHBEARER}

_FLAGS = frozenset(("required", "requisite", "sufficient", "optional"))
_USER = "user_"

_WORDS = r"""
    (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<word> [A-Za-z_$\u00a0-\U0010ffff][\w.$\-\u00a0-\U0010ffff]* )
    | " (?P<double> (?:[^"\\\r\n]|\\.)* ) "
    | ' (?P<single> (?:[^'\\\r\n]|\\.)* ) '
    | (?P<sign> [=;] )
    """
_ESCAPE = r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)"
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@cache
def _token_pattern() -> re.Pattern[str]:
    """Return the pattern of JAAS tokens. It is compiled at first use, because that takes six milliseconds."""
    return re.compile(_WORDS, re.VERBOSE | re.DOTALL)


class BadJaas(Exception):
    """A JAAS text is malformed; the message says why, and contains none of its values."""


class _Token(NamedTuple):
    text: str
    is_sign: bool


class Jaas(NamedTuple):
    """One JAAS entry: a login module and its options. `repr` shows no value."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<Jaas {self.module.rpartition('.')[2]}: {', '.join(sorted(self.options))}>"

    @property
    def username(self) -> str | None:
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        return self.options.get("password")

    def users(self) -> dict[str, str]:
        """The users that may log in with PLAIN: name → password."""
        return {name.removeprefix(_USER): value for name, value in self.options.items() if name.startswith(_USER)}


def jaas_text(mechanism: str, options: Mapping[str, str]) -> str:
    """Return the text that `parse_jaas` reads: the login module of a mechanism, with these options."""
    written = "".join(f' {name}="{_escape_value(value)}"' for name, value in options.items())
    return f"{MODULES[mechanism]} required{written};"


def _escape_value(value: str) -> str:
    # A line cannot end within quotes.
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def parse_jaas(text: str, mechanism: str) -> Jaas:
    """Return the entry, whose login module must be that of the mechanism. Raises `BadJaas`."""
    found = parse_entry(text)
    if found.module not in MODULES.values():
        raise BadJaas(f"its login module is none of {', '.join(sorted(set(MODULES.values())))}")
    if found.module != MODULES.get(mechanism):
        raise BadJaas(f"its login module is not that of {mechanism}, {MODULES.get(mechanism)}")
    return found


def parse_entry(text: str) -> Jaas:
    """Return the entry, whatever its login module: a client uses the options alone, and its user may have named a
    Java class that is equivalent to Kafka's. Raises `BadJaas`."""
    tokens = _tokens(text)
    if not tokens:
        raise BadJaas("it names no login module")
    module = tokens[0].text
    if len(tokens) < 2 or tokens[1].text.lower() not in _FLAGS:
        raise BadJaas("`required` must follow the login module")
    options, end = _options(tokens)
    if end != len(tokens):
        raise BadJaas("it must hold one login module, and end at its semicolon")
    return Jaas(module, options)


def _options(tokens: list[_Token]) -> tuple[dict[str, str], int]:
    """Return the options behind module and flag, and the index of the token behind the entry."""
    options: dict[str, str] = {}
    place = 2
    while place < len(tokens):
        name = tokens[place]
        if name == _Token(";", is_sign=True):
            return options, place + 1
        rest = tokens[place + 1 : place + 3]
        if name.is_sign or len(rest) < 2 or rest[0] != _Token("=", is_sign=True) or rest[1].is_sign:
            # Not its name: where quotes are missing, that may be a part of a password.
            raise BadJaas(f'option {len(options) + 1} is not written name="value"')
        options[name.text] = rest[1].text
        place += 3
    raise BadJaas("it must end with a semicolon")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    while place < len(text):
        match = _token_pattern().match(text, place)
        if match is None:
            raise BadJaas(f"character {place + 1} fits nowhere; values stand in quotes")
        place = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            found.append(_Token(re.sub(_ESCAPE, _unescape, quoted, flags=re.DOTALL), is_sign=False))
        elif match["space"] is None:
            found.append(_Token(match[0], is_sign=match["sign"] is not None))
    return found


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _CONTROLS.get(code, code)
