"""The options in `sasl.jaas.config` of a client: its user and password, or what it asks for tokens with.

The text is read by the parser that brokers use (`security/sasl/jaas.py`). No error repeats any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.client.client_errors import BadSettings
from pessoa.security.sasl.jaas import BadJaas, parse_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

JAAS = "sasl.jaas.config"


def login_options(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of `sasl.jaas.config` by name; none if it is not set. Raises `BadSettings`."""
    text = settings.get(JAAS, "")
    if not text.strip():
        return {}
    try:
        return parse_entry(text).options
    except BadJaas as problem:
        raise BadSettings(f"Invalid value for configuration {JAAS}: {problem}") from None
