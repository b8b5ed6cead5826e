"""How a node reaches the active controller: its own, or over the network that of another node.

    submit ──▶ the controller of this node leads?  ──yes──▶ it decides
                     │ no
                     ▼
               the leader of the quorum, over the network: in an envelope what a client asked (KIP-590), with the
               client's principal and address; as it is what a broker asks for itself
                     │ NOT_CONTROLLER, no leader, no connection
                     └──▶ a moment later again, until the time is up

A request that is on its way to a controller when another is elected is given up at once, and sent to the new one: the
old one may be a process that stands still, whose connections stay open and never answer.

A request that got no answer may have been carried out all the same. Trying it again is then what the client itself
would do; as in Kafka, a topic that was created by the first try is answered with TOPIC_ALREADY_EXISTS.

The row of an API says whether a broker sends it plain, and on which of its connections (`api_row.ControllerChannel`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pessoa.broker.api_row import ControllerChannel
from pessoa.broker.api_table import row_of
from pessoa.broker.authorization import denial_response
from pessoa.controller.decision import NotController
from pessoa.net.channel import ChannelFailed, Channels
from pessoa.quorum.uncommitted_appends import QuorumFailed
from pessoa.wire.errors import ErrorCode, ProtocolViolation, Refusal
from pessoa.wire.request_context import THIS_NODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pessoa.base.clock import Clock
    from pessoa.net.channel import Login
    from pessoa.net.network import Network
    from pessoa.quorum.quorum_settings import LeaderAndEpoch
    from pessoa.security.authorizer import Authorizer
    from pessoa.wire.request_context import Caller
    from pessoa.wire.schema import Message

_ENVELOPE_VERSION = 0
# An election takes some tens of milliseconds; a request should not wait much longer for it.
_RETRY_MS = 20


class LocalController(Protocol):
    """The controller of this node."""

    @property
    def is_active(self) -> bool: ...

    def decide(self, request: Message, caller: Caller) -> Awaitable[Message]:
        """Return the controller's response. Raises `NotController`."""


class LeaderOfQuorum(Protocol):
    # Called when another node leads, or none.
    @property
    def on_leadership(self) -> list[Callable[[LeaderAndEpoch], None]]: ...

    @property
    def leader_id(self) -> int: ...

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None: ...


class ControllerUnavailable(ChannelFailed):
    """No active controller answered in time. Whether the request was carried out is unknown."""


class ControllerClient:
    """Sends requests to the active controller. `submit` always returns a response; `ask` raises
    `ControllerUnavailable`. `local` is None on a node without the controller role."""

    def __init__(
        self,
        node_id: int,
        local: LocalController | None,
        quorum: LeaderOfQuorum,
        network: Network,
        clock: Clock,
        timeout_ms: int,
        login: Login | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`timeout_ms` is `request.timeout.ms`, `login` what the listeners of controllers demand. `authorizer` checks
        what clients ask of the local controller."""
        self._node_id = node_id
        self._local = local
        self._quorum = quorum
        self._network = network
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._login = login
        self._authorizer = authorizer
        self._purposes: dict[ControllerChannel, Channels] = {}
        # Called when the connection that carries heartbeats is lost: the controller then suspects this broker.
        self.on_heartbeats_lost: Callable[[], None] = lambda: None
        quorum.on_leadership.append(lambda _: self._leave_old_controllers())

    def __repr__(self) -> str:
        return f"<ControllerClient of node {self._node_id}: the controller is {self._quorum.leader_id}>"

    async def submit(self, request: Message, caller: Caller) -> Message:
        """Return the controller's response, or REQUEST_TIMED_OUT."""
        try:
            return await self.ask(request, caller, self._timeout_ms)
        except ControllerUnavailable as problem:
            refusal = Refusal(ErrorCode.REQUEST_TIMED_OUT, str(problem))
            return row_of(request.api_key).refuse(request, refusal, caller.version)

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
                # Written or not, this node will not learn it: it is about to end.
                raise ControllerUnavailable(f"the controller has failed: {problem}") from problem
            await self._clock.wait_ms(_RETRY_MS)

    def close(self) -> None:
        for channels in self._purposes.values():
            channels.close()

    async def _ask_once(self, request: Message, caller: Caller, timeout_ms: int) -> Message:
        if self._local is not None and self._local.is_active:
            denied = denial_response(self._authorizer, row_of(request.api_key), request, caller, on_controller=True)
            return await self._local.decide(request, caller) if denied is None else denied
        leader_id = self._quorum.leader_id
        endpoint = self._quorum.endpoint_of(leader_id) if leader_id >= 0 else None
        if endpoint is None or leader_id == self._node_id:
            raise NotController("the quorum has no leader")
        own = row_of(request.api_key).controller_channel
        if own is None and caller.principal != THIS_NODE:
            channel = self._channels(ControllerChannel.FORWARDING).of(*endpoint)
            return await self._forward(channel.send, request, caller, timeout_ms)
        channel = self._channels(own or ControllerChannel.INTERNAL_TOPICS).of(*endpoint)
        response = await channel.send(request, caller.version, timeout_ms)
        if _says_not_controller(response):
            raise NotController(f"node {leader_id} does not lead")
        return response

    async def _forward(self, send: Send, request: Message, caller: Caller, timeout_ms: int) -> Message:
        from pessoa.broker.envelope_format import open_response, seal
        from pessoa.wire.api.envelope import EnvelopeResponse

        envelope = seal(request, caller.version, caller.client_id, caller.principal, caller.client_host)
        answer = await send(envelope, _ENVELOPE_VERSION, timeout_ms)
        assert isinstance(answer, EnvelopeResponse)
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            raise NotController("the node that was asked does not lead")
        if answer.error_code or answer.response_data is None:
            code = ErrorCode.of(answer.error_code) if answer.error_code else ErrorCode.UNKNOWN_SERVER_ERROR
            return row_of(request.api_key).refuse(request, Refusal(code, code.text), caller.version)
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

    def _channels(self, purpose: ControllerChannel) -> Channels:
        found = self._purposes.get(purpose)
        if found is None:
            client_id = f"broker-{self._node_id}-to-controller-{purpose.value}"
            found = self._purposes[purpose] = Channels(self._network, client_id, self._login)
            if purpose is ControllerChannel.HEARTBEAT:
                found.on_lost = self.on_heartbeats_lost
        return found


def _says_not_controller(response: Message) -> bool:
    """Return whether the response has NOT_CONTROLLER, for the whole or for its topics (CreateTopics)."""
    parts = [response, *getattr(response, "topics", ())]
    return any(getattr(one, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER for one in parts)


class Send(Protocol):
    def __call__(self, request: Message, version: int, timeout_ms: int) -> Awaitable[Message]: ...
