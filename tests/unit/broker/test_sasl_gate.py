"""A listener that demands a login: delays, limits and the expiry of sessions, on real sockets, with a manual clock."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.entropy import SeededEntropy
from pessoa.broker import sasl_gate, token_logins
from pessoa.broker.config import BrokerConfig, single_node_properties
from pessoa.broker.config_listeners import ListenerEndpoint, SecurityProtocol
from pessoa.broker.held_listener import HeldListener
from pessoa.broker.sasl_gate import SaslListener, shared_secret
from pessoa.broker.token_logins import KeysMissing
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.table_images import DelegationToken, DelegationTokensImage, ScramCredential, ScramImage
from pessoa.net.connection import Connection
from pessoa.net.connection_quota import ConnectionLimits, ConnectionQuota
from pessoa.net.network import SystemNetwork
from pessoa.net.receive_room import ReceiveRoom
from pessoa.platform.security_plan import Login, broker_settings, listener_settings
from pessoa.security.sasl.scram import ScramClientExchange
from pessoa.security.sasl.scram_keys import ScramKeys, keys_of_password
from pessoa.security.sasl.token_keys import token_hmac, token_keys
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.metadata import MetadataRequest
from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import Buffer, request_frame, response_frame
from pessoa.wire.message_headers import ResponseHeader, peek_api, response_header_version
from pessoa.wire.schema import Message

TIMEOUT_S = 60
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    JAAS: f'{MODULE} required user_ana="secret";',
}


def config(changes: dict[str, str]) -> BrokerConfig:
    return BrokerConfig(single_node_properties({**SETTINGS, **changes}, Path("/nowhere")))


class Stage:
    """A listener that demands a login, and a dispatcher that notes principals and requests."""

    def __init__(self, changes: dict[str, str]) -> None:
        self.config = config(changes)
        self.image = MetadataImage.EMPTY
        self.clock = ManualClock(1_000_000)
        sasl = SaslListener("SASL_PLAINTEXT", lambda: self.config, lambda: self.image, self.clock, SeededEntropy(1))
        endpoint = ListenerEndpoint("SASL_PLAINTEXT", "127.0.0.1", 0, SecurityProtocol.SASL_PLAINTEXT)
        quota = ConnectionQuota(ConnectionLimits())
        self.held = HeldListener(endpoint, self.config, SystemNetwork(), ReceiveRoom(), quota, self.clock, sasl)
        self.served: list[tuple[int, str]] = []

    def serve(self, connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
        key, _, correlation_id = peek_api(data, start, end)
        self.served.append((key, connection.principal))
        return response_frame(ApiVersionsResponse(error_code=0, api_keys=[]), 0, correlation_id)

    def gates(self) -> list[bool]:
        return [one.gate is not None for one in self.held.listener.connections]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, message: Message, version: int) -> None:
        self.writer.writelines(request_frame(message, version, 7, "client"))

    async def read(self, kind: type[Message], version: int) -> Message:
        body = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))
        _, pos = ResponseHeader.decoder(response_header_version(kind, version))(body, 0, len(body))
        message: Message = kind.decoder(version)(body, pos, len(body))[0]
        return message

    async def shake_hands(self, mechanism: str = "PLAIN") -> int:
        self.send(SaslHandshakeRequest(mechanism=mechanism), 1)
        answer = await self.read(SaslHandshakeResponse, 1)
        assert isinstance(answer, SaslHandshakeResponse)
        return answer.error_code

    async def authenticate(self, token: bytes = b"\0ana\0secret") -> SaslAuthenticateResponse:
        self.send(SaslAuthenticateRequest(auth_bytes=token), 2)
        answer = await self.read(SaslAuthenticateResponse, 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        return answer

    async def is_served(self) -> bool:
        self.send(MetadataRequest(topics=None), 1)
        return await self.was_answered()

    async def was_answered(self) -> bool:
        """Return whether a response came; False if the connection was closed."""
        try:
            await self.read(ApiVersionsResponse, 0)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return False
        return True


def run(scenario: Callable[[Stage, Client], Awaitable[None]], *, is_released: bool = True, **changes: str) -> None:
    async def main() -> None:
        stage = Stage({name.replace("_", "."): text for name, text in changes.items()})
        async with asyncio.timeout(TIMEOUT_S):
            await stage.held.open()
            if is_released:
                stage.held.release(stage.serve)
            client = Client(*await asyncio.open_connection("127.0.0.1", stage.held.listener.port))
            try:
                await scenario(stage, client)
            finally:
                client.writer.close()
                await stage.held.close()

    asyncio.run(main())


async def wait_for(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_requests_after_a_login_are_served_with_its_principal_without_the_gate() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        client.send(ApiVersionsRequest(), 0)
        await client.read(ApiVersionsResponse, 0)
        assert await client.shake_hands() == 0
        assert (await client.authenticate()).error_code == 0
        assert await client.is_served()
        assert stage.served == [(ApiKey.API_VERSIONS, "User:ANONYMOUS"), (ApiKey.METADATA, "User:ana")]
        assert stage.gates() == [False]

    run(scenario)


def test_raw_sasl_tokens_are_accepted_after_a_handshake_in_version_0() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        client.send(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        await client.read(SaslHandshakeResponse, 0)
        client.writer.write(b"\0\0\0\x0b\0ana\0secret")
        assert await client.reader.readexactly(4) == b"\0\0\0\0"
        assert await client.is_served()
        assert stage.served == [(ApiKey.METADATA, "User:ana")]

    run(scenario)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_request_before_the_login_closes_the_connection_and_reaches_no_handler(steps: int) -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        if steps:
            await client.shake_hands()
        assert not await client.is_served()
        assert stage.served == []

    run(scenario)


def test_a_failed_login_is_answered_and_closed_after_a_delay_and_nothing_is_served_meanwhile() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await client.shake_hands()
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0ana\0wrong"), 2)
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0ana\0secret"), 2)
        client.send(MetadataRequest(topics=None), 1)
        (protocol,) = stage.held.listener.connections
        await wait_for(lambda: protocol.connection.is_in_progress)
        stage.clock.advance_ms(249)
        assert protocol.connection.is_in_progress
        stage.clock.advance_ms(1)
        answer = await client.read(SaslAuthenticateResponse, 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert not await client.was_answered()
        assert stage.served == []

    run(scenario, connection_failed_authentication_delay_ms="250")


def test_an_unknown_mechanism_is_answered_and_closed_after_the_delay() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        client.send(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        (protocol,) = stage.held.listener.connections
        await wait_for(lambda: protocol.connection.is_in_progress)
        stage.clock.advance_ms(100)
        answer = await client.read(SaslHandshakeResponse, 1)
        assert answer == SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN"]
        )  # fmt: skip
        assert not await client.was_answered()

    run(scenario)


def test_a_peer_that_disconnects_during_the_delay_of_a_failed_login_leaves_no_timer() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await client.shake_hands()
        timers = len(stage.clock._timers)
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0ana\0wrong"), 2)
        await wait_for(lambda: len(stage.clock._timers) > timers)
        client.writer.transport.abort()
        await wait_for(lambda: len(stage.clock._timers) == timers)

    run(scenario)


@pytest.mark.parametrize(("size", "is_taken"), [(1024, True), (1025, False), (0x7FFFFFFF, False)])
def test_a_frame_before_the_login_is_limited_to_sasl_server_max_receive_size(size: int, is_taken: bool) -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await client.shake_hands()
        client.writer.write(size.to_bytes(4, "big") + b"\0\x24\0\0\0\0\0\7\xff\xff")
        if is_taken:
            (protocol,) = stage.held.listener.connections
            await wait_for(lambda: protocol.connection.waiting_bytes)
        else:
            assert not await client.was_answered()

    run(scenario, sasl_server_max_receive_size="1024")


def test_after_the_login_frames_may_be_as_large_as_requests() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await client.shake_hands()
        await client.authenticate()
        client.writer.write((4096).to_bytes(4, "big") + b"\0\x03\0\1\0\0\0\7" + bytes(4088))
        assert await client.was_answered()

    run(scenario, sasl_server_max_receive_size="1024")


@pytest.mark.parametrize("steps", [0, 1])
def test_a_connection_that_has_not_logged_in_within_half_a_minute_is_closed(steps: int) -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await wait_for(lambda: stage.held.listener.connections)
        if steps:
            await client.shake_hands()
        for _ in range(6):
            stage.clock.advance_ms(5000)
        assert stage.held.listener.connections
        stage.clock.advance_ms(5000)
        assert not await client.was_answered()

    run(scenario)


def test_an_authenticated_connection_is_not_closed_at_the_login_timeout() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await client.shake_hands()
        await client.authenticate()
        for _ in range(20):
            stage.clock.advance_ms(5000)
        assert await client.is_served()

    run(scenario)


def test_a_connection_with_an_expired_sasl_session_is_closed_at_its_next_request() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await client.shake_hands()
        assert (await client.authenticate()).session_lifetime_ms == 10_000
        stage.clock.advance_ms(10_000)
        assert await client.is_served()
        stage.clock.advance_ms(1)
        assert not await client.is_served()

    run(scenario, connections_max_reauth_ms="10000")


def test_an_expired_sasl_session_can_be_renewed_on_its_connection() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await client.shake_hands()
        await client.authenticate()
        stage.clock.advance_ms(15_000)
        assert await client.shake_hands() == 0
        assert (await client.authenticate()).session_lifetime_ms == 10_000
        assert await client.is_served()
        assert stage.served == [(ApiKey.METADATA, "User:ana")]

    run(scenario, connections_max_reauth_ms="10000")


def test_a_second_reauthentication_within_a_second_is_served_as_an_ordinary_request() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        await client.shake_hands()
        await client.authenticate()
        await client.shake_hands()
        await client.authenticate()
        client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert await client.was_answered()
        assert stage.served == [(ApiKey.SASL_HANDSHAKE, "User:ana")]

    run(scenario, connections_max_reauth_ms="10000")


def test_changed_users_are_used_by_the_next_login() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        stage.config = config({JAAS: f'{MODULE} required user_ana="changed";'})
        await client.shake_hands()
        assert (await client.authenticate(b"\0ana\0changed")).error_code == 0

    run(scenario)


def test_a_login_that_begins_before_the_broker_has_started_continues_when_it_has() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await wait_for(lambda: stage.held._held_requests)
        stage.held.release(stage.serve)
        await client.read(SaslHandshakeResponse, 1)
        assert (await client.authenticate()).error_code == 0
        assert await client.is_served()

    run(scenario, is_released=False)


def test_another_request_before_the_broker_has_started_closes_the_connection() -> None:
    async def scenario(stage: Stage, client: Client) -> None:
        assert not await client.is_served()
        assert stage.held._held_requests == []

    run(scenario, is_released=False)


def test_nodes_with_the_same_inter_broker_password_derive_the_same_scram_salts_for_unknown_users() -> None:
    shared = config(
        {
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            JAAS: f'{MODULE} required username="node" password="n" user_node="n";',
        }
    )
    assert shared_secret(shared, SeededEntropy(1)) == shared_secret(shared, SeededEntropy(2))
    alone = config({})
    assert shared_secret(alone, SeededEntropy(1)) != shared_secret(alone, SeededEntropy(2))


def test_nodes_of_a_secured_cluster_derive_the_same_salts_though_their_passwords_differ() -> None:
    nodes = [Login("broker-1", "one", "PLAIN"), Login("broker-2", "two", "PLAIN")]

    def secret_of(node: Login, among: list[Login]) -> bytes:
        settings = {
            **listener_settings(1, 2, 3, "127.0.0.1"),
            **broker_settings(node, among, Path("key.pem"), Path("authority.pem")),
        }
        return shared_secret(BrokerConfig(single_node_properties(settings, Path("/nowhere"))), SeededEntropy(1))

    assert secret_of(nodes[0], nodes) == secret_of(nodes[1], nodes)
    assert secret_of(nodes[0], nodes) != secret_of(nodes[0], nodes[:1])


def test_the_secret_of_scram_salts_for_unknown_users_is_derived_with_scrypt() -> None:
    key = "a key of the cluster"
    made = shared_secret(config({"delegation.token.secret.key": key}), SeededEntropy(1))
    assert made == hashlib.scrypt(key.encode(), salt=b"salts of unknown SCRAM users", n=2**14, r=8, p=1, dklen=32)


def test_the_secret_of_scram_salts_is_derived_at_the_first_scram_login(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[BrokerConfig] = []

    def noting(settings: BrokerConfig, entropy: SeededEntropy) -> bytes:
        asked.append(settings)
        return b"secret"

    monkeypatch.setattr(sasl_gate, "shared_secret", noting)
    settings = config({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
    image = MetadataImage.EMPTY
    sasl = SaslListener("SASL_PLAINTEXT", lambda: settings, lambda: image, ManualClock(1), SeededEntropy(1))
    plain, scram = sasl.mechanisms()
    plain.make_exchange()
    assert asked == []
    scram.make_exchange()
    scram.make_exchange()
    assert len(asked) == 1


def test_unknown_scram_users_get_the_iteration_count_that_most_users_have() -> None:
    keys = keys_of_password("SCRAM-SHA-256", "p", b"salt", 8192)
    image = replace(MetadataImage.EMPTY, scram=ScramImage({("ana", 1): ScramCredential(*keys)}))
    settings = config({"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"})
    sasl = SaslListener("SASL_PLAINTEXT", lambda: settings, lambda: image, ManualClock(1), SeededEntropy(1))
    firsts = [one.make_exchange().step(b"n,,n=eve,r=x", 0) for one in sasl.mechanisms()]
    assert [first.rpartition(b",")[2] for first in firsts] == [b"i=8192", b"i=4096"]


@pytest.mark.parametrize(("owner", "is_found"), [("User:ana", True), ("Group:ana", False), ("ana", False)])
def test_a_delegation_token_whose_owner_is_no_user_principal_cannot_log_in(owner: str, is_found: bool) -> None:
    token = DelegationToken("id", owner, owner, (), 0, 2_000_000, 2_000_000)
    image = replace(MetadataImage.EMPTY, delegation_tokens=DelegationTokensImage({"id": token}))
    settings = config({"delegation.token.secret.key": "a key of the cluster"})
    sasl = SaslListener("SASL_PLAINTEXT", lambda: settings, lambda: image, ManualClock(1_000_000), SeededEntropy(1))
    with pytest.raises(KeysMissing) if is_found else nullcontext():
        assert sasl._find_token("SCRAM-SHA-256", "id", 1_000_000) is None


def test_the_keys_of_a_delegation_token_are_derived_once_and_not_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def noted(*use: str) -> ScramKeys:
        threads.append(threading.get_ident())
        return token_keys(*use)

    monkeypatch.setattr(token_logins, "token_keys", noted)
    token = DelegationToken("id", "User:ana", "User:ana", (), 0, 2_000_000, 2_000_000)
    password = base64.b64encode(token_hmac("a key of the cluster", "id")).decode()

    async def scenario(stage: Stage, client: Client) -> None:
        stage.image = replace(MetadataImage.EMPTY, delegation_tokens=DelegationTokensImage({"id": token}))
        other = Client(*await asyncio.open_connection("127.0.0.1", stage.held.listener.port))
        for one in (client, other):
            assert await one.shake_hands("SCRAM-SHA-256") == 0
            exchange = ScramClientExchange("SCRAM-SHA-256", "id", password, "abc", ",tokenauth=true")
            first = await one.authenticate(exchange.first())
            assert (await one.authenticate(exchange.final(first.auth_bytes))).error_code == 0
            assert await one.is_served()
        assert {principal for _, principal in stage.served} == {"User:ana"}
        other.writer.close()
        assert len(threads) == 1
        assert threads[0] != threading.get_ident()

    run(
        scenario,
        sasl_enabled_mechanisms="SCRAM-SHA-256",
        delegation_token_secret_key="a key of the cluster",
    )
