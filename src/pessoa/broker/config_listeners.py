"""Listeners as they are written in a configuration: `NAME://host:port`, and which protocol each name stands for.

A name is free; `listener.security.protocol.map` says what it speaks. A listener that is called like a protocol speaks
that. Names are compared in capitals. An empty host means every address of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from pessoa.base.config_values import ConfigProblem, split_list


class SecurityProtocol(IntEnum):
    """The security protocol of a listener; the numbers are those of broker registrations. Each combines two choices:
    whether TLS encrypts the connection, and whether clients authenticate with SASL."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ListenerEndpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


_ENDPOINT = re.compile(
    r"(?P<name>[^:/\s]+)://(?:\[(?P<ip6>[0-9A-Fa-f:%.\w]+)\]|(?P<host>[^:/\[\]\s]*)):(?P<port>[0-9]{1,9})"
)
_PORT_MAX = (1 << 16) - 1

_MAP = "listener.security.protocol.map"


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Return the protocol of each listener; the form of the text was checked with its key."""
    protocols: dict[str, SecurityProtocol] = {}
    for entry in split_list(text):
        name, _, protocol = (part.strip() for part in entry.partition(":"))
        if name.upper() in protocols:
            raise ConfigProblem(_MAP, text, f"the listener {name} is there twice")
        protocols[name.upper()] = SecurityProtocol[protocol]
    return protocols


def parse_endpoints(
    key: str, entries: Iterable[str], protocols: Mapping[str, SecurityProtocol]
) -> tuple[ListenerEndpoint, ...]:
    """Return the listeners of a list, each name once."""
    endpoints: dict[str, ListenerEndpoint] = {}
    for entry in entries:
        match = _ENDPOINT.fullmatch(entry)
        if match is None or int(match["port"]) > _PORT_MAX:
            raise ConfigProblem(key, entry, f"it must be NAME://host:port, with a port of at most {_PORT_MAX}")
        name = match["name"].upper()
        if name in endpoints:
            raise ConfigProblem(key, entry, f"the listener {name} is there twice")
        if name not in protocols:
            raise ConfigProblem(key, entry, f"{_MAP} does not say what the listener {name} speaks")
        endpoints[name] = ListenerEndpoint(
            name, match["ip6"] or match["host"] or "", int(match["port"]), protocols[name]
        )
    return tuple(endpoints.values())
