"""Data contracts: the metadata and the rules that a schema is registered with.

What a version gets is laid in three layers, the later ones over the earlier: the defaults of the configuration; those
of the request, or, if it has none, of the version before it; and the overrides of the configuration. Properties, tags
and rules are merged name by name.

A version that a request asks for by its number carries that number in the property `confluent:version`, which makes it
a schema of its own though its text may be an old one. A property `confluent:reserved` names fields, separated by
commas, that no schema of the subject may have; it is enforced if the configuration has validateFields.

Rules are checked for what makes them usable: a name, a type, and a mode that fits the list they stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.model import ConfigValue, Metadata, Rule, RuleSet

VERSION_PROPERTY = "confluent:version"
RESERVED_PROPERTY = "confluent:reserved"

_RULE_NAME = re.compile(r"[^\W\d][\w-]*\Z")
_MAX_RULE_NAME = 64
_MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES = ("WRITE", "READ", "WRITEREAD")
_KINDS = ("CONDITION", "TRANSFORM")
# The mode of a rule that names none.
_DEFAULT_MODE = "WRITEREAD"


# Layers.


def merged_metadata(*layers: Metadata | None) -> Metadata | None:
    """Return the metadata of all layers: a property of a later layer wins, tags and sensitive names are united. None
    if all are empty."""
    tags: dict[str, list[str]] = {}
    properties: dict[str, str] = {}
    sensitive: list[str] = []
    for layer in layers:
        if layer is None:
            continue
        for path, names in (layer.tags or {}).items():
            tags[path] = list(dict.fromkeys([*tags.get(path, []), *names]))
        properties |= layer.properties or {}
        sensitive += [name for name in layer.sensitive or [] if name not in sensitive]
    if not (tags or properties or sensitive):
        return None
    return Metadata(tags or None, properties or None, sensitive or None)


def merged_rules(*layers: RuleSet | None) -> RuleSet | None:
    """Return the rules of all layers: a rule of a later layer replaces one of the same name and comes after the
    others. None if all are empty."""
    lists: dict[str, list[Rule]] = {"migrationRules": [], "domainRules": [], "encodingRules": []}
    enable_at = None
    for layer in layers:
        if layer is None:
            continue
        enable_at = layer.enableAt or enable_at
        for kind, known in lists.items():
            added: list[Rule] = getattr(layer, kind) or []
            names = {rule.name for rule in added}
            lists[kind] = [rule for rule in known if rule.name not in names] + added
    if not any(lists.values()) and enable_at is None:
        return None
    return RuleSet(**{kind: rules or None for kind, rules in lists.items()}, enableAt=enable_at)


def without_rules(rule_set: RuleSet | None, names: Iterable[str]) -> RuleSet | None:
    if rule_set is None:
        return None
    removed = set(names)
    kept = {
        kind: [rule for rule in getattr(rule_set, kind) or [] if rule.name not in removed]
        for kind in ("migrationRules", "domainRules", "encodingRules")
    }
    return merged_rules(RuleSet(**kept, enableAt=rule_set.enableAt))


def configured_metadata(config: ConfigValue, metadata: Metadata | None) -> Metadata | None:
    return merged_metadata(config.defaultMetadata, metadata, config.overrideMetadata)


def configured_rules(config: ConfigValue, rule_set: RuleSet | None) -> RuleSet | None:
    return merged_rules(config.defaultRuleSet, rule_set, config.overrideRuleSet)


# Properties with a meaning.


def property_of(metadata: Metadata | None, name: str) -> str | None:
    return ((metadata.properties if metadata else None) or {}).get(name)


def with_version(metadata: Metadata | None, version: int) -> Metadata:
    """Return the metadata with the requested number of the version as a property."""
    merged = merged_metadata(metadata, Metadata(properties={VERSION_PROPERTY: str(version)}))
    assert merged is not None
    return merged


def without_version(metadata: Metadata | None) -> Metadata | None:
    if metadata is None or not metadata.properties or VERSION_PROPERTY not in metadata.properties:
        return metadata
    properties = {name: value for name, value in metadata.properties.items() if name != VERSION_PROPERTY}
    return merged_metadata(msgspec.structs.replace(metadata, properties=properties))


def asked_version(metadata: Metadata | None) -> int | None:
    """Return the version number that a request sets in the metadata's property; None without the property, 0 or less
    for the next version."""
    text = property_of(metadata, VERSION_PROPERTY)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise registry_problems.invalid_schema(f"{VERSION_PROPERTY}={text} is no number of a version") from None


def reserved_fields(metadata: Metadata | None) -> list[str]:
    text = property_of(metadata, RESERVED_PROPERTY) or ""
    return [name.strip() for name in text.split(",") if name.strip()]


# Checks.


def check_rules(rule_set: RuleSet | None) -> None:
    if rule_set is None:
        return
    _check_list("migration", rule_set.migrationRules or [], _MIGRATION_MODES)
    _check_list("domain", rule_set.domainRules or [], _DOMAIN_MODES)
    _check_list("encoding", rule_set.encodingRules or [], _DOMAIN_MODES)


def _check_list(kind: str, rules: list[Rule], modes: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for rule in rules:
        if not _RULE_NAME.match(rule.name) or len(rule.name) > _MAX_RULE_NAME:
            raise registry_problems.invalid_rules(
                f"'{rule.name}' is no name of a rule: letters, digits and _, no digit first, {_MAX_RULE_NAME} at most"
            )
        if rule.name in seen:
            raise registry_problems.invalid_rules(f"there are two {kind} rules with the name '{rule.name}'")
        seen.add(rule.name)
        if not rule.type:
            raise registry_problems.invalid_rules(f"the rule '{rule.name}' has no type")
        if (rule.kind or "TRANSFORM") not in _KINDS:
            raise registry_problems.invalid_rules(f"the kind of the rule '{rule.name}' is none of {', '.join(_KINDS)}")
        if (rule.mode or _DEFAULT_MODE) not in modes:
            raise registry_problems.invalid_rules(
                f"the mode of the {kind} rule '{rule.name}' is none of {', '.join(modes)}"
            )
