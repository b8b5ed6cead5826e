"""Where Pessoa keeps its files: `$PESSOA_HOME`, or `.pessoa` in the user's home directory, always an absolute path.

Commands, services and apps have folders of their own in it; what `pessoa up` keeps there says platform/home.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def home_path() -> str:
    # An empty variable means unset: PESSOA_HOME= in a script must not scatter files over the working directory.
    # Without pathlib, which takes four milliseconds of a broker's start.
    return os.path.abspath(os.path.expanduser(os.environ.get("PESSOA_HOME") or "~/.pessoa"))  # noqa: PTH100, PTH111


def pessoa_home() -> Path:
    from pathlib import Path

    return Path(home_path())
