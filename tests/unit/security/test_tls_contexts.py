"""TLS contexts from settings: what two ends with them negotiate, and what they refuse. No sockets."""

from __future__ import annotations

import ssl
from dataclasses import replace

import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.security.tls.contexts import client_context, server_context
from pessoa.security.tls.settings import TlsSettings
from tests.support.certificates import Authority, Issued

AUTHORITY = Authority("the authority of a test")
FOREIGN = Authority("another")


def settings_of(issued: Issued | None, trusted: Authority = AUTHORITY, **more: str) -> TlsSettings:
    settings = TlsSettings(truststore_type="PEM", truststore_certificates=trusted.pem, **more)
    if issued is None:
        return settings
    return replace(
        settings, keystore_type="PEM", keystore_key=issued.key_pem(), keystore_certificate_chain=issued.chain_pem
    )


BROKER = AUTHORITY.certify("broker-1")
CLIENT = AUTHORITY.certify("ana")


def shake_hands(server: TlsSettings, client: TlsSettings, host: str = "localhost") -> ssl.SSLObject:
    """Do a handshake that must succeed; return the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = server_context(server).wrap_bio(to_server, to_client, server_side=True)
    there = client_context(client).wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(3):
        for side in (there, here):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    here.do_handshake()
    return here


def test_tls_1_3_is_used_by_default() -> None:
    server = shake_hands(settings_of(BROKER), settings_of(None))
    assert server.version() == "TLSv1.3"
    assert server.getpeercert(binary_form=True) is None


def test_ssl_enabled_protocols_is_obeyed() -> None:
    old = settings_of(None, enabled_protocols="TLSv1.2")
    assert shake_hands(settings_of(BROKER), old).version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(settings_of(BROKER, enabled_protocols="TLSv1.3"), old)


@pytest.mark.parametrize("protocols", ["TLSv1", "TLSv1.1,TLSv1.2", "SSLv3"])
def test_insecure_tls_versions_are_refused(protocols: str) -> None:
    with pytest.raises(ConfigProblem, match=r"ssl\.enabled\.protocols"):
        server_context(settings_of(BROKER, enabled_protocols=protocols))


def test_cipher_suites_are_given_by_javas_names() -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    server = shake_hands(settings_of(BROKER, cipher_suites=suite), settings_of(None))
    # A list without suites of TLS 1.3 leaves TLS 1.2.
    assert server.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)
    modern = settings_of(BROKER, cipher_suites="TLS_AES_256_GCM_SHA384")
    assert shake_hands(modern, settings_of(None)).cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
    with pytest.raises(ssl.SSLError):
        shake_hands(modern, settings_of(None, enabled_protocols="TLSv1.2"))


@pytest.mark.parametrize("suites", [
    "TLS_RSA_WITH_NULL_SHA999", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,nonsense", "TLS_AES_128_GCM_SHA256",
])  # fmt: skip
def test_unsupported_cipher_suites_are_refused(suites: str) -> None:
    with pytest.raises(ConfigProblem, match=r"ssl\.cipher\.suites"):
        server_context(settings_of(BROKER, cipher_suites=suites))


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
    ],
)
def test_every_kind_of_cipher_suite_is_mapped(java: str, openssl: str) -> None:
    context = server_context(settings_of(BROKER, cipher_suites=java))
    assert openssl in [one["name"] for one in context.get_ciphers()]


def test_ssl_client_auth_is_required_requested_or_none() -> None:
    required, requested = (settings_of(BROKER, client_auth=one) for one in ("required", "REQUESTED"))
    assert shake_hands(required, settings_of(CLIENT)).getpeercert(binary_form=True)
    assert shake_hands(requested, settings_of(CLIENT)).getpeercert(binary_form=True)
    assert shake_hands(requested, settings_of(None)).getpeercert(binary_form=True) is None
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(required, settings_of(None))
    for stranger in (FOREIGN.certify("ana"), AUTHORITY.certify("ana", days=-1)):
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            shake_hands(requested, settings_of(stranger))


def test_a_client_refuses_an_untrusted_expired_or_misnamed_server_certificate() -> None:
    for server in (
        FOREIGN.certify("b"),
        AUTHORITY.certify("b", days=-1),
        AUTHORITY.certify("b", hosts=("elsewhere.test",)),
    ):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(settings_of(server), settings_of(None))
    elsewhere = AUTHORITY.certify("b", hosts=("elsewhere.test",))
    shake_hands(settings_of(elsewhere), settings_of(None, endpoint_identification_algorithm=""))
    shake_hands(settings_of(AUTHORITY.certify("b", hosts=("127.0.0.1",))), settings_of(None), "127.0.0.1")


def test_a_listener_without_a_key_store_is_refused() -> None:
    with pytest.raises(ConfigProblem, match="name a key store"):
        server_context(settings_of(None))


def test_tls_renegotiation_and_compression_are_disabled() -> None:
    context = server_context(settings_of(BROKER))
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
