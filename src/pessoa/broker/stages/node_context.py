"""What all stages of a node work with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pessoa.base.entropy import below, new_uuid
from pessoa.broker.node_login import NodeLogin
from pessoa.broker.node_tls import controller_listener
from pessoa.broker.sasl_settings import controller_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.base.ids import Uuid
    from pessoa.broker.live_config import LiveConfig
    from pessoa.broker.metadata_progress import MetadataProgress
    from pessoa.broker.node_tls import NodeTls
    from pessoa.broker.observers import Observers
    from pessoa.log.files import Disk
    from pessoa.log.flusher import Flusher
    from pessoa.net.network import Network
    from pessoa.quorum.publishing import ImagePublisher
    from pessoa.security.authorizer import Authorizer


class Stage(Protocol):
    """A part of a node that has been started."""

    async def close(self) -> None:
        """Shut the stage down cleanly: what was acknowledged is not lost, and the next start is quick."""

    def abandon(self) -> None:
        """Free what the system frees when a process is killed: sockets and locks. Nothing is sent or written."""


class NodeContext(NamedTuple):
    config: LiveConfig
    disk: Disk
    clock: Clock
    entropy: Entropy
    # As it is; `controller_network` and `broker_network` are it, through TLS where other nodes listen so.
    network: Network
    tls: NodeTls
    publisher: ImagePublisher
    progress: MetadataProgress
    flusher: Flusher
    # Of this start of the node: its broker and its controller register with it.
    incarnation_id: Uuid
    # Done, with an exception, when the node cannot go on.
    failed: asyncio.Future[None]
    # Called with exceptions that cost a request its response, and that are mistakes of ours.
    on_bug: Callable[[Exception], None]
    # What looks at the requests that this node serves.
    observers: Observers
    # None: everything is allowed.
    authorizer: Authorizer | None = None

    @property
    def controller_network(self) -> Network:
        """The network through which controllers are reached."""
        return self.tls.network(self.network, controller_listener(self.config.current))

    @property
    def broker_network(self) -> Network:
        """The network through which brokers are reached."""
        return self.tls.network(self.network, self.config.current.inter_broker_listener_name)

    def new_uuid(self) -> Uuid:
        return new_uuid(self.entropy)

    def random_below(self, bound: int) -> int:
        return below(self.entropy, bound)

    def controller_login(self) -> NodeLogin:
        """The login of this node for controllers that require one."""
        return NodeLogin(lambda: controller_credentials(self.config.current), self.entropy)

    def fail(self, error: BaseException | None) -> None:
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)


class BackgroundTasks:
    """The tasks of a stage. One that fails makes the node fail."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<BackgroundTasks: {len(self._tasks)}>"

    def run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._on_done)
        return task

    async def cancel(self) -> None:
        await cancel_tasks(self._tasks)
        self._tasks.clear()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._node.fail(task.exception())


async def cancel_tasks(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel the tasks, and return when all of them have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
