"""The way to the active controller, from whichever node one is on.

    submit ──▶ the controller of this node leads?  ──yes──▶ it decides
                     │ no
                     ▼
               the leader of the quorum, over the network: in an envelope what a client asked (KIP-590),
               as it is what a broker asks for itself
                     │ NOT_CONTROLLER, no leader, no connection
                     └──▶ a moment later again, until the time is up

What is on its way to a controller when another is elected is given up at once, and asked again there: the old one may
be a process that stands still, whose connections live on and never answer.

A request that got no answer may have been carried out all the same. Trying it again is then what the client itself
would do; as in Kafka, a topic that was created by the first try is answered with TOPIC_ALREADY_EXISTS.

Each purpose has a connection of its own, since a controller serves the requests of one connection one after another: a
heartbeat must not wait behind the creation of a thousand topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pessoa.controller.decision import NotController, Refusal
from pessoa.net.channel import ChannelFailed, Channels
from pessoa.quorum.raft_quorum import QuorumFailed
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode, ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pessoa.base.clock import Clock
    from pessoa.net.network import Network
    from pessoa.quorum.settings import LeaderAndEpoch
    from pessoa.wire.schema import Message

_FORWARDING = "forwarding"
_HEARTBEAT = "heartbeat"
# What a broker asks for itself goes as it is; the purpose says on which connection.
_PLAIN = {
    ApiKey.BROKER_REGISTRATION: _HEARTBEAT,
    ApiKey.BROKER_HEARTBEAT: _HEARTBEAT,
    ApiKey.CONTROLLER_REGISTRATION: "registration",
    ApiKey.ALTER_PARTITION: "alter-partition",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: "directory-assignments",
    ApiKey.ALLOCATE_PRODUCER_IDS: _FORWARDING,
}
_ENVELOPE_VERSION = 0
# An election takes some tens of milliseconds; whoever waits for it should not wait much longer.
_RETRY_MS = 20


class Caller(Protocol):
    """Who asks. `RequestContext` and `OwnRequest` are such."""

    @property
    def version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...

    @property
    def principal(self) -> str: ...


class LocalController(Protocol):
    """The controller of this node."""

    @property
    def is_active(self) -> bool: ...

    def decide(self, request: Message, caller: Caller) -> Awaitable[Message]:
        """Raises `NotController`."""


class LeaderOfQuorum(Protocol):
    # Called when another node leads, or none.
    @property
    def on_leadership(self) -> list[Callable[[LeaderAndEpoch], None]]: ...

    @property
    def leader_id(self) -> int: ...

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None: ...


class ControllerUnavailable(ChannelFailed):
    """No active controller answered in time. Whether the request was carried out is unknown."""


class ControllerEntrance:
    """`submit` always answers; `ask` raises `ControllerUnavailable`. `local` is None on a node without the role."""

    def __init__(
        self,
        node_id: int,
        local: LocalController | None,
        quorum: LeaderOfQuorum,
        network: Network,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` is `request.timeout.ms`."""
        self._node_id = node_id
        self._local = local
        self._quorum = quorum
        self._network = network
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._purposes: dict[str, Channels] = {}
        # Told when the connection breaks that carries heartbeats: the controller then doubts that we live.
        self.on_heartbeats_lost: Callable[[], None] = lambda: None
        quorum.on_leadership.append(lambda _: self._leave_old_controllers())

    def __repr__(self) -> str:
        return f"<ControllerEntrance of node {self._node_id}: the controller is {self._quorum.leader_id}>"

    async def submit(self, request: Message, caller: Caller) -> Message:
        """The controller's answer, or that it took too long."""
        try:
            return await self.ask(request, caller, self._timeout_ms)
        except ControllerUnavailable as problem:
            from pessoa.controller.refusals import refused_response

            return refused_response(request, Refusal(ErrorCode.REQUEST_TIMED_OUT, str(problem)), caller.version)

    async def ask(self, request: Message, caller: Caller, timeout_ms: int) -> Message:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            try:
                return await self._ask_once(request, caller, max(left_ms, 1))
            except (NotController, ChannelFailed) as problem:
                if deadline_ms - self._clock.monotonic_ms() <= _RETRY_MS:
                    raise ControllerUnavailable(f"no controller has answered: {problem}") from problem
            except QuorumFailed as problem:
                # Written or not, nobody will hear of it from this node: it is about to end.
                raise ControllerUnavailable(f"the controller has failed: {problem}") from problem
            await self._clock.wait_ms(_RETRY_MS)

    def close(self) -> None:
        for channels in self._purposes.values():
            channels.close()

    async def _ask_once(self, request: Message, caller: Caller, timeout_ms: int) -> Message:
        if self._local is not None and self._local.is_active:
            return await self._local.decide(request, caller)
        leader_id = self._quorum.leader_id
        endpoint = self._quorum.endpoint_of(leader_id) if leader_id >= 0 else None
        if endpoint is None or leader_id == self._node_id:
            raise NotController("the quorum has no leader")
        purpose = _PLAIN.get(ApiKey(request.api_key))
        channel = self._channels(purpose or _FORWARDING).of(*endpoint)
        if purpose is None:
            return await self._forward(channel.send, request, caller, timeout_ms)
        response = await channel.send(request, caller.version, timeout_ms)
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
            raise NotController(f"node {leader_id} does not lead")
        return response

    async def _forward(self, send: Send, request: Message, caller: Caller, timeout_ms: int) -> Message:
        from pessoa.broker.envelope import open_response, seal
        from pessoa.controller.refusals import refused_response
        from pessoa.wire.api.envelope import EnvelopeResponse

        envelope = seal(request, caller.version, caller.client_id, caller.principal, caller.client_host)
        answer = await send(envelope, _ENVELOPE_VERSION, timeout_ms)
        assert isinstance(answer, EnvelopeResponse)
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            raise NotController("the node that was asked does not lead")
        if answer.error_code or answer.response_data is None:
            code = ErrorCode.of(answer.error_code) if answer.error_code else ErrorCode.UNKNOWN_SERVER_ERROR
            return refused_response(request, Refusal(code), caller.version)
        try:
            return open_response(request, caller.version, answer.response_data)
        except ProtocolViolation as violation:
            raise ChannelFailed(str(violation)) from violation

    def _leave_old_controllers(self) -> None:
        leader_id = self._quorum.leader_id
        endpoint = self._quorum.endpoint_of(leader_id) if leader_id >= 0 else None
        if endpoint is not None:
            for channels in self._purposes.values():
                channels.leave_all_but(endpoint, f"node {leader_id} leads now")

    def _channels(self, purpose: str) -> Channels:
        found = self._purposes.get(purpose)
        if found is None:
            client_id = f"broker-{self._node_id}-to-controller-{purpose}"
            found = self._purposes[purpose] = Channels(self._network, client_id)
            if purpose == _HEARTBEAT:
                found.on_lost = self.on_heartbeats_lost
        return found


class Send(Protocol):
    def __call__(self, request: Message, version: int, timeout_ms: int) -> Awaitable[Message]: ...
