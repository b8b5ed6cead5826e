"""Which feature levels go with which release of Kafka: the table behind kafka-features and kafka-storage.

A release is a metadata version (`4.3-IV0`, or `4.3` for the last one of that release). Every other feature has levels
that became the default of new clusters with some metadata version.
"""

from __future__ import annotations

_NAMES = """
    3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0
    3.9-IV0 4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0 4.4-IV0
""".split()
_FIRST_LEVEL = 7
METADATA_VERSIONS = {name: level for level, name in enumerate(_NAMES, _FIRST_LEVEL)}
# The last one that Kafka 4.3 calls stable; the one behind it is for its developers.
LATEST = "4.3-IV0"

# Feature, its level, and the metadata version with which that became the default.
_DEFAULTS = (
    ("kraft.version", 1, "3.9-IV0"),
    ("transaction.version", 2, "4.0-IV2"),
    ("group.version", 1, "4.0-IV0"),
    ("eligible.leader.replicas.version", 1, "4.1-IV0"),
    ("share.version", 1, "4.2-IV0"),
    ("streams.version", 1, "4.2-IV1"),
)
FEATURES = ("metadata.version", *(name for name, _, _ in _DEFAULTS))
# What a level of a feature needs of others.
_DEPENDENCIES = {("eligible.leader.replicas.version", 1): (("metadata.version", METADATA_VERSIONS["4.0-IV1"]),)}


class UnknownFeature(Exception):
    pass


def metadata_level(release: str) -> int:
    """Return the metadata.version of a release, given by its full name or its first two numbers."""
    if release in METADATA_VERSIONS:
        return METADATA_VERSIONS[release]
    same = [level for name, level in METADATA_VERSIONS.items() if name.split("-")[0] == release]
    if not same or release == "4.4":
        raise UnknownFeature(
            f"Unknown metadata.version '{release}'. Supported metadata.version are: {', '.join(METADATA_VERSIONS)}"
        )
    return same[-1]


def metadata_name(level: int) -> str:
    return next((name for name, number in METADATA_VERSIONS.items() if number == level), str(level))


def level_text(feature: str, level: int) -> str:
    return metadata_name(level) if feature == "metadata.version" else str(level)


def levels_of(release: str) -> dict[str, int]:
    """Return every feature at the level that a new cluster of this release has."""
    metadata = metadata_level(release)
    others = {name: level if metadata >= METADATA_VERSIONS[since] else 0 for name, level, since in _DEFAULTS}
    return {"metadata.version": metadata, **others}


def mapping_lines(release: str) -> list[str]:
    lines = []
    for name, level in levels_of(release).items():
        lines.append(f"{name}={level} ({release})" if name == "metadata.version" else f"{name}={level}")
    return lines


def dependency_lines(feature_levels: list[str]) -> list[str]:
    lines = []
    for text in feature_levels:
        name, level = parse_level(text)
        if name not in FEATURES:
            raise UnknownFeature(f"Unknown feature: {name}")
        shown = _with_name(name, level)
        needed = _DEPENDENCIES.get((name, level))
        if needed is None:
            lines.append(f"{shown} has no dependencies.")
        else:
            lines.append(f"{shown} requires:")
            lines += [f"    {_with_name(*one)}" for one in needed]
    return lines


def _with_name(name: str, level: int) -> str:
    return f"{name}={level} ({metadata_name(level)})" if name == "metadata.version" else f"{name}={level}"


def parse_level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals:
        raise UnknownFeature(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name.strip(), int(level)
    except ValueError:
        raise UnknownFeature(
            f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short."
        ) from None
