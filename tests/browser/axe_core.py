"""Check pages with axe-core, an accessibility checker, fetched once from npm into build/ with a pinned checksum."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Page

VERSION = "4.10.3"
# The output of `npm view axe-core@4.10.3 dist.integrity`.
SHA512 = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
FOLDER = Path(__file__).parents[2] / "build" / "axe-core"


def serious_faults(page: Page, script: str, rules: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """Return URL, rule and HTML of the faults on an open page that axe-core rates as serious or critical.

    All rules are checked, or only those given.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(script)
    chosen = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("options => axe.run(document, options)", chosen)
    return [
        (page.url, one["id"], one["nodes"][0]["html"][:160])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def axe_script() -> str:
    """Return the text of axe.min.js; skip the test if npm is not installed or cannot fetch it."""
    archive = FOLDER / f"axe-core-{VERSION}.tgz"
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not on PATH, so pages are not checked with axe-core")
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", f"axe-core@{VERSION}", "--silent", "--pack-destination", str(FOLDER)]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm cannot fetch axe-core, so pages are not checked with it: {done.stderr[-200:]}")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert found == SHA512, f"{archive} is not axe-core {VERSION}: its checksum is {found}"
    with tarfile.open(archive) as files:
        member = files.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()
