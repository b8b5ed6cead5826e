"""A cluster of real brokers inside a test, and the ways in which it can be hurt.

    with Cluster(brokers=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        cluster.kill(cluster.leader_of("orders", 0))
        …
        cluster.start(1)
        cluster.wait_until_in_sync()

Every broker is a combined node (broker and controller) with a thread, an event loop and a disk of its own, and they
speak to each other through real sockets. Data lies in memory, or in a directory for each broker under the one that is
given.

    kill(id)              as kill -9; with power_loss=True what was not synced is gone
    stop(id), start(id), restart(id)
    pause(id), resume(id) as SIGSTOP and SIGCONT
    partition(a, b)       nothing gets through between two brokers; clients still reach both
    heal()                all wires are whole again

Like a `Broker`, a cluster raises what went wrong inside it when it is stopped.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import uuid4

from pessoa.testing.broker import Broker
from pessoa.testing.wires import Wires

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pessoa.broker.assembly import AnyBroker, AnyImage

T = TypeVar("T")

_HOST = "127.0.0.1"
_POLL_S = 0.02
# For failures alone: what works is done in a fraction of it, even on a busy machine.
_TIMEOUT_S = 60.0
# Quicker than Kafka's, so that no test waits long for what a cluster does about a broker that is silent.
_SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
}


class _Node(Broker):
    def __init__(
        self, settings: Mapping[str, str], directory: Path | None, wires: Wires, node_id: int, cluster_id: str
    ) -> None:
        super().__init__(settings, directory=directory)
        self._wires = wires
        self._node_id = node_id
        self._cluster_id = cluster_id

    def _make(self) -> AnyBroker:
        from pessoa.broker.assembly import make_broker

        self._network = self._wires.network_of(self._node_id)
        return make_broker(self._all_settings(), self._disk, self._network, self._cluster_id)

    async def _crash(self, power_loss: bool) -> None:
        self._network.abort_all()
        await super()._crash(power_loss)


class Cluster:
    """A cluster of brokers in this process: `with Cluster() as cluster: cluster.bootstrap_servers`. `settings` are
    Kafka's keys, the same for all brokers."""

    def __init__(
        self, brokers: int = 3, settings: Mapping[str, str] | None = None, *, directory: str | Path | None = None
    ) -> None:
        self._wires = Wires()
        self._nodes: dict[int, _Node] = {}
        # As long as it is, no other cluster of the same ports can be mistaken for this one.
        cluster_id = uuid4().hex[:22]
        ports = dict(zip(range(1, brokers + 1), _free_ports(2 * brokers), strict=True))
        voters = ",".join(f"{node_id}@{_HOST}:{controller}" for node_id, (_, controller) in ports.items())
        for node_id, (client, controller) in ports.items():
            self._wires.owners |= {client: node_id, controller: node_id}
            own = {
                "node.id": str(node_id),
                "listeners": f"PLAINTEXT://{_HOST}:{client},CONTROLLER://{_HOST}:{controller}",
                "controller.quorum.voters": voters,
            }
            defaults = _SETTINGS | _replication(brokers)
            where = None if directory is None else _broker_directory(directory, node_id)
            self._nodes[node_id] = _Node(
                {**defaults, **(settings or {}), **own}, where, self._wires, node_id, cluster_id
            )

    def __repr__(self) -> str:
        return f"<pessoa.testing.Cluster: {', '.join(map(repr, self._nodes.values()))}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __iter__(self) -> Iterator[int]:
        """The ids of all brokers."""
        return iter(self._nodes)

    def __getitem__(self, broker_id: int) -> Broker:
        return self._nodes[broker_id]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self._nodes.values())

    @property
    def running(self) -> list[int]:
        """The brokers that run and are not paused."""
        return [node_id for node_id, node in self._nodes.items() if node.is_running and not node.is_paused]

    # Starting, stopping, hurting.

    def start(self, broker_id: int | None = None) -> None:
        """Start one broker, or all that are not running; return when they can serve and all brokers know each other."""
        nodes = [node for node in self._select(broker_id) if not node.is_running]
        for node in nodes:
            node.begin_start()
        for node in nodes:
            node.finish_start()
        self.wait_for(self._is_complete, "all brokers know each other")

    def stop(self, broker_id: int | None = None) -> None:
        """Shut one broker down cleanly, or all."""
        nodes = [node for node in self._select(broker_id) if node.is_running]
        if broker_id is None:
            self.heal()
        for node in nodes:
            node.resume()
        if len(nodes) > 1:
            # No broker may stop before the others have finished their controlled shutdown.
            _call_each(nodes, Broker.leave)
        _call_each(nodes, Broker.stop)

    def restart(self, broker_id: int) -> None:
        self.stop(broker_id)
        self.start(broker_id)

    def kill(self, broker_id: int, *, power_loss: bool = False) -> None:
        self._nodes[broker_id].kill(power_loss=power_loss)

    def pause(self, broker_id: int) -> None:
        self._nodes[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        self._nodes[broker_id].resume()

    def partition(self, one: int, other: int) -> None:
        self._wires.cut(one, other)

    def isolate(self, broker_id: int) -> None:
        """Partition the network between a broker and all others."""
        for other in self._nodes:
            if other != broker_id:
                self.partition(broker_id, other)

    def heal(self) -> None:
        self._wires.mend()

    # Looking.

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition; wait until a running broker does."""
        return self.wait_for(lambda: self._leader_of(topic, partition), f"a leader of {topic}-{partition}")

    def controller(self) -> int:
        """Return the node id of the active controller; wait until there is one."""
        return self.wait_for(self._controller, "an active controller")

    def wait_until_in_sync(self, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until every running broker knows all others, and every replica that can be in sync is."""
        self.wait_for(self._is_in_sync, "all replicas in sync", timeout_s)

    def wait_for(self, look: Callable[[], T | None], what: str, timeout_s: float = _TIMEOUT_S) -> T:
        """Call `look` until it returns something true, and return that."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            found = look()
            if found:
                return found
            assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s} s ({self!r})"
            time.sleep(_POLL_S)

    def _leader_of(self, topic: str, partition: int) -> int | None:
        """Return the broker that leads the partition by its own image; that with the newest leader epoch if several
        do."""
        newest, found = -1, None
        for node_id in self.running:
            known = self._image_of(node_id).topics.by_name.get(topic)
            one = known.partitions.get(partition) if known is not None else None
            if one is not None and one.leader == node_id and one.leader_epoch > newest:
                newest, found = one.leader_epoch, node_id
        return found

    def _controller(self) -> int | None:
        for node_id in self.running:
            if self._nodes[node_id].inspect(
                lambda broker: broker.controller is not None and broker.controller.is_active
            ):
                return node_id
        return None

    def _is_complete(self) -> bool:
        """Whether every running broker is alive in the metadata of every running broker."""
        running = set(self.running)
        return all(running <= _unfenced_brokers(self._image_of(node_id)) for node_id in running)

    def _is_in_sync(self) -> bool:
        running = self.running
        for node_id in running:
            image = self._image_of(node_id)
            unfenced = _unfenced_brokers(image)
            if unfenced != set(running):
                return False
            for topic in image.topics.by_name.values():
                for one in topic.partitions.values():
                    if one.leader not in unfenced or set(one.isr) != set(one.replicas) & unfenced:
                        return False
        return True

    def _image_of(self, broker_id: int) -> AnyImage:
        return self._nodes[broker_id].inspect(lambda broker: broker.services.image)

    def _select(self, broker_id: int | None) -> list[_Node]:
        return list(self._nodes.values()) if broker_id is None else [self._nodes[broker_id]]


def _unfenced_brokers(image: AnyImage) -> set[int]:
    return {broker.id for broker in image.cluster.brokers.values() if not broker.fenced}


def _replication(brokers: int) -> dict[str, str]:
    factor = str(min(brokers, 3))
    minimum = str(min(brokers, 2))
    return {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": minimum,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": minimum,
    }


def _call_each(nodes: list[_Node], act: Callable[[Broker], None]) -> None:
    """Call `act` for all brokers at once, in threads; raise the first failure when all are done."""
    from concurrent.futures import ThreadPoolExecutor

    if not nodes:
        return
    with ThreadPoolExecutor(len(nodes)) as pool:
        done = [pool.submit(act, node) for node in nodes]
    for one in done:
        one.result()


def _broker_directory(directory: str | Path, node_id: int) -> Path:
    from pathlib import Path

    return Path(directory) / f"broker-{node_id}"


def _free_ports(count: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of ports that the system gives to no other process for the next minute. A port that is merely free
    may be taken before a broker listens on it. A port on which the server has just closed a connection is in
    TIME_WAIT: the system gives it to no process, yet lets a server with SO_REUSEADDR, as that of an event loop is,
    listen on it. All servers stay open until all ports are known, so that the ports differ."""
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(count):
            server = held.enter_context(socket.create_server((_HOST, 0)))
            port: int = server.getsockname()[1]
            with socket.create_connection((_HOST, port)):
                server.accept()[0].close()
            ports.append(port)
    yield from zip(ports[::2], ports[1::2], strict=True)
