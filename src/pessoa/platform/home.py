"""Where the platform keeps its data and logs: `$PESSOA_HOME`, or `.pessoa` in the user's home directory."""

from __future__ import annotations

import os
from pathlib import Path


def pessoa_home() -> Path:
    # An empty variable means unset: PESSOA_HOME= in a script must not scatter files over the working directory.
    return Path(os.environ.get("PESSOA_HOME") or "~/.pessoa").expanduser().absolute()
