"""Load the user functions of `ksql.extension.dir`: every `*.py` in it is run once, when the server starts."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path

from pessoa.ksql.functions.user_functions import MODULE_PREFIX

log = logging.getLogger("pessoa.ksql")

_DECLARING = b"pessoa.ksql.functions.user_functions"


def load_directory(directory: Path, *, only_declaring: bool = False) -> list[str]:
    """Run the files of a directory, and return their names; a file that fails is logged and left out.

    With `only_declaring`, files that do not import user_functions are not run: the directory may contain other Python
    files.
    """
    if not directory.is_dir():
        return []
    loaded = []
    for path in sorted(directory.glob("*.py")):
        if only_declaring and _DECLARING not in path.read_bytes():
            continue
        name = MODULE_PREFIX + path.stem
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None, path
        assert spec.loader is not None, path
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception:
            # One file of many: the server runs without its functions, and logs that.
            log.exception("the user functions of %s cannot be loaded", path)
            del sys.modules[name]
            continue
        log.info("the user functions of %s are loaded", path)
        loaded.append(path.stem)
    return loaded
