"""Formats that the operator brings: Python files or modules named by `pessoa.control.center.serdes`, run once at start.

    # /etc/pessoa/base64_texts.py
    import base64

    class Base64Texts:
        name = "base64"

        def can_read(self, topic, part):          # part: "key" or "value"
            return topic.startswith("mail-") and part == "value"

        def decode(self, data):                   # bytes → text, number, list, dict, None
            return base64.b64decode(data, validate=True).decode()

        def encode(self, value):                  # optional: what the page produces
            return base64.b64encode(str(value).encode())

    SERDES = [Base64Texts()]

A serde stands beside the built-in formats: it is chosen by its name, and with `auto` the first whose `can_read` agrees
is tried before anything is guessed. Only the configuration names code; a request can choose among the names that are
loaded and nothing else. A `decode` runs in the threads that read messages, several at a time. What it raises becomes a
sentence beside the message, which is then shown by the built-in formats: one bad record, or a bug in a serde, does not
end a search.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast, runtime_checkable

import msgspec

from pessoa.base.config_values import ConfigProblem
from pessoa.base.json_value import JsonValue

KEY = "pessoa.control.center.serdes"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")


@runtime_checkable
class Serde(Protocol):
    """The interface of an element of `SERDES`."""

    @property
    def name(self) -> str: ...

    def can_read(self, topic: str, part: str) -> bool:
        """Whether the bytes of this topic's keys (`part` is "key") or values ("value") are of this format."""
        ...

    def decode(self, data: bytes) -> JsonValue:
        """Return the decoded value; raise for bytes of another format."""
        ...


@runtime_checkable
class WritingSerde(Serde, Protocol):
    """A serde that also encodes the text that is typed on the page: the JSON value if it parses as JSON, else the
    string."""

    def encode(self, value: JsonValue) -> bytes: ...


class SerdeFailed(ValueError):
    """A serde could not decode or encode the value; the sentence names the serde."""


class OwnSerdes:
    """The serdes that were loaded, by name, in the order of the configuration."""

    def __init__(self, serdes: Iterable[Serde] = ()) -> None:
        self._serdes = {one.name: one for one in serdes}

    def __repr__(self) -> str:
        return f"<OwnSerdes {', '.join(self._serdes) or 'none'}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._serdes)

    def writing_names(self) -> tuple[str, ...]:
        return tuple(name for name, one in self._serdes.items() if isinstance(one, WritingSerde))

    def reading(self, topic: str, part: str) -> str | None:
        """Return the name of the first serde that reads this part of the topic; None if there is none. Raises
        `SerdeFailed`."""
        for name, one in self._serdes.items():
            try:
                if one.can_read(topic, part):
                    return name
            except Exception as failure:
                raise SerdeFailed(_sentence(name, failure)) from failure
        return None

    def decode(self, name: str, data: bytes) -> JsonValue:
        """Return the value that the serde decodes. Raises `SerdeFailed` for any error of the serde, and for a result
        that JSON cannot hold."""
        try:
            # Types that JSON does not have, such as a datetime, become texts.
            return cast("JsonValue", msgspec.to_builtins(self._serdes[name].decode(data), str_keys=True))
        except Exception as failure:
            raise SerdeFailed(_sentence(name, failure)) from failure

    def encode(self, name: str, text: str) -> bytes:
        """Return the bytes of the typed text. Raises `SerdeFailed`."""
        serde = self._serdes.get(name)
        if not isinstance(serde, WritingSerde):
            raise SerdeFailed(f"There is no serde {name} that encodes: there are {', '.join(self.writing_names())}.")
        try:
            value: JsonValue = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = text
        try:
            return bytes(serde.encode(value))
        except Exception as failure:
            raise SerdeFailed(_sentence(name, failure)) from failure


def load_serdes(places: Iterable[str], taken: Collection[str], further: Iterable[Serde] = ()) -> OwnSerdes:
    """Run the files (`…/name.py`) and modules, and return their `SERDES`, then `further` ones; `taken` are the names
    of built-in formats. Raises a `ConfigProblem`."""
    found: dict[str, Serde] = {}
    for place in places:
        for one in _serdes_of(place):
            if not isinstance(one, Serde):
                raise ConfigProblem(KEY, place, f"{one!r} in SERDES lacks name, can_read or decode")
            if not _NAME.fullmatch(str(one.name)):
                raise ConfigProblem(KEY, place, f"the name {one.name!r} of a serde is not letters, digits and ._-")
            if one.name in found or one.name in taken:
                raise ConfigProblem(KEY, place, f"another format is called {one.name} as well")
            found[one.name] = one
    for each in further:
        if each.name in found or each.name in taken:
            raise ConfigProblem(KEY, each.name, "a schema file or its message has this name as well")
        found[each.name] = each
    return OwnSerdes(found.values())


def _serdes_of(place: str) -> Iterator[object]:
    try:
        module = _module(place)
    except Exception as failure:
        raise ConfigProblem(KEY, place, f"it cannot be loaded: {type(failure).__name__}: {failure}") from failure
    serdes = getattr(module, "SERDES", None)
    if not isinstance(serdes, list | tuple) or not serdes:
        raise ConfigProblem(KEY, place, "it has no list SERDES with serdes in it")
    yield from serdes


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    spec = importlib.util.spec_from_file_location(f"pessoa_serdes_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sentence(name: str, failure: Exception) -> str:
    return f"The serde {name} says: {str(failure) or type(failure).__name__}"
