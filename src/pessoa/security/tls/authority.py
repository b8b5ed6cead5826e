"""A certificate authority of one cluster: it vouches for the nodes, and clients trust what it has signed.

    Authority.make(name, now)          a new key, and a certificate by which the authority vouches for itself
    authority.issue(name, hosts, now)  the key and the certificate of a node, as Kafka's PEM key stores have them
    is_due(pem, now)                   whether a certificate ends soon, and another one should be issued

Keys are of the curve P-256: a handshake with such a key costs a broker a fraction of one with RSA. Nothing here touches
the disk; the caller keeps the texts, and those with a key in them private.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

AUTHORITY_LIFETIME = timedelta(days=3650)
# Some TLS libraries refuse certificates of servers that are good for longer.
NODE_LIFETIME = timedelta(days=825)
# A certificate that has less than this left is replaced at the next start.
RENEWAL = timedelta(days=90)
# Clocks of other machines may be behind.
_BACKDATED = timedelta(hours=1)


class NotAnAuthority(ValueError):
    """The texts are not the key and the certificate of a certificate authority; the message contains no part of a
    key."""


class Authority(NamedTuple):
    key: EllipticCurvePrivateKey
    certificate: x509.Certificate

    def __repr__(self) -> str:
        return f"<Authority {self.certificate.subject.rfc4514_string()}>"

    @classmethod
    def make(cls, name: str, now: datetime) -> Self:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        subject = _common_name(name)
        # It may sign certificates of nodes, but none of further authorities.
        certificate = (
            _certificate_builder(subject, subject, key.public_key(), now, AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def from_pem(cls, key: str, certificate: str) -> Self:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            private_key = load_pem_private_key(key.encode(), None)
            loaded = x509.load_pem_x509_certificate(certificate.encode())
        except (ValueError, TypeError):
            raise NotAnAuthority("they are not a key and a certificate in PEM") from None
        if not isinstance(private_key, ec.EllipticCurvePrivateKey) or private_key.public_key() != loaded.public_key():
            raise NotAnAuthority("the key is not that of the certificate")
        return cls(private_key, loaded)

    def key_pem(self) -> str:
        return _key_pem(self.key)

    def certificate_pem(self) -> str:
        return _certificate_pem(self.certificate)

    def issue(self, name: str, hosts: Sequence[str], now: datetime) -> str:
        """Return a new key (PKCS#8) and its certificate for these host names and addresses, in one PEM text."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID as Use

        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        # Nodes are servers to clients, and clients of each other.
        uses = x509.ExtendedKeyUsage([Use.SERVER_AUTH, Use.CLIENT_AUTH])
        certificate = (
            _certificate_builder(_common_name(name), self.certificate.subject, key.public_key(), now, NODE_LIFETIME)
            .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(uses, critical=False)
            .add_extension(authority, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return _key_pem(key) + _certificate_pem(certificate)


def is_due(pem: str, now: datetime) -> bool:
    """Return whether the first certificate in a PEM text expires soon. A text without a certificate is due as well."""
    from cryptography import x509

    begin = pem.find("-----BEGIN CERTIFICATE-----")
    try:
        certificate = x509.load_pem_x509_certificate(pem[max(begin, 0) :].encode())
    except ValueError:
        return True
    return certificate.not_valid_after_utc - now < RENEWAL


def is_signed_by(pem: str, authority: Authority) -> bool:
    """Return whether this authority has signed the first certificate in a PEM text."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        x509.load_pem_x509_certificate(pem.encode()).verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _common_name(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization as form

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()).decode()


def _certificate_pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()
