"""`kafka-storage`: make directories those of a node, say whose they are, and what features a release has.

A Pessoa broker formats an empty directory itself; this is for operators who choose the id of the cluster, the first
controllers or the first users beforehand. What is written is what a broker would write.
"""

from __future__ import annotations

import argparse
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.base.ids import Uuid
from pessoa.cli.feature_levels import LATEST, UnknownFeature, dependency_lines, mapping_lines, metadata_level
from pessoa.cli.subcommands import Failed, Parser, parsed_tool
from pessoa.cli.tool_run import read_properties

if TYPE_CHECKING:
    from pessoa.raft.voters import VoterSet
    from pessoa.wire.stored.metadata_records import UserScramCredentialRecord


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kafka-storage", description="The Kafka storage tool.")
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="{info,format,version-mapping,feature-dependencies,random-uuid}",
    )
    info = commands.add_parser("info", help="say whose the directories are")
    form = commands.add_parser("format", help="format the directories")
    for command in (info, form):
        command.add_argument("--config", "-c", required=True, help="the server.properties of the node")
    form.add_argument("--cluster-id", "-t", required=True, help="the id of the cluster")
    form.add_argument("--add-scram", "-S", action="append", help="a SCRAM credential to begin with")
    form.add_argument("--ignore-formatted", "-g", action="store_true", help="pass over directories that are formatted")
    form.add_argument("--release-version", "-r", help="the release whose features to begin with")
    form.add_argument("--feature", "-f", action="append", help="feature=level, repeatable")
    first = form.add_mutually_exclusive_group()
    first.add_argument("--standalone", "-s", action="store_true", help="a quorum of this node alone")
    first.add_argument("--no-initial-controllers", "-N", action="store_true", help="join a quorum that exists")
    first.add_argument("--initial-controllers", "-I", help="id@host:port:directory-id, with commas")
    mapping = commands.add_parser("version-mapping", help="the features of a release")
    mapping.add_argument("--release-version", "-r", default=LATEST, help="the release")
    dependencies = commands.add_parser("feature-dependencies", help="what a feature needs")
    dependencies.add_argument("--feature", "-f", action="append", required=True, help="feature=level, repeatable")
    commands.add_parser("random-uuid", help="make up an id")
    return parser


@parsed_tool(make_parser)
def main(chosen: argparse.Namespace) -> int:
    try:
        if chosen.command == "random-uuid":
            print(_new_uuid())
        elif chosen.command == "version-mapping":
            print("\n".join(mapping_lines(chosen.release_version)))
        elif chosen.command == "feature-dependencies":
            print("\n".join(dependency_lines(chosen.feature)))
        elif chosen.command == "info":
            return _info(read_properties(chosen.config))
        else:
            return _format(chosen, read_properties(chosen.config))
    except UnknownFeature as error:
        raise Failed(str(error)) from None
    return 0


def _new_uuid() -> Uuid:
    # An id that begins with a dash looks like an option to a tool that gets it as an argument.
    while (made := Uuid(uuid.uuid4().bytes)) and str(made).startswith("-"):
        pass
    return made


def _directories(settings: dict[str, str]) -> tuple[list[str], str]:
    """Return the log directories, and the directory of the metadata log."""
    paths = [path.strip() for path in settings.get("log.dirs", settings.get("log.dir", "/tmp/kafka-logs")).split(",")]  # noqa: S108
    return sorted(path for path in paths if path), settings.get("metadata.log.dir") or paths[0]


def _info(settings: dict[str, str]) -> int:
    paths, metadata_path = _directories(settings)
    found, problems = [], []
    metas = {}
    for path in sorted({*paths, metadata_path}):
        meta = Path(path, "meta.properties")
        if not Path(path).is_dir():
            problems.append(f"{path} does not exist" if not Path(path).exists() else f"{path} is not a directory")
            continue
        found.append(path)
        if meta.exists():
            metas[path] = dict(sorted(read_properties(str(meta)).items()))
        else:
            problems.append(f"{path} is not formatted.")
    if found:
        print(f"Found log director{'y' if len(found) == 1 else 'ies'}:")
        print("".join(f"  {path}\n" for path in found))
    if metas:
        shown = ", ".join(f"{key}={value}" for key, value in next(iter(metas.values())).items())
        print(f"Found metadata: {{{shown}}}\n")
    if problems:
        print(f"Found problem{'' if len(problems) == 1 else 's'}:")
        print("".join(f"  {problem}\n" for problem in problems))
        return 1
    return 0


def _format(chosen: argparse.Namespace, settings: dict[str, str]) -> int:
    from pessoa.log.os_disk import OsDisk
    from pessoa.quorum.formatting import WrongDirectory, format_metadata

    if chosen.release_version is not None and metadata_level(chosen.release_version) != metadata_level(LATEST):
        raise Failed(f"Only --release-version {LATEST} can be formatted; a cluster is moved with kafka-features.")
    if chosen.feature:
        raise Failed("--feature is not offered here; use kafka-features later.")
    users = _first_users(chosen.add_scram or [])
    if "node.id" not in settings:
        raise Failed(f"There is no node.id in {chosen.config}.")
    voters = _initial_voters(chosen, settings)
    paths, metadata_path = _directories(settings)
    every = sorted({*paths, metadata_path})
    formatted = [path for path in every if Path(path, "meta.properties").exists()]
    if formatted and not chosen.ignore_formatted:
        raise Failed(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others."
        )
    if len(formatted) == len(every):
        print("All of the log directories are already formatted.")
        return 0
    try:
        format_metadata(
            OsDisk(),
            paths,
            metadata_path,
            int(settings["node.id"]),
            _new_uuid,
            int(time.time() * 1000),
            chosen.cluster_id,
            voters,
            users,
        )
    except WrongDirectory as error:
        raise Failed(str(error)) from None
    for path in every:
        if path not in formatted:
            kind = "data"
            if path == metadata_path:
                kind = _kind_of_metadata(voters, int(settings["node.id"]))
            print(f"Formatting {kind} directory {path} with metadata.version {LATEST}.")
    return 0


def _first_users(arguments: list[str]) -> list[UserScramCredentialRecord]:
    from pessoa.security.sasl.first_users import BadFirstUser, parse_first_users

    try:
        return parse_first_users(arguments, os.urandom)
    except BadFirstUser as problem:
        raise Failed(str(problem)) from None


def _kind_of_metadata(voters: VoterSet | None, node_id: int) -> str:
    if voters is None:
        return "metadata"
    return "dynamic metadata voter" if node_id in voters.by_id else "dynamic metadata"


def _initial_voters(chosen: argparse.Namespace, settings: dict[str, str]) -> VoterSet | None:
    """Return the first voters of a quorum that keeps its voters in its log; None for a static quorum, for a broker,
    or with --no-initial-controllers."""
    is_controller = "controller" in settings.get("process.roles", "")
    is_static = bool(settings.get("controller.quorum.voters", "").strip())
    if is_static and (chosen.standalone or chosen.initial_controllers):
        raise Failed(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    listener = settings.get("controller.listener.names", "CONTROLLER").split(",")[0].strip()
    if chosen.initial_controllers:
        return _listed_voters(chosen.initial_controllers, listener)
    if chosen.standalone:
        if not is_controller:
            raise Failed("You can only use --standalone on a controller.")
        from pessoa.raft.messages import ReplicaKey
        from pessoa.raft.voters import Address, Voter, VoterSet

        key = ReplicaKey(int(settings["node.id"]), _new_uuid())
        return VoterSet([Voter(key, {listener: Address(*_controller_address(settings, listener))})])
    if is_controller and not is_static and not chosen.no_initial_controllers:
        raise Failed(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    return None


def _listed_voters(text: str, listener: str) -> VoterSet:
    from pessoa.raft.voters import Voter, VoterSet, parse_dynamic_voter

    voters: list[Voter] = []
    for entry in text.split(","):
        try:
            voter = parse_dynamic_voter(entry.strip(), listener)
        except ValueError as problem:
            raise Failed(str(problem)) from None
        if any(voter.key.id == one.key.id for one in voters):
            raise Failed(f"Node id {voter.key.id} was specified more than once.")
        voters.append(voter)
    return VoterSet(voters)


def _controller_address(settings: dict[str, str], listener: str) -> tuple[str, int]:
    for text in (settings.get("advertised.listeners") or settings.get("listeners", "")).split(","):
        name, _, address = text.strip().partition("://")
        if name == listener:
            host, _, port = address.rpartition(":")
            return host or "localhost", int(port)
    raise Failed(f"There is no address of the listener {listener} in the configuration.")
