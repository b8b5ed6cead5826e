"""Config providers: values that a configuration refers to, and that so stand neither in a topic nor in an answer.

    ${file:/run/secrets/db.properties:password}    a key of a properties file
    ${directory:/run/secrets:password}             a file of a folder, as a whole
    ${env:DB_PASSWORD}                             a variable of the worker's environment

The worker names them: `config.providers=file,env`, `config.providers.file.class=…FileConfigProvider`,
`config.providers.file.param.allowed.paths=/run/secrets`. A reference to another provider stays as it is.

Three places look values up: the task, where they are used; the herder, for the tasks that a connector has; and
validation (`config_validation.py`), whose answer must not show them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pessoa.base.config_values import split_list
from pessoa.base.properties import MalformedProperties, read_properties
from pessoa.web.settings import settings_below

Lookup = Callable[[str, str], str | None]


class Reference(NamedTuple):
    """A reference in a text, from `start` to `end`: `${provider:path:key}`, or `${provider:key}` with an empty path."""

    start: int
    end: int
    provider: str
    path: str
    key: str
    text: str


def references(text: str) -> Iterator[Reference]:
    r"""The references in a text, as Apache's `\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}` finds them: a provider up to the
    first colon, a path up to the second if there is one, and the rest. That expression takes cubic time on `${::::…`.
    """
    end = 0
    while (start := text.find("${", end)) >= 0 and (brace := text.find("}", start)) >= 0:
        end = brace + 1
        provider, colon, rest = text[start + 2 : brace].partition(":")
        if colon:
            path, second, key = rest.partition(":")
            yield Reference(start, end, provider, path if second else "", key if second else rest, text[start:end])


def replace_references(text: str, value_of: Callable[[Reference], str]) -> str:
    parts, at = [], 0
    for one in references(text):
        parts += [text[at : one.start], value_of(one)]
        at = one.end
    return "".join([*parts, text[at:]])


class ProviderFailed(Exception):
    """A reference names a value that does not exist; the message says which."""


class Providers:
    def __init__(self, worker: Mapping[str, str]) -> None:
        self._lookups: dict[str, Lookup] = {}
        for name in split_list(worker.get("config.providers", "")):
            prefix = f"config.providers.{name}."
            kind = worker.get(f"{prefix}class", "").rpartition(".")[2]
            if kind not in _KINDS:
                raise ProviderFailed(f"{prefix}class={worker.get(f'{prefix}class')}: there are {', '.join(_KINDS)}")
            self._lookups[name] = _KINDS[kind](settings_below(worker, f"{prefix}param."))

    def resolve(self, settings: Mapping[str, str]) -> dict[str, str]:
        return {key: self._resolve_references(text) for key, text in settings.items()}

    def known_values(self, text: str) -> dict[str, str]:
        """Return the value of each reference in a text; a reference without a value is left out."""
        found = {}
        for one in references(text) if self._lookups else ():
            try:
                value = self._value(one)
            except (ProviderFailed, OSError, UnicodeDecodeError):
                continue
            if value != one.text:
                found[one.text] = value
        return found

    def _resolve_references(self, text: str) -> str:
        return replace_references(text, self._value) if self._lookups else text

    def _value(self, one: Reference) -> str:
        lookup = self._lookups.get(one.provider)
        if lookup is None:
            return one.text
        found = lookup(one.path, one.key)
        # Kafka leaves a reference to a missing key alone; the connector that gets it fails in a way that is hard to
        # understand.
        if found is None:
            raise ProviderFailed(f"{one.text}: there is no such value")
        return found


def _allowed_path(path: str, parameters: Mapping[str, str]) -> Path | None:
    wanted = Path(path).resolve()
    allowed = split_list(parameters.get("allowed.paths", ""))
    if allowed and not any(wanted.is_relative_to(Path(each).resolve()) for each in allowed):
        return None
    return wanted


def _file(parameters: Mapping[str, str]) -> Lookup:
    def look(path: str, key: str) -> str | None:
        wanted = _allowed_path(path, parameters)
        if wanted is None or not wanted.is_file():
            return None
        try:
            return read_properties(wanted).get(key)
        except MalformedProperties as problem:
            raise ProviderFailed(f"{wanted}: {problem}") from None

    return look


def _directory(parameters: Mapping[str, str]) -> Lookup:
    def look(path: str, key: str) -> str | None:
        folder = _allowed_path(path, parameters)
        if folder is None or "/" in key or not (folder / key).is_file():
            return None
        return (folder / key).read_text(encoding="utf-8")

    return look


def _environment(parameters: Mapping[str, str]) -> Lookup:
    pattern = parameters.get("allowlist.pattern")

    def look(_: str, key: str) -> str | None:
        if pattern and not re.fullmatch(pattern, key):
            return None
        return os.environ.get(key)

    return look


_KINDS: dict[str, Callable[[Mapping[str, str]], Lookup]] = {
    "FileConfigProvider": _file,
    "DirectoryConfigProvider": _directory,
    "EnvVarConfigProvider": _environment,
}
