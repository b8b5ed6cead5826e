"""How a broker is made and run, for `pessoa broker`, the supervisor and tests.

`main` runs one in the foreground until a signal stops it; `make_broker` makes one for the event loop of its caller.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pessoa.base.config_values import ConfigProblem
from pessoa.base.home_folder import home_path
from pessoa.broker.command_options import read_options
from pessoa.log.files import DiskError
from pessoa.log.meta_properties import CorruptProperties
from pessoa.net.freed_memory import keep_freed_memory
from pessoa.quorum.formatting import WrongDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pessoa.broker.command_options import CommandOptions
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.lifecycle import Broker
    from pessoa.log.files import Disk
    from pessoa.metadata.image import MetadataImage
    from pessoa.net.network import Network
    from pessoa.wire.schema import Message

    # What those outside may call the things that they are given.
    AnyBroker = Broker
    AnyDisk = Disk
    AnyImage = MetadataImage

log = logging.getLogger("pessoa.broker")

# While a node starts, nearly everything that it makes stays: looking for garbage as often as usual takes 4 % longer.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def main(argv: list[str]) -> int:
    from pessoa.broker.registration import RegistrationRefused
    from pessoa.quorum.metadata_log import CorruptMetadataLog
    from pessoa.quorum.state_file import CorruptQuorumState
    from pessoa.quorum.uncommitted_appends import QuorumFailed

    damaged = (CorruptProperties, CorruptQuorumState, CorruptMetadataLog, QuorumFailed, DiskError)
    collector = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    options = read_options(argv)
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


def _make(config: BrokerConfig, options: CommandOptions) -> Broker:
    from pessoa.broker.lifecycle import Broker

    return Broker(config, cluster_id=options.cluster_id, first_records=_first_users(options.first_users))


def _first_users(texts: Sequence[str]) -> Sequence[Message]:
    if not texts:
        return ()
    from pessoa.security.sasl.first_users import BadFirstUser, parse_first_users

    try:
        return parse_first_users(texts, os.urandom)
    except BadFirstUser as problem:
        raise ConfigProblem("--add-scram", None, str(problem)) from None


def _load(options: CommandOptions) -> BrokerConfig:
    from pessoa.broker.config import load, parse_settings

    text = None
    if options.config is not None:
        try:
            with open(options.config, encoding="latin-1") as file:  # noqa: PTH123  # pathlib takes 4 ms of a start
                text = file.read()
        except OSError as problem:
            raise ConfigProblem("--config", options.config, problem.strerror or str(problem)) from problem
    return load(text, parse_settings(options.settings), home_path(), file_name=options.config or "server.properties")


def make_broker(
    settings: Mapping[str, str],
    disk: Disk | None = None,
    network: Network | None = None,
    cluster_id: str | None = None,
) -> Broker:
    """Return a broker with these Kafka settings, which is a cluster by itself unless they name other voters. The caller
    starts and stops it."""
    from pessoa.broker.config import BrokerConfig, single_node_properties
    from pessoa.broker.lifecycle import Broker

    config = BrokerConfig(single_node_properties(settings, home_path()))
    return Broker(config, disk=disk, network=network, cluster_id=cluster_id)


def memory_disk(directory: str) -> Disk:
    """Return a disk in memory with one empty directory."""
    from pessoa.base.clock import SystemClock
    from pessoa.log.simulated_disk import SimulatedDisk

    disk = SimulatedDisk(now_ms=SystemClock().now_ms)
    disk.make_directory(directory)
    return disk


def crash_disk(disk: Disk, *, power_loss: bool) -> None:
    """Let a disk in memory lose what is lost when its process is killed, or at a power loss."""
    from pessoa.log.simulated_disk import SimulatedDisk

    assert isinstance(disk, SimulatedDisk)
    if power_loss:
        disk.lose_power()
    else:
        disk.crash_process()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's factory, which is two to four times as fast, or asyncio's on platforms without it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _role(config: BrokerConfig) -> str:
    return "broker" if config.is_broker else "controller"


def _end_start(collector: tuple[int, int, int]) -> None:
    """Exempt all objects of the start from garbage collection, since they live as long as the process, and set the
    collector's thresholds."""
    gc.freeze()
    gc.set_threshold(*collector)


async def _start(broker: Broker, on_ready: Callable[[], None]) -> None:
    await broker.start()
    await broker.wait_until_ready()
    on_ready()
    log.info("%s %s of cluster %s is ready", _role(broker.config), broker.config.node_id, broker.cluster_id)


async def _run_until_stopped(broker: Broker, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, or until the broker fails. After a failure the process exits as if it had been
    killed, as Kafka halts with 1: nothing that it would still write could be relied on. A start that waits for other
    nodes is cancelled by a signal."""
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
