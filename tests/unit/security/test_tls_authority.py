from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pessoa.security.tls.authority import NODE_LIFETIME, Authority, NotAnAuthority, is_due, is_signed_by

NOW = datetime.now(UTC)


def certificate_in(pem: str) -> str:
    return pem[pem.index("-----BEGIN CERTIFICATE-----") :]


def shake_hands(server_pem: str, authority: Authority, host: str, folder: Path) -> None:
    """Do a TLS handshake; raise an SSLError if a client that trusts the authority refuses the server."""
    file = folder / "server.pem"
    file.write_text(server_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.create_default_context(cadata=authority.certificate_pem())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for side in (*sides, *sides):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_client_that_trusts_the_authority_accepts_its_certificates_for_each_of_their_names(
    host: str, tmp_path: Path
) -> None:
    authority = Authority.make("test", NOW)
    shake_hands(authority.issue("broker-1", ("localhost", "127.0.0.1", "::1"), NOW), authority, host, tmp_path)


def test_a_client_refuses_a_certificate_for_another_name_or_of_another_authority(tmp_path: Path) -> None:
    authority, other = Authority.make("test", NOW), Authority.make("test", NOW)
    pem = authority.issue("broker-1", ("localhost",), NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(pem, authority, "127.0.0.1", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(pem, other, "localhost", tmp_path)


def test_an_authority_is_the_same_after_it_was_written_and_read() -> None:
    authority = Authority.make("test", NOW)
    read = Authority.from_pem(authority.key_pem(), authority.certificate_pem())
    assert is_signed_by(certificate_in(read.issue("broker-1", ("localhost",), NOW)), authority)


def test_the_key_of_another_authority_is_refused_and_not_shown() -> None:
    one, other = Authority.make("test", NOW), Authority.make("test", NOW)
    for key in (other.key_pem(), "nonsense"):
        with pytest.raises(NotAnAuthority) as problem:
            Authority.from_pem(key, one.certificate_pem())
        assert key not in str(problem.value)


def test_a_certificate_is_due_for_renewal_before_it_expires() -> None:
    pem = Authority.make("test", NOW).issue("broker-1", ("localhost",), NOW)
    assert not is_due(pem, NOW)
    assert is_due(pem, NOW + NODE_LIFETIME - timedelta(days=30))
    assert is_due("nothing", NOW)


def test_a_node_certificate_cannot_issue_certificates() -> None:
    authority = Authority.make("test", NOW)
    pem = authority.issue("broker-1", ("localhost",), NOW)
    begin = pem.index("-----BEGIN CERTIFICATE-----")
    node = Authority.from_pem(pem[:begin], pem[begin:])
    assert not is_signed_by(certificate_in(Authority.make("x", NOW).issue("y", ("localhost",), NOW)), node)
    assert "CN=broker-1" in repr(node)
