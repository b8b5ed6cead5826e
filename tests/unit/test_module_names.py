"""Base names of modules in src are unique, except those in MIRRORED and SHARED, so that a module is easy to find."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/pessoa"

# What an API says on the wire, and the row that serves it.
MIRRORED = {"wire/api", "broker/apis"}
# A command and what it starts or asks for; the same step for two formats.
SHARED = {
    "broker": {"cli", "testing"},
    "cluster": {"cli", "testing"},
    "codec": {"serde/avro", "serde/protobuf"},
    "delete_records": {"cli", *MIRRORED},
    "parsing": {"serde/avro", "serde/protobuf"},
    "printing": {"serde/avro", "serde/protobuf"},
    "settings": {"security/tls", "web"},
}


def test_no_two_modules_have_the_same_base_name() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        if not file.stem.startswith("__"):
            places[file.stem].add(str(file.parent.relative_to(SOURCE)))
    doubled = {name: found for name, found in places.items() if len(found) > 1 and found != MIRRORED}
    assert doubled == SHARED
