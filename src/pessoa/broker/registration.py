"""The registration of a broker in its cluster, under its incarnation id, and its heartbeats.

    register ──▶ fenced ──▶ heartbeats: "fence me, I am still reading" ──▶ caught up: the broker opens its doors
             ──▶ heartbeats: "let me serve" ──▶ unfenced ──▶ heartbeats …
             ──▶ heartbeats: "let me stop" ──▶ others lead what it led ──▶ it stops

A fenced broker leads nothing. The controller fences who is silent for `broker.session.timeout.ms` (KIP-631). A
heartbeat also says which log directories have failed (KIP-858), and how far the broker has followed the metadata: the
controller unfences no broker that has not read of its own registration.

Heartbeats go to whichever node leads the quorum; while none does, they are tried again, and the broker serves on. But
one that was not heard for a whole session has to doubt what it knows (`is_out_of_touch`): others may lead what it led.
A broker whose epoch is stale registers anew: its registration was replaced, and what it did under the old one does not
count.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from pessoa.base.clock import wait_at_most
from pessoa.broker.controller_client import ControllerUnavailable
from pessoa.metadata.supported_features import FEATURES
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import OwnRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from pessoa.base.clock import Clock
    from pessoa.base.ids import Uuid
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.broker.metadata_progress import MetadataProgress
    from pessoa.wire.request_context import Caller
    from pessoa.wire.schema import Message

log = logging.getLogger("pessoa.broker")

# While something is about to change, a heartbeat is worth more than its cost. Apache's brokers hurry as much.
_HURRY_MS = 50
# A controller that has not let the broker go by then will find out by the silence.
_GOODBYE_MS = 30_000
# An election on a busy machine may take seconds. That too few voters are left for one is noticed by other means.
_NO_CONTROLLER_MS = 10_000

# A registration that is refused with one of these may be taken later: the last incarnation has a session to the end,
# and a controller that has just begun does not know everything yet.
_LATER = frozenset(
    (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
)  # fmt: skip


async def _for_ever() -> None:
    await asyncio.Event().wait()


class RegistrationRefused(Exception):
    """The controller refuses the registration of this broker; the message says why."""


class ActiveController(Protocol):
    """Sends requests to the active controller, wherever it is."""

    def ask(self, request: Message, caller: Caller, timeout_ms: int) -> Awaitable[Message]:
        """Return the response. Raises ControllerUnavailable."""


class Registration:
    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        controller: ActiveController,
        progress: MetadataProgress,
        clock: Clock,
        incarnation_id: Uuid,
        endpoints: Sequence[ListenerEndpoint],
        directory_ids: Sequence[Uuid],
        offline_directory_ids: Callable[[], list[Uuid]] = list,
        previous_broker_epoch: int = -1,
        wait_until_quorum_is_gone: Callable[[], Coroutine[None, None, None]] = _for_ever,
    ) -> None:
        """`previous_broker_epoch` is that of the last incarnation, if it shut down cleanly: then nothing that it had
        is in doubt (KIP-966). `wait_until_quorum_is_gone` returns when too few controllers are left for one to lead:
        none will let this broker go then."""
        self.broker_epoch = -1
        self._config = config
        self._cluster_id = cluster_id
        self._controller = controller
        self._progress = progress
        self._clock = clock
        self._incarnation_id = incarnation_id
        self._endpoints = endpoints
        self._directory_ids = directory_ids
        self._offline_directory_ids = offline_directory_ids
        self._previous_broker_epoch = previous_broker_epoch
        self._hurry = asyncio.Event()
        self._has_left = False
        # Whether the controller has said, at the end of `leave`, that others lead what this broker led.
        self.is_released = False
        self._wait_until_quorum_is_gone = wait_until_quorum_is_gone
        # When the controller last answered a heartbeat, on the monotonic clock.
        self._heard_ms: int | None = None

    def __repr__(self) -> str:
        return f"<Registration of broker {self._config.node_id} in epoch {self.broker_epoch}>"

    async def register(self) -> None:
        """Return when this broker is registered and fenced, and has read its registration in the metadata log."""
        await self._register(self._config.initial_broker_registration_timeout_ms)
        while True:
            await self._progress.wait_until(lambda: self._progress.offset >= self.broker_epoch)
            response = await self._try_heartbeat(want_fence=True)
            if response is not None and response.is_caught_up:
                return
            await self._clock.wait_ms(_HURRY_MS)

    async def unfence(self) -> None:
        """Return when the controller has unfenced this broker."""
        while True:
            response = await self._try_heartbeat()
            if response is not None and not response.is_fenced:
                return
            log.info("waiting to be unfenced")
            await self._clock.wait_ms(_HURRY_MS)

    async def keep_alive(self) -> None:
        while True:
            await wait_at_most(self._clock, self._hurry.wait(), self._config.broker_heartbeat_interval_ms)
            # A hurry that comes while this heartbeat is under way asks for another.
            self._hurry.clear()
            response = await self._try_heartbeat()
            if response is not None and response.is_fenced:
                log.warning("this broker is fenced; it asks to be let in again")

    def is_out_of_touch(self) -> bool:
        """Whether this broker's session must have ended at the controller, if there is an active one."""
        if self._heard_ms is None:
            return False
        return self._clock.monotonic_ms() - self._heard_ms > self._config.broker_session_timeout_ms

    def hurry(self) -> None:
        """Send the next heartbeat at once: it has news, or the controller waits for its metadata offset."""
        self._hurry.set()

    async def leave(self) -> None:
        """Request a controlled shutdown until the controller has moved this broker's leaders away (KIP-631)."""
        if self.broker_epoch < 0 or self._has_left or not self._config.controlled_shutdown_enable:
            return
        self._has_left = True
        leaving = asyncio.ensure_future(self._take_leave())
        in_vain = asyncio.ensure_future(self._wait_until_quorum_is_gone())
        try:
            await asyncio.wait((leaving, in_vain), return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                leaving.result()
            else:
                in_vain.result()
                log.info("too few controllers are left to let this broker go; it stops at once")
        finally:
            leaving.cancel()
            in_vain.cancel()
            await asyncio.gather(leaving, in_vain, return_exceptions=True)

    async def _take_leave(self) -> None:
        give_up_ms = self._clock.monotonic_ms() + _GOODBYE_MS
        tries = 0
        while self._clock.monotonic_ms() < give_up_ms:
            try:
                response = await self._heartbeat(_NO_CONTROLLER_MS, want_shut_down=True)
            except ControllerUnavailable:
                log.warning("no controller can be reached; this broker stops all the same")
                return
            if response.error_code or response.should_shut_down:
                self.is_released = response.should_shut_down
                return
            await self._clock.wait_ms(min(tries * 10, _HURRY_MS))
            tries += 1
        log.warning("the controller did not let this broker go; it stops all the same")

    # One request each.

    async def _register(self, timeout_ms: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            try:
                response = await self._controller.ask(
                    self._request(), OwnRequest(BrokerRegistrationRequest.versions.last), max(left_ms, 1)
                )
            except ControllerUnavailable as problem:
                raise RegistrationRefused(str(problem)) from problem
            assert isinstance(response, BrokerRegistrationResponse)
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.NONE:
                self.broker_epoch = response.broker_epoch
                return
            if code not in _LATER or left_ms <= 0:
                raise RegistrationRefused(code.text)
            log.info("the registration is put off: %s", code.text)
            await self._clock.wait_ms(_HURRY_MS)

    def _request(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in self._endpoints
            ],
            features=[
                Feature(name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level)
                for one in FEATURES
            ],
            rack=self._config.broker_rack,
            log_dirs=sorted(self._directory_ids),
            previous_broker_epoch=self._previous_broker_epoch,
        )

    async def _try_heartbeat(self, *, want_fence: bool = False) -> BrokerHeartbeatResponse | None:
        """Send a heartbeat; return None if it failed or was refused. After STALE_BROKER_EPOCH register again."""
        try:
            response = await self._heartbeat(self._config.broker_session_timeout_ms, want_fence=want_fence)
        except ControllerUnavailable as problem:
            log.warning("a heartbeat did not get through: %s", problem)
            # It may have waited for a whole session, so the next one must not wait for its turn. But a controller whose
            # log has failed refuses at once, and asking it without a pause would keep this loop busy.
            await self._clock.wait_ms(_HURRY_MS)
            self.hurry()
            return None
        if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
            log.warning("broker epoch %s is stale; this broker registers anew", self.broker_epoch)
            # What the last registration knew to be safe was said under an epoch that has ended.
            self._previous_broker_epoch = -1
            await self._register(self._config.initial_broker_registration_timeout_ms)
            return None
        if response.error_code:
            log.warning("a heartbeat was refused: %s", ErrorCode.of(response.error_code).text)
            return None
        return response

    async def _heartbeat(
        self, timeout_ms: int, *, want_fence: bool = False, want_shut_down: bool = False
    ) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._progress.offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=self._offline_directory_ids(),
        )
        # The newest version says which directories are cordoned, and there are none.
        version = BrokerHeartbeatRequest.versions.last
        response = await self._controller.ask(request, OwnRequest(version), timeout_ms)
        assert isinstance(response, BrokerHeartbeatResponse)
        self._heard_ms = self._clock.monotonic_ms()
        return response


async def register_controller(
    controller: ActiveController,
    config: BrokerConfig,
    clock: Clock,
    incarnation_id: Uuid,
    endpoints: Sequence[ListenerEndpoint],
) -> bool:
    """Register this controller with the active one, however long it takes (KIP-919). Return False if that is refused: a
    metadata.version before 3.7 has no record for controllers."""
    from pessoa.wire.api import controller_registration as wire

    request = wire.ControllerRegistrationRequest(
        controller_id=config.node_id,
        incarnation_id=incarnation_id,
        zk_migration_ready=False,
        listeners=[
            wire.Listener(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in endpoints
        ],
        features=[
            wire.Feature(name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level)
            for one in FEATURES
        ],
    )
    while True:
        try:
            response = await controller.ask(request, OwnRequest(0), config.request_timeout_ms)
        except ControllerUnavailable:
            # A controller in this process whose log has failed says so without ever waiting; and this node can only
            # end when others have their turn.
            await clock.wait_ms(_HURRY_MS)
            continue
        assert isinstance(response, wire.ControllerRegistrationResponse)
        if response.error_code:
            log.warning("this controller could not be registered: %s", response.error_message)
        return not response.error_code
