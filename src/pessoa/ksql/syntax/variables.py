"""Variables of a session: `DEFINE topic = 'orders';`, then `${topic}` in names, strings and in the place of literals.

Names are case-insensitive. Inside quotes an unknown `${name}` stays as it is: settings of connectors have references of
their own (`${file:/secrets:password}`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

REFERENCE = re.compile(r"\$\{(\w+)\}")


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with references to known variables, by upper-cased name, replaced by their values."""
    if "${" not in text:
        return text
    return REFERENCE.sub(lambda match: variables.get(match[1].upper(), match[0]), text)
