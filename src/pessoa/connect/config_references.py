"""References to config providers within one validation: their values are checked, and none is shown.

Apache's worker checks the values as well, and answers with them: a client that may ask for a validation can read every
file and variable that the providers can. Here a key shows the text that it was given, and a sentence about what is
wrong says the reference in place of its value. A sentence in which a part of a value is left (the port of an address,
say) is replaced by one that says less.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pessoa.connect.config_providers import ProviderFailed, Providers, replace_references
from pessoa.connect.definition import KeyReport
from pessoa.web.problems import HttpProblem

# Words of a secret value that would reveal it in an error message. Shorter words, and those that any message may have,
# would not.
_TELLING_WORD = re.compile(r"\w{4,}")
_COMMON_WORDS = frozenset(("true", "false", "null", "none"))


@dataclass(frozen=True, slots=True)
class References:
    given: Mapping[str, str]
    # Each key's text, with references replaced by their values if they have one.
    texts: dict[str, str]
    # By reference, `${provider:path:key}`.
    values: Mapping[str, str]

    def hide_values(self, reports: Mapping[str, KeyReport], adapted: Mapping[str, str]) -> None:
        """Put references back in place of their values. `adapted` has the given texts under the connector's key
        names."""
        if not self.values:
            return
        for name, report in reports.items():
            text = self.given.get(name, adapted.get(name, ""))
            refers = any(reference in text for reference in self.values)
            if refers and report.value is not None:
                report.value = text
            report.errors[:] = [self._without_values(name, text if refers else "", each) for each in report.errors]

    def _without_values(self, name: str, text: str, sentence: str) -> str:
        found = sentence
        if text:
            found = found.replace(f"Invalid value {_resolve(text, self.values)} for", f"Invalid value {text} for", 1)
        for reference, value in sorted(self.values.items(), key=lambda each: -len(each[1])):
            if _telling_words(value):
                found = found.replace(value, reference)
        rest = replace_references(found, lambda _: "")
        if all(word not in rest for value in self.values.values() for word in _telling_words(value)):
            return found
        if text:
            return f"Invalid value {text} for configuration {name}: what it refers to is not valid"
        return f"Invalid value for configuration {name}: it does not go together with a value that is referred to"


def resolve_references(worker: Mapping[str, str], given: Mapping[str, str]) -> References:
    """Replace the references of a configuration by their values. A reference without a value stays: the worker that
    runs the task may have it, and reports it if not."""
    if not any("${" in text for text in given.values()):
        return References(given, dict(given), {})
    try:
        providers = Providers(worker)
    except ProviderFailed as wrong:
        raise HttpProblem(400, str(wrong)) from None
    values: dict[str, str] = {}
    for name, text in given.items():
        if name not in _NAMES:
            values |= providers.known_values(text)
    texts = {name: text if name in _NAMES else _resolve(text, values) for name, text in given.items()}
    return References(given, texts, values)


# Settings whose texts become names in the response.
_NAMES = ("name", "connector.class", "transforms", "predicates")


def _resolve(text: str, values: Mapping[str, str]) -> str:
    return replace_references(text, lambda one: values.get(one.text, one.text))


def _telling_words(value: str) -> set[str]:
    return {*_TELLING_WORD.findall(value)} - _COMMON_WORDS
