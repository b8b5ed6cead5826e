"""`ssl.principal.mapping.rules`: from the name in a certificate to the name of a principal (KIP-371).

    RULE:^CN=(.*?),OU=Brokers.*$/$1/L,RULE:^CN=(.*?),.*$/$1/,DEFAULT

The first rule whose expression matches the whole name makes the principal: its replacement, with `$1` for what the
expression's first group matched, in small (L) or capital (U) letters if it says so. DEFAULT takes the name as it is. A
peer whose name no rule matches is refused. A slash within a rule is written `\\/`.

The rules are the operator's, so Python's own expressions are used; Java's are the same as far as names need them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pessoa.base.config_values import ConfigProblem

KEY = "ssl.principal.mapping.rules"

_RULE = r"DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
_NEXT = re.compile(rf"\s*(?:{_RULE})?\s*(?:,|$)")
_GROUP = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)
_JAVA_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")


class NoMatchingRule(ValueError):
    """No rule matches the distinguished name of a peer."""


class _Rule(NamedTuple):
    # None: DEFAULT
    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        result = _expand_references(match, self.replacement)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result


class PrincipalMapping:
    def __init__(self, rules: str = "DEFAULT") -> None:
        self._text = rules
        self._rules = tuple(_parse_rules(rules))

    def __repr__(self) -> str:
        return f"<PrincipalMapping {self._text}>"

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of the principal, without `User:`. Raises `NoMatchingRule`."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {KEY} matches {distinguished_name!r}")


def _parse_rules(text: str) -> Iterator[_Rule]:
    text = text.strip()
    at = 0
    while at < len(text):
        match = _NEXT.match(text, at)
        if match is None:
            raise ConfigProblem(
                KEY, text[at:], "a rule is DEFAULT or RULE:expression/replacement/, with L or U behind it"
            )
        at = match.end()
        if match["pattern"] is not None:
            yield _Rule(_compile_pattern(match["pattern"]), match["replacement"], match["case"])
        elif "DEFAULT" in match[0]:
            yield _Rule(None)


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(_JAVA_GROUP.sub("(?P<", pattern))
    except re.error as error:
        raise ConfigProblem(KEY, pattern, f"the expression is wrong: {error}") from error


def _expand_references(match: re.Match[str], replacement: str) -> str:
    """Return the replacement with its references filled in as Java's `replaceAll` does; a reference to a group that
    the expression does not have stays as it is."""

    def expand(reference: re.Match[str]) -> str:
        literal, number, name = reference.groups()
        if literal is not None:
            return str(literal)
        if name is not None:
            return match[name] or "" if name in match.re.groupindex else reference[0]
        # `$12` is group 1 and a 2 where there are fewer than twelve groups.
        for end in range(len(number), 0, -1):
            if int(number[:end]) <= match.re.groups:
                return (match[int(number[:end])] or "") + number[end:]
        return reference[0]

    return _GROUP.sub(expand, replacement)
