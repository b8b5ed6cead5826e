"""What `pessoa up` is to run: a number of brokers, and services on top of them.

    broker-1   9092, also 19092     controller 9093     metrics 9404
    broker-2   29092                controller 9094     metrics 9405
    broker-3   39092                controller 9095     metrics 9406, and so on up to five

Tutorials call a first broker either 9092 or 19092, so broker-1 listens on both. A listener is a name that all brokers
must have, because a client that came through it is told the addresses of all brokers by that name. So every broker has
the listener TUTORIAL; on the others it takes any free port, which is not advertised: each broker's address by
that name is its usual one.

Of a secured cluster (`secured_home.py`) every listener speaks SASL_SSL and every service HTTPS, and each process reads
its passwords from a file of its own: the command line of a process is for all users of the machine to see.

A service is one that this installation can run when `pessoa` has its subcommand. Asking for another is refused.
`shift` is added to every port, for a second platform beside a first one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pessoa.platform.security_plan import listener_settings, node_name
from pessoa.platform.service_rows import Service, answers_as_broker, answers_as_secured_broker, answers_health

if TYPE_CHECKING:
    from pessoa.platform.secured_home import SecuredFiles

HOST = "127.0.0.1"
BROKER_PORTS = (9092, 29092, 39092, 49092, 59092)
TUTORIAL_PORT = 19092
FIRST_CONTROLLER_PORT = 9093
# The port that Prometheus' JMX exporter is usually given; the next ones for the other brokers.
FIRST_METRICS_PORT = 9404
DEFAULT_BROKERS = 3


class CannotPlan(Exception):
    """The services, brokers or ports that the user wants cannot be run; the sentence says why."""


class Addresses(NamedTuple):
    """The addresses of the other services that a service is given."""

    bootstrap_servers: str
    schema_registry: str
    connect: str
    home: Path
    shift: int = 0


class Offering(NamedTuple):
    name: str
    subcommand: str
    port: int
    options: Callable[[Addresses], Sequence[str]]
    # The extra of the package that it needs, and a module by which we see that it is there.
    extra: str = ""
    module: str = ""


def _control_center_options(known: Addresses) -> tuple[str, ...]:
    """Return the control centre's settings: the addresses of the other services, and its data directory."""
    scheme = urlsplit(known.schema_registry).scheme
    urls = {"connect.cluster": 8083, "ksql.url": 8088}
    overrides = {
        f"confluent.controlcenter.{key}": f"{scheme}://{HOST}:{port + known.shift}" for key, port in urls.items()
    }
    overrides["pessoa.control.center.pipelines.url"] = f"http://{HOST}:{8084 + known.shift}"
    overrides["pessoa.control.center.data.dir"] = str(known.home / "control-center")
    overrides["pessoa.control.center.home"] = str(known.home)
    options = ("--bootstrap-server", known.bootstrap_servers, "--schema-registry", known.schema_registry)
    return (*options, *(word for key, value in overrides.items() for word in ("--override", f"{key}={value}")))


# In the order in which they start. The names are those of the processes in Confluent's platform.
OFFERINGS = (
    Offering("schema-registry", "schema-registry", 8081, lambda known: ("--bootstrap-server", known.bootstrap_servers)),
    Offering(
        "kafka-rest",
        "rest-proxy",
        8082,
        lambda known: ("--bootstrap-server", known.bootstrap_servers, "--schema-registry", known.schema_registry),
    ),
    Offering(
        "connect",
        "connect",
        8083,
        lambda known: ("--bootstrap-server", known.bootstrap_servers, "--schema-registry", known.schema_registry),
        extra="spark",
        module="pyspark",
    ),
    Offering(
        "ksql-server",
        "ksql-server",
        8088,
        lambda known: (
            "--bootstrap-server",
            known.bootstrap_servers,
            "--schema-registry",
            known.schema_registry,
            "--connect",
            known.connect,
        ),
        extra="spark",
        module="pyspark",
    ),
    Offering("control-center", "control-center", 9021, _control_center_options, extra="console", module="nicegui"),
)


def installed() -> list[str]:
    """Return the names of the services that this installation can run, in the order in which they start."""
    from pessoa.cli.main import SUBCOMMANDS

    return [
        offering.name for offering in OFFERINGS if offering.subcommand in SUBCOMMANDS and _has_what_it_needs(offering)
    ]


def left_out() -> list[str]:
    """Return a sentence for each service that needs an extra of the package which is not installed."""
    from pessoa.cli.main import SUBCOMMANDS

    return [
        f"{offering.name} is left out, since it needs more: pip install 'pessoa[{offering.extra}]'."
        for offering in OFFERINGS
        if offering.subcommand in SUBCOMMANDS and not _has_what_it_needs(offering)
    ]


def _has_what_it_needs(offering: Offering) -> bool:
    return not offering.module or find_spec(offering.module) is not None


def choose(wanted: Iterable[str] | None) -> list[str]:
    """Return the wanted services in the order in which they start; all installed ones for None. Raises `CannotPlan`
    for a service that this installation does not have."""
    available = installed()
    if wanted is None:
        return available
    subcommands = {offering.subcommand: offering.name for offering in OFFERINGS}
    names = [subcommands.get(name, name) for name in wanted]
    for name in names:
        if name not in (offering.name for offering in OFFERINGS):
            raise CannotPlan(f"There is no service called {name}; this installation has {', '.join(available)}.")
        if name not in available:
            more = next((f" ({each})" for each in left_out() if each.startswith(f"{name} ")), "")
            raise CannotPlan(f"This installation of Pessoa has no {name} in it; it has {', '.join(available)}.{more}")
    return [name for name in available if name in names]


def bootstrap_servers(brokers: int, shift: int = 0) -> str:
    return ",".join(f"{HOST}:{port + shift}" for port in BROKER_PORTS[:brokers])


def registry_url(shift: int = 0, is_secured: bool = False) -> str:
    return service_url("schema-registry", shift, is_secured)


def service_url(name: str, shift: int = 0, is_secured: bool = False) -> str:
    port = next(offering.port for offering in OFFERINGS if offering.name == name)
    return f"{'https' if is_secured else 'http'}://{HOST}:{port + shift}"


def plan(
    home: Path,
    cluster_id: str,
    brokers: int,
    services: Sequence[str],
    shift: int = 0,
    secured: SecuredFiles | None = None,
) -> list[Service]:
    """Return the rows of brokers and services for the supervisor."""
    if not 1 <= brokers <= len(BROKER_PORTS):
        raise CannotPlan(f"There can be 1 to {len(BROKER_PORTS)} brokers on one machine, not {brokers}.")
    highest = max(BROKER_PORTS[brokers - 1], *(offering.port for offering in OFFERINGS), TUTORIAL_PORT) + shift
    if highest > 65535 or shift < 0:
        raise CannotPlan(f"Ports cannot be shifted by {shift}: the highest would be {highest}.")
    ports = [port + shift for port in BROKER_PORTS[:brokers]]
    rows = [_broker(home, cluster_id, node_id, ports, shift, secured) for node_id in range(1, brokers + 1)]
    known = Addresses(
        bootstrap_servers(brokers, shift),
        registry_url(shift, secured is not None),
        service_url("connect", shift, secured is not None),
        home,
        shift,
    )
    return rows + [_service(offering, known, shift, secured) for offering in OFFERINGS if offering.name in services]


def _broker(
    home: Path, cluster_id: str, node_id: int, ports: Sequence[int], shift: int, secured: SecuredFiles | None
) -> Service:
    port = ports[node_id - 1]
    controllers = [FIRST_CONTROLLER_PORT + shift + index for index in range(len(ports))]
    also = TUTORIAL_PORT + shift if node_id == 1 else 0
    controller = controllers[node_id - 1]
    metrics = FIRST_METRICS_PORT + shift + node_id - 1
    listeners = _open_listeners if secured is None else listener_settings
    settings = {
        "node.id": str(node_id),
        **listeners(port, also, controller, HOST),
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{one}" for n, one in enumerate(controllers, start=1)),
        "log.dirs": str(home / f"broker-{node_id}"),
        **_cluster_settings(len(ports)),
        # All that cost no produce and no fetch anything; `pessoa logs broker-1 --access` says how to have the last one.
        "pessoa.logs": "agent,audit,authorizer,error,referrer",
        "pessoa.logs.dir": str(home / "logs" / f"broker-{node_id}"),
        "pessoa.metrics.port": str(metrics),
    }
    command = [sys.executable, "-m", "pessoa", "broker", "--cluster-id", cluster_id]
    probe = answers_as_broker(node_id)
    if secured is not None:
        command += ("--config", str(secured.broker(node_id)))
        probe = answers_as_secured_broker(node_id, secured.client(node_name(node_id)))
    for key, value in settings.items():
        command += ("--set", f"{key}={value}")
    return Service(
        f"broker-{node_id}",
        tuple(command),
        port,
        is_ready=probe,
        more_ports=(*((also,) if also else ()), controller, metrics),
        tier="brokers",
    )


def _open_listeners(port: int, tutorial_port: int, controller_port: int, host: str) -> dict[str, str]:
    """Return the listener settings of an unsecured broker: any client of this machine may use them."""
    return {
        "listeners": f"PLAINTEXT://{host}:{port},TUTORIAL://{host}:{tutorial_port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port},TUTORIAL://{host}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TUTORIAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }


def _cluster_settings(brokers: int) -> dict[str, str]:
    replicas, in_sync = str(min(3, brokers)), str(min(2, brokers))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # The supervisor stops brokers only all at once. Taking leave of a controller that stops as well is in vain: the
        # last would wait for one, and each that leaves shrinks an ISR that had better be whole at the next start.
        "controlled.shutdown.enable": "false",
        # As in the file that Kafka ships for development: a group of one does not wait three seconds.
        "group.initial.rebalance.delay.ms": "0",
    }


def _service(offering: Offering, known: Addresses, shift: int, secured: SecuredFiles | None) -> Service:
    port = offering.port + shift
    command = (sys.executable, "-m", "pessoa", offering.subcommand, "--host", HOST, "--port", str(port))
    file = () if secured is None else (str(secured.service(offering.name)),)
    words = (*command, *offering.options(known), *file)
    probe = answers_health(None if secured is None else secured.authority)
    return Service(offering.name, words, port, is_ready=probe, tier="services")
