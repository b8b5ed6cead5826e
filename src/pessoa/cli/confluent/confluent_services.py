"""The services behind the `confluent` command: where they live, starting them, stopping them, whether they are up.

Everything is under one run directory, `<CONFLUENT_CURRENT>/confluent.XXXXXXXX`, whose path the file `confluent.current`
remembers:

    <run>/<service>/<service>.properties    its settings, made at the first start; edit it and start again
                    <service>.stdout        what it prints
                    <service>.pid           the process, while there is one
                    data/

The services are those that `pessoa up` would start in this installation. There is no zookeeper: its work is done by
the quorum inside kafka. While `pessoa up` runs, its services are meant (`platform_services.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pessoa.cli.confluent import platform_services as platform

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.05
_PORT = re.compile(r":(\d+)")


class Service(NamedTuple):
    name: str
    subcommand: str
    port: int
    needs: tuple[str, ...]
    properties: str  # {kafka} and {schema-registry} are the ports of the others, {data} a directory


# As in the file that comes with Apache Kafka: the defaults are for three brokers.
_OF_ONE_BROKER = """\
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
_CONNECT = """\
listeners=http://localhost:{port}
bootstrap.servers=localhost:{kafka}
group.id=connect-cluster
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-statuses
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
"""
_KSQL = """\
listeners=http://localhost:{port}
bootstrap.servers=localhost:{kafka}
ksql.schema.registry.url=http://localhost:{schema-registry}
ksql.connect.url=http://localhost:{connect}
ksql.service.id=default_
pessoa.home={data}
"""
_KAFKA_ALONE = "bootstrap.servers=localhost:{kafka}\n"

# In the order in which they start.
SERVICES = {
    service.name: service
    for service in (
        Service(
            "kafka",
            "broker",
            9092,
            (),
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            "listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}\n"
            "controller.quorum.voters=1@localhost:{controller}\nlog.dirs={data}\n" + _OF_ONE_BROKER,
        ),
        Service(
            "schema-registry",
            "schema-registry",
            8081,
            ("kafka",),
            "listeners=http://localhost:{port}\nkafkastore.bootstrap.servers=localhost:{kafka}\n",
        ),
        Service(
            "kafka-rest",
            "rest-proxy",
            8082,
            ("kafka", "schema-registry"),
            "listeners=http://localhost:{port}\nbootstrap.servers=localhost:{kafka}\n"
            "schema.registry.url=http://localhost:{schema-registry}\n",
        ),
        Service("connect", "connect", 8083, ("kafka", "schema-registry"), _CONNECT),
        Service("ksql-server", "ksql-server", 8088, ("kafka", "schema-registry"), _KSQL),
        Service("control-center", "control-center", 9021, ("kafka",), _KAFKA_ALONE),
    )
}
_ONE_ABOVE = 1


class Mistake(Exception):
    """An error of the user, printed to standard output; the exit code is 127."""


class CannotStart(Mistake):
    """A service ended while it started, or was not up in time; the sentence says where to look."""


def available() -> list[str]:
    """Return the services of this installation, in the order in which they start."""
    from pessoa.platform.process_plan import installed

    names = ("kafka", *installed())
    return [name for name in SERVICES if name in names]


def run_directory() -> Path:
    """Return the directory that `confluent.current` names, which is created if it is missing; the home of `pessoa
    up` while that runs."""
    if (home := platform.home()) is not None:
        return home
    base = Path(os.environ.get("CONFLUENT_CURRENT") or tempfile.gettempdir())
    pointer = base / "confluent.current"
    with suppress(OSError):
        found = Path(pointer.read_text(encoding="utf-8").strip())
        if found.is_dir():
            return found
    base.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="confluent.", dir=base))
    pointer.write_text(f"{made}\n", encoding="utf-8")
    return made


def require_own() -> None:
    """Raise Mistake if the services are those of `pessoa up`: their data must not be deleted by this command."""
    if (home := platform.home()) is not None:
        raise Mistake(f"The services in {home} are those of `pessoa up`. Stop them with `pessoa down`, then delete it.")


def remove_run_directory() -> Path:
    run = run_directory()
    shutil.rmtree(run)
    (run.parent / "confluent.current").unlink(missing_ok=True)
    return run


def port(name: str) -> int:
    """Return the port on which a service listens, from its properties or by default."""
    if (home := platform.home()) is not None:
        found = platform.processes(home, name)
        return int(found[0].address.rpartition(":")[2]) if found else SERVICES[name].port
    path = _file(name, "properties")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("listeners=") and (match := _PORT.search(line.partition("//")[2])):
                return int(match[1])
    return SERVICES[name].port


def access() -> platform.Access:
    """Return the scheme and login for the services: those of a secured `pessoa up` as its admin, others without a
    login."""
    home = platform.home()
    return platform.OPEN if home is None else platform.access(home)


def is_up(name: str) -> bool:
    home = platform.home()
    return _process_id(name) is not None if home is None else platform.is_up(home, name)


def process_ids(name: str) -> list[int]:
    if (home := platform.home()) is not None:
        return [one.pid for one in platform.processes(home, name) if one.state == "ready"]
    number = _process_id(name)
    return [] if number is None else [number]


def _process_id(name: str) -> int | None:
    try:
        number = int(_file(name, "pid").read_text())
        os.kill(number, 0)
    except (OSError, ValueError):
        return None
    # A child of ours that has ended stays until it is waited for; and its number may belong to another process by now.
    with suppress(ChildProcessError):
        os.waitpid(number, os.WNOHANG)
    command = Path(f"/proc/{number}/cmdline")
    if command.parent.parent.is_dir():
        try:
            return number if b"pessoa" in command.read_bytes() else None
        except OSError:
            return None
    return number


def output_paths(name: str) -> list[Path]:
    """Return the existing files with the output of a service's processes."""
    home = platform.home()
    paths = [_file(name, "stdout")] if home is None else [Path(one.log) for one in platform.processes(home, name)]
    return [path for path in paths if path.exists()]


def start(name: str) -> None:
    """Start a service and wait until it listens. Raises CannotStart."""
    if (home := platform.home()) is not None:
        if not platform.processes(home, name):
            raise CannotStart(f"{name} is not one of the services of `pessoa up`; start it with them: pessoa up --help")
        if not platform.start(home, name):
            raise CannotStart(f"{name} was not up after {platform.TIMEOUT_S:.0f} s; see `pessoa logs`")
        return
    service = SERVICES[name]
    properties = _file(name, "properties")
    properties.parent.mkdir(parents=True, exist_ok=True)
    if not properties.exists():
        values = {other: port(other) for other in SERVICES if other != name}
        data = properties.parent / "data"
        text = service.properties.format(port=service.port, controller=service.port + _ONE_ABOVE, data=data, **values)
        properties.write_text(text, encoding="utf-8")
    option = ["--config"] if name == "kafka" else []
    command = [sys.executable, "-m", "pessoa", service.subcommand, *option, str(properties)]
    printed = _file(name, "stdout")
    with printed.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    _file(name, "pid").write_text(f"{child.pid}\n", encoding="utf-8")
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not _listens(port(name)):
        if child.poll() is not None:
            _file(name, "pid").unlink(missing_ok=True)
            raise CannotStart(f"{name} ended with {child.returncode} while it started; see {printed}")
        if time.monotonic() > deadline:
            raise CannotStart(f"{name} was not up after {_START_TIMEOUT_S:.0f} s; see {printed}")
        time.sleep(_POLL_S)
    # The service outlives this command on purpose: it is not waited for.
    child.returncode = 0


def stop(name: str) -> None:
    """Send SIGTERM to a service, and SIGKILL if it has not ended after ten seconds."""
    if (home := platform.home()) is not None:
        platform.stop(home, name)
        return
    number = _process_id(name)
    if number is not None:
        with suppress(OSError):
            os.kill(number, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while is_up(name):
            if time.monotonic() > deadline:
                with suppress(OSError):
                    os.kill(number, signal.SIGKILL)
                break
            time.sleep(_POLL_S)
    _file(name, "pid").unlink(missing_ok=True)


def stopped_with(name: str) -> list[str]:
    """Return the services that stop together with this one, last started first: all others for kafka, none for any
    other."""
    return [other for other in reversed(available()) if name == "kafka" != other]


def _file(name: str, suffix: str) -> Path:
    return run_directory() / name / f"{name}.{suffix}"


def _listens(number: int) -> bool:
    try:
        with socket.create_connection(("localhost", number), timeout=1):
            return True
    except OSError:
        return False
