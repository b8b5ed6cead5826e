"""`kafka-features`: the features of a cluster, their levels, and raising or lowering them (KIP-584, KIP-1022)."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

from pessoa.cli.feature_levels import (
    LATEST,
    UnknownFeature,
    dependency_lines,
    level_text,
    levels_of,
    mapping_lines,
    metadata_level,
    parse_level,
)
from pessoa.cli.subcommands import Failed, Parser, connect, parsed_tool

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required: command"):
            message = "too few arguments"
        message = message.removeprefix("argument command: ")
        print(f"Command line error: {message}. Type --help for help.", end="", file=sys.stderr)
        raise SystemExit(1)


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kafka-features", description="This tool manages feature flags in Kafka.")
    parser.add_argument("--bootstrap-server", help="the brokers to begin with")
    parser.add_argument("--bootstrap-controller", help="the controllers to begin with")
    parser.add_argument("--command-config", help="a properties file for the connection")
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="show the features and their levels")
    describe.add_argument("--node-id", type=int, help="ask this node what it supports")
    upgrade = commands.add_parser("upgrade", help="raise levels")
    downgrade = commands.add_parser("downgrade", help="lower levels")
    disable = commands.add_parser("disable", help="set levels to 0")
    for command in (upgrade, downgrade):
        command.add_argument("--metadata", help="the old way to name a metadata.version")
        command.add_argument("--release-version", help="all levels of a release")
        command.add_argument("--feature", action="append", help="feature=level, repeatable")
        command.add_argument("--dry-run", action="store_true", help="only say whether it would work")
    disable.add_argument("--feature", action="append", help="a feature, repeatable")
    disable.add_argument("--dry-run", action="store_true", help="only say whether it would work")
    for command in (downgrade, disable):
        command.add_argument("--unsafe", action="store_true", help="even if metadata may be lost")
    mapping = commands.add_parser("version-mapping", help="the levels of a release")
    mapping.add_argument("--release-version", default=LATEST, help="the release")
    dependencies = commands.add_parser("feature-dependencies", help="what a level needs")
    dependencies.add_argument("--feature", action="append", required=True, help="feature=level, repeatable")
    return parser


@parsed_tool(make_parser)
def main(chosen: argparse.Namespace) -> int:
    if chosen.bootstrap_server is None and chosen.bootstrap_controller is None:
        print("Command line error: You must specify either --bootstrap-controller or --bootstrap-server.. "
              "Type --help for help.", end="", file=sys.stderr)  # fmt: skip
        return 1
    try:
        if chosen.command == "version-mapping":
            print("\n".join(mapping_lines(chosen.release_version)))
            return 0
        if chosen.command == "feature-dependencies":
            print("\n".join(dependency_lines(chosen.feature)))
            return 0
        with connect(chosen.bootstrap_server, chosen.bootstrap_controller, chosen.command_config) as cluster:
            if chosen.command == "describe":
                _describe(cluster, chosen.node_id)
                return 0
            return _update(cluster, chosen)
    except UnknownFeature as error:
        raise Failed(str(error)) from None


def _describe(cluster: Cluster, node_id: int | None) -> None:
    found = cluster.connection(node_id).api_versions
    finalized = {one.name: one.max_version_level for one in found.finalized_features}
    epoch = found.finalized_features_epoch if found.finalized_features_epoch >= 0 else "-"
    for one in sorted(found.supported_features, key=lambda one: one.name):
        lowest, highest = level_text(one.name, one.min_version), level_text(one.name, one.max_version)
        level = level_text(one.name, finalized.get(one.name, 0))
        print(
            f"Feature: {one.name:<40}  SupportedMinVersion: {lowest:<15}  SupportedMaxVersion: {highest:<15}  "
            f"FinalizedVersionLevel: {level:<15}  Epoch: {epoch}"
        )


def _update(cluster: Cluster, chosen: argparse.Namespace) -> int:
    from pessoa.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

    command = chosen.command
    levels = _levels(chosen)
    kind = _UPGRADE if command == "upgrade" else _UNSAFE_DOWNGRADE if chosen.unsafe else _SAFE_DOWNGRADE
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels.items()
    ]
    answer = cluster.ask(
        UpdateFeaturesRequest(timeout_ms=cluster.api_timeout_ms, feature_updates=updates, validate_only=chosen.dry_run),
        UpdateFeaturesResponse,
        name="updateFeatures",
    )
    errors = {one.feature: one.error_message or "" for one in answer.results if one.error_code}
    if answer.error_code:
        errors = dict.fromkeys(levels, answer.error_message or "")
    for name in sorted(levels):
        done = f"{command}d"
        target = "" if command == "disable" else f" to {levels[name]}"
        if name in errors:
            failure_text = "Can not" if chosen.dry_run else "Could not"
            print(f"{failure_text} {command} {name}{target}. {errors[name]}")
        else:
            verb = "can be" if chosen.dry_run else "was"
            print(f"{name} {verb} {done}{target}.")
    if errors:
        sys.stdout.flush()
        print(f"{len(errors)} out of {len(levels)} operation(s) failed.", file=sys.stderr)
        return 1
    return 0


def _levels(chosen: argparse.Namespace) -> dict[str, int]:
    command, features = chosen.command, chosen.feature or []
    if command == "disable":
        if not features:
            raise Failed("You must specify at least one feature to disable.")
        return dict.fromkeys(features, 0)
    if chosen.release_version is not None:
        if chosen.metadata is not None or features:
            raise Failed(f"Can not specify --release-version with other feature flags to {command}")
        return levels_of(chosen.release_version)
    levels = {}
    if chosen.metadata is not None:
        print("`metadata` flag is deprecated and may be removed in a future release.")
        levels["metadata.version"] = metadata_level(chosen.metadata)
    for text in features:
        name, level = parse_level(text)
        if name in levels:
            raise Failed(f"Feature {name} was specified more than once.")
        levels[name] = level
    if not levels:
        raise Failed(f"You must specify at least one feature to {command}")
    return levels
