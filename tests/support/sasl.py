"""What tests of SASL share: the settings of a listener that demands a login, its users, and raw SASL requests."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import Message
from tests.support.clients import TIMEOUT_S
from tests.support.crash_wire import Wire

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "ana", "a good pass;word"
LOGIN = "org.apache.kafka.common.security"


def jaas(mechanism: str, options: Mapping[str, str]) -> str:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    text = "".join(f' {name}="{value}"' for name, value in options.items())
    return f"{LOGIN}.{module} required{text};"


def server_settings(listener: str = "sasl_plaintext") -> dict[str, str]:
    """Return the settings of a listener with all three mechanisms. SCRAM users are created with `add_scram_users`."""
    users = {"username": "node", "password": "node", "user_node": "node", f"user_{USER}": PASSWORD}
    return {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{
            f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": jaas(
                mechanism, users if mechanism == "PLAIN" else {}
            )
            for mechanism in MECHANISMS
        },
    }


def add_scram_users(settings: Mapping[str, str]) -> None:
    """Give the user credentials for both SCRAM mechanisms. `settings` are those of an admin client that may do that."""
    admin = AdminClient(dict(settings))
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, PASSWORD.encode())])
        made[USER].result(TIMEOUT_S)


def client_settings(servers: str, mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, str]:
    """Return the login settings under librdkafka's names."""
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def ask(wire: Wire, request: Message, version: int, response: type[Message]) -> Message:
    wire.send(b"".join(request_frame(request, version, 7, "tester")))
    body = wire.frame()
    _, pos = ResponseHeader.decoder(response_header_version(response, version))(body, 0, len(body))
    message: Message = response.decoder(version)(body, pos, len(body))[0]
    return message


def shake_hands(wire: Wire, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
    answer = ask(wire, SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)
    assert isinstance(answer, SaslHandshakeResponse)
    return answer


def authenticate(wire: Wire, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    answer = ask(wire, SaslAuthenticateRequest(auth_bytes=token), version, SaslAuthenticateResponse)
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer
