"""Which package may import which: the layers as tables, checked by import-linter.

                 cluster tower          services tower
                       └──────► floor ◄──────┘

- The floor imports neither tower, and within a tower a layer imports only lower layers.
- The services tower never imports the cluster tower. `cli`, `platform` and `testing` may, through `broker.assembly`;
  and a tool that reads the files of a broker may import the modules that say what those files look like.
- Pure packages import no event loop, sockets, files, clock or randomness, neither directly nor through other modules.
- pyspark is imported in `pipelines` and nowhere else.

import-linter refuses a configuration that names a module which does not exist, whereas the tables below name the whole
design. PLANNED has the modules that are not written yet. This file writes a configuration for the existing ones and
runs import-linter on it, so a contract holds from the first commit of its package on. These are errors:

- a package that is in none of the three tables of layers: no contract would limit its imports;
- a name in any table that neither exists nor is planned: its contract would have no effect;
- a name in PLANNED that exists: it must be removed from the list.

To place a new package, add its name to one of the three tables of layers; if it is pure, add a line to PURE.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from importlinter.cli import EXIT_STATUS_ERROR, lint_imports

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"

# Within each table, a line imports only lines below it; packages on one line are one layer and may import one another.
CLUSTER = [
    "broker",
    "controller replication coordinator quorum",
    "log raft metadata quota share",
]
SERVICES = [
    "cli platform testing",
    "control_center",
    "ksql connect streams schema_registry rest_proxy",
    "pipelines",
    "client serde web",
]
FLOOR = [
    "net security",
    "records",
    "wire",
    "base",
]

# These packages start brokers, and import them only through this module.
STARTERS = ["cli", "platform", "testing"]
BROKER_DOOR = "broker.assembly"

# kafka-dump-log reads the files of a broker, and kafka-storage writes the first ones, without a running broker. A file
# format is defined once, so the tools import it from the log and the quorum.
FILE_TOOLS = ["cli.dump_log.index_lines", "cli.storage"]
FILE_FORMATS = [
    "log.index",
    "log.aborted_transactions",
    "log.producer_snapshot_format",
    "log.os_disk",
    "quorum.formatting",
    "raft.messages",
    "raft.voters",
]

# Modules that decide about APIs which no listener serves.
DECIDES_UNSERVED: list[str] = []

# Packages, without the SHELLS in them, or single modules of packages that are not pure as a whole.
PURE = [
    "wire",
    "records",
    "net.connection",
    "net.connection_quota",
    "net.receive_buffer",
    "net.receive_room",
    "security.acl",
    "security.authorizer",
    "security.authorizer_log",
    "security.sasl",
    "security.jwt.json_web_keys",
    "security.jwt.json_web_tokens",
    "security.jwt.signature_algorithms",
    "log.producer_state",
    "log.leader_epoch_cache",
    "raft",
    "metadata",
    "quorum.batches",
    "quorum.peer_addresses",
    "replication.isr",
    "replication.backoff",
    "replication.divergence",
    "replication.follower_session",
    "replication.refused_batches",
    "replication.replication_throttle",
    "controller",
    "coordinator.groups",
    "coordinator.partitioning",
    "coordinator.record_batches",
    "coordinator.shard",
    "coordinator.timers",
    "coordinator.transactions",
    "coordinator.share",
    "quota",
    "share",
    "serde",
    "pipelines.plan",
    "pipelines.columns",
    "pipelines.shapes",
    "pipelines.stages",
    "pipelines.explain",
    "pipelines.formats",
    "pipelines.avro_columns",
    "ksql.analysis",
    "ksql.case_files",
    "ksql.evaluate",
    "ksql.functions",
    "ksql.operators",
    "ksql.syntax",
    "ksql.types",
    "streams.learning",
    "streams.windows",
    "control_center.filter_expressions",
    "control_center.masking",
    "control_center.offset_reset",
    "control_center.replica_plan",
    "control_center.lineage_graph",
    "control_center.sample_history",
]
# Modules of pure packages that do I/O or wait, and call the pure ones.
SHELLS = [
    "controller.controller",
    "coordinator.share.share_coordinator",
    "coordinator.transactions.marker_writer",
    "coordinator.transactions.producer_id_pool",
    "coordinator.transactions.transaction_coordinator",
    "coordinator.transactions.verification",
]

# Modules that the tables name and that do not exist yet.
PLANNED: list[str] = []

# uuid and datetime are not listed on purpose: their types are values; only `uuid4()` and `now()` are not pure, for
# which there are reviews and ruff's DTZ rules.
WORLD = """
    asyncio concurrent fcntl mmap multiprocessing os pathlib queue random sched secrets select selectors shutil signal
    socket socketserver ssl subprocess tempfile threading time uvloop
""".split()

# Modules outside of the packages that may import anything: the version, and the `python -m pessoa` stub.
UNPLACED = {"__init__", "__main__", "py"}


def exists(name: str) -> bool:
    path = SOURCE.joinpath("pessoa", *name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def there(names: Iterable[str]) -> list[str]:
    """Return the modules with these names that exist."""
    return [f"pessoa.{name}" for name in names if name not in PLANNED]


def pure_modules() -> list[str]:
    """Return PURE, in which a package with SHELLS is replaced by its other modules."""
    found = []
    for name in there(PURE):
        shells = [shell for shell in there(SHELLS) if shell.startswith(f"{name}.")]
        found += [one for one in modules_of(name) if one not in shells] if shells else [name]
    return found


def modules_of(package: str) -> list[str]:
    """Return the modules and packages directly in a package, sorted by name."""
    folder = SOURCE.joinpath(*package.split("."))
    return sorted(f"{package}.{path.stem}" for path in folder.iterdir() if path.stem != "__init__" and is_module(path))


def is_module(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").is_file()


def packages(table: list[str]) -> list[str]:
    return there(name for line in table for name in line.split())


def contract(identifier: str, title: str, kind: str, **options: Iterable[str] | str) -> str:
    lines = [f"[importlinter:contract:{identifier}]", f"name = {title}", f"type = {kind}"]
    for option, value in options.items():
        if isinstance(value, str):
            lines.append(f"{option} = {value}")
        else:
            lines += [f"{option} =", *(f"    {item}" for item in value)]
    return "\n".join(lines) + "\n"


def layers(identifier: str, title: str, table: list[str]) -> str:
    levels = (" : ".join(there(line.split())) for line in table)
    return contract(identifier, title, "layers", layers=[level for level in levels if level])


def forbidden(identifier: str, title: str, sources: list[str], targets: list[str], **options: str | list[str]) -> str:
    if not sources or not targets:
        return ""
    return contract(identifier, title, "forbidden", source_modules=sources, forbidden_modules=targets, **options)


def contracts() -> str:
    cluster, services, floor = packages(CLUSTER), packages(SERVICES), packages(FLOOR)
    starters = there(STARTERS)
    door = there([BROKER_DOOR])
    everything = [*cluster, *services, *floor]
    sections = [
        "[importlinter]\nroot_package = pessoa\ninclude_external_packages = True\n",
        layers("cluster", "Within the cluster tower imports go down", CLUSTER),
        layers("services", "Within the services tower imports go down", SERVICES),
        layers("floor", "Within the floor imports go down", FLOOR),
        forbidden("floor-alone", "The floor imports no tower", floor, cluster + services),
        forbidden("cluster-alone", "The cluster tower does not import the services", cluster, services),
        forbidden(
            "services-alone",
            "The services tower does not import the cluster tower",
            [name for name in services if name not in starters],
            cluster,
        ),
        # BROKER_DOOR itself imports the whole broker, so only direct imports of STARTERS are checked.
        forbidden(
            "broker-door",
            f"Starters reach the cluster tower through {BROKER_DOOR} alone, and its files by their formats",
            starters,
            cluster,
            allow_indirect_imports="True",
            ignore_imports=[
                *(f"{starter}.** -> {module}" for starter in starters for module in door),
                *(f"{tool} -> {module}" for tool in there(FILE_TOOLS) for module in there(FILE_FORMATS)),
            ],
            unmatched_ignore_imports_alerting="none",
        ),
        forbidden(
            "unserved", "What nothing serves is imported by the wire, and by what decides about it",
            [name for name in everything if name != "pessoa.wire"], there(["wire.unserved"]),
            allow_indirect_imports="True",
            ignore_imports=[
                f"{name}{part} -> pessoa.wire.unserved.**" for name in there(DECIDES_UNSERVED) for part in ("", ".**")
            ],
            unmatched_ignore_imports_alerting="none",
        ),
        forbidden("pure", "What is pure cannot reach the world", pure_modules(), WORLD),
        forbidden(
            "spark", "pyspark lives in pipelines", [n for n in everything if n != "pessoa.pipelines"], ["pyspark"],
            allow_indirect_imports="True",
        ),
    ]  # fmt: skip
    return "\n".join(section for section in sections if section)


def unplaced_packages() -> list[str]:
    placed = {name for table in (CLUSTER, SERVICES, FLOOR) for line in table for name in line.split()}
    found = {path.stem for path in (SOURCE / "pessoa").iterdir() if is_module(path)}
    return sorted(found - placed - UNPLACED)


def problems() -> Iterator[str]:
    if unplaced := unplaced_packages():
        yield f"place these in CLUSTER, SERVICES or FLOOR: {', '.join(unplaced)}"
    layers_named = [name for table in (CLUSTER, SERVICES, FLOOR) for line in table for name in line.split()]
    named = [*layers_named, *STARTERS, BROKER_DOOR, *FILE_TOOLS, *FILE_FORMATS, *DECIDES_UNSERVED, *PURE, *SHELLS]
    if missing := [name for name in named if name not in PLANNED and not exists(name)]:
        yield f"the tables name modules that do not exist: {', '.join(missing)}"
    if written := [name for name in PLANNED if exists(name)]:
        yield f"these are written, and no longer PLANNED: {', '.join(written)}"


def main() -> int:
    if found := list(problems()):
        for problem in found:
            print(f"{Path(__file__).name}: {problem}")
        return EXIT_STATUS_ERROR
    with TemporaryDirectory() as folder:
        configuration = Path(folder) / "importlinter.ini"
        configuration.write_text(contracts())
        return lint_imports(
            config_filename=str(configuration), cache_dir=str(ROOT / ".import_linter_cache"), no_logo=True
        )


if __name__ == "__main__":
    sys.exit(main())
