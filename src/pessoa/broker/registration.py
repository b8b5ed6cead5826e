"""How a broker belongs to its cluster: it registers its incarnation, and then says again and again that it lives.

    register ──▶ fenced ──▶ heartbeat: "I am as far as the metadata is, let me serve" ──▶ unfenced ──▶ heartbeats …

A fenced broker leads nothing. The controller fences who is silent for `broker.session.timeout.ms` (KIP-631).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from pessoa.metadata.features import FEATURES
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.ids import Uuid
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.broker.services import BrokerServices

log = logging.getLogger("pessoa.broker")

# A controller that has not answered by then will find out by the silence.
_GOODBYES = 20


class _Caller(NamedTuple):
    """A broker speaks for itself, in the newest versions."""

    version: int
    principal: str = "User:ANONYMOUS"


class RegistrationRefused(Exception):
    """The controller does not want this broker; the message says why."""


class Registration:
    def __init__(
        self,
        broker: BrokerServices,
        incarnation_id: Uuid,
        endpoints: Sequence[ListenerEndpoint],
        directory_ids: Sequence[Uuid],
        previous_broker_epoch: int = -1,
    ) -> None:
        self._broker = broker
        self._incarnation_id = incarnation_id
        self._endpoints = endpoints
        self._directory_ids = directory_ids
        # Of the last incarnation, if it stopped in order: then nothing that it had is in doubt (KIP-966).
        self._previous_broker_epoch = previous_broker_epoch
        self.broker_epoch = -1

    def __repr__(self) -> str:
        return f"<Registration of broker {self._broker.node_id} in epoch {self.broker_epoch}>"

    async def register(self) -> None:
        """Done when this broker may serve."""
        request = BrokerRegistrationRequest(
            broker_id=self._broker.node_id,
            cluster_id=self._broker.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in self._endpoints
            ],
            features=[
                Feature(name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level)
                for one in FEATURES
            ],
            rack=self._broker.config.broker_rack,
            log_dirs=sorted(self._directory_ids),
            previous_broker_epoch=self._previous_broker_epoch,
        )
        response = await self._broker.controller.submit(request, _Caller(BrokerRegistrationRequest.versions.last))
        assert isinstance(response, BrokerRegistrationResponse)
        if response.error_code:
            raise RegistrationRefused(ErrorCode.of(response.error_code).text)
        self.broker_epoch = response.broker_epoch
        while (await self._heartbeat()).is_fenced:
            log.info("waiting to be unfenced")

    async def leave(self) -> None:
        """Tell the controller that this broker stops, until it has taken from it what it led (KIP-631)."""
        if self.broker_epoch < 0:
            return
        for _ in range(_GOODBYES):
            if (await self._heartbeat(want_shut_down=True)).should_shut_down:
                return
        log.warning("the controller did not let this broker go; it stops all the same")

    async def keep_alive(self) -> None:
        while True:
            await self._broker.clock.wait_ms(self._broker.config.broker_heartbeat_interval_ms)
            response = await self._heartbeat()
            if response.is_fenced:
                log.warning("this broker is fenced; it asks to be let in again")

    async def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._broker.image.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
        )
        response = await self._broker.controller.submit(request, _Caller(BrokerHeartbeatRequest.versions.last))
        assert isinstance(response, BrokerHeartbeatResponse)
        if response.error_code:
            raise RegistrationRefused(ErrorCode.of(response.error_code).text)
        return response
