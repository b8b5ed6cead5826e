"""The door to the broker for those who start one: `pessoa broker`, the supervisor, tests.

`main` runs one in the foreground until it is told to stop; `make_broker` makes one for the event loop of
its caller.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.base.config_values import ConfigProblem
from pessoa.log.files import DiskError
from pessoa.log.meta_properties import CorruptProperties
from pessoa.net.freed_memory import keep_freed_memory
from pessoa.quorum.formatting import WrongDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.lifecycle import Broker
    from pessoa.log.files import Disk
    from pessoa.metadata.image import MetadataImage
    from pessoa.net.network import Network

    # What those outside may call the things that they are given.
    AnyBroker = Broker
    AnyDisk = Disk
    AnyImage = MetadataImage

log = logging.getLogger("pessoa.broker")

# While a node starts, nearly everything that it makes stays: looking for garbage as often as usual takes 4 % longer.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000

_EXAMPLES = """\
examples:
  pessoa broker                                        a cluster of one on 127.0.0.1:9092
  pessoa broker --set listeners=PLAINTEXT://127.0.0.1:19092 --set log.dirs=/tmp/broker
  pessoa broker --config server.properties             with Kafka's own keys

a cluster of three, each in a terminal of its own (N is 1, 2 and 3):
  pessoa broker --set node.id=N \
    --set listeners=PLAINTEXT://127.0.0.1:N9092,CONTROLLER://127.0.0.1:N9093 \
    --set controller.quorum.voters=1@127.0.0.1:19093,2@127.0.0.1:29093,3@127.0.0.1:39093
"""


def main(argv: list[str]) -> int:
    from pessoa.broker.registration import RegistrationRefused
    from pessoa.quorum.metadata_log import CorruptMetadataLog
    from pessoa.quorum.state_file import CorruptQuorumState
    from pessoa.quorum.uncommitted_appends import QuorumFailed

    damaged = (CorruptProperties, CorruptQuorumState, CorruptMetadataLog, QuorumFailed, DiskError)
    collector = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    options = _parser().parse_args(argv)
    _log_to_stderr()
    keep_freed_memory()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            broker = _make(_load(options), options)
            runner.run(_run_until_stopped(broker, partial(_end_start, collector)))
    except (ConfigProblem, WrongDirectory, RegistrationRefused, *damaged) as problem:
        log.error("%s", problem)  # noqa: TRY400
        return 1
    except OSError as problem:
        log.error("cannot listen: %s", problem.strerror or problem)  # noqa: TRY400
        return 1
    return 0


def _log_to_stderr() -> None:
    from pessoa.broker.logs.log_lines import EscapingFormatter
    from pessoa.broker.logs.repeated_lines import BoundedStderr

    handler = BoundedStderr()
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pessoa broker",
        description="Run one broker in the foreground. SIGTERM and Ctrl-C stop it in order.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a server.properties")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one key; wins over the file (repeatable)"
    )
    parser.add_argument("--cluster-id", metavar="ID", help="the cluster to belong to; a new directory gets it")
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="SCRAM-SHA-512=[name=…,password=…]",
        help="a user that a new cluster begins with, as for kafka-storage (repeatable)",
    )
    return parser


def _make(config: BrokerConfig, options: argparse.Namespace) -> Broker:
    from pessoa.broker.lifecycle import Broker
    from pessoa.security.sasl.first_users import BadFirstUser, parse_first_users

    try:
        users = parse_first_users(options.add_scram, os.urandom)
    except BadFirstUser as problem:
        raise ConfigProblem("--add-scram", None, str(problem)) from None
    return Broker(config, cluster_id=options.cluster_id, first_records=users)


def _load(options: argparse.Namespace) -> BrokerConfig:
    from pessoa.broker.config import load, parse_settings

    text = None
    if options.config is not None:
        try:
            text = options.config.read_text(encoding="latin-1")
        except OSError as problem:
            raise ConfigProblem("--config", str(options.config), problem.strerror or str(problem)) from problem
    return load(text, parse_settings(options.set), _home(), file_name=str(options.config or "server.properties"))


def make_broker(
    settings: Mapping[str, str],
    disk: Disk | None = None,
    network: Network | None = None,
    cluster_id: str | None = None,
) -> Broker:
    """A broker with these of Kafka's keys, a cluster of its own unless they name other voters; `start` and `stop` are
    the caller's."""
    from pessoa.broker.config import BrokerConfig, single_node_properties
    from pessoa.broker.lifecycle import Broker

    config = BrokerConfig(single_node_properties(settings, _home()))
    return Broker(config, disk=disk, network=network, cluster_id=cluster_id)


def memory_disk(directory: str) -> Disk:
    """A disk in memory that has one empty directory."""
    from pessoa.base.clock import SystemClock
    from pessoa.log.simulated_disk import SimulatedDisk

    disk = SimulatedDisk(now_ms=SystemClock().now_ms)
    disk.make_directory(directory)
    return disk


def crash_disk(disk: Disk, *, power_loss: bool) -> None:
    """Do to a disk in memory what happens when its process is killed, or when the power goes."""
    from pessoa.log.simulated_disk import SimulatedDisk

    assert isinstance(disk, SimulatedDisk)
    if power_loss:
        disk.lose_power()
    else:
        disk.crash_process()


def _home() -> Path:
    return Path(os.environ.get("PESSOA_HOME") or "~/.pessoa").expanduser().absolute()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop is two to four times as fast, and is not there on every platform."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _role(config: BrokerConfig) -> str:
    return "broker" if config.is_broker else "controller"


def _end_start(collector: tuple[int, int, int]) -> None:
    """What there is now stays until the end: no collection looks at it again."""
    gc.freeze()
    gc.set_threshold(*collector)


async def _start(broker: Broker, on_ready: Callable[[], None]) -> None:
    await broker.start()
    await broker.wait_until_ready()
    on_ready()
    log.info("%s %s of cluster %s is ready", _role(broker.config), broker.config.node_id, broker.cluster_id)


async def _run_until_stopped(broker: Broker, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, or until the broker cannot go on. Then it ends as if it had been killed: what it
    would still write or say to end in order is nothing to build upon (Kafka halts as well, with 1).

    A start that waits for other nodes is given up when the process is told to stop."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    stopped = loop.create_task(asked.wait())
    starting = loop.create_task(_start(broker, on_ready))
    try:
        # A start may wait for minutes, for a quorum or for the directories.
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await asyncio.wait((stopped, broker.failed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        if broker.failed.done():
            broker.abandon()
        else:
            log.info("stopping")
            await broker.stop()
    if broker.failed.done():
        broker.failed.result()
