"""A certificate authority for tests; its PEM files hold a key, a signed certificate and the authority's certificate."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_SIGNING = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Authority:
    """Signs certificates for 127.0.0.1 that are valid for an hour."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        builder = self._builder(self._name, self._key.public_key())
        certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # Both identifiers, and the usage of the key: Python 3.13 verifies strictly.
        own_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = certificate.add_extension(own_id, critical=False).add_extension(_SIGNING, critical=True)
        self._pem = _pem(certificate.sign(self._key, hashes.SHA256()))
        self.path = str(folder / "authority.pem")
        Path(self.path).write_bytes(self._pem)

    def sign(self, name: str) -> str:
        """Write a key and a certificate with this common name; return the path of the PEM file."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = self._builder(_name(name), key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer_id, critical=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._folder / f"{name}.pem"
        path.write_bytes(secret + _pem(builder.sign(self._key, hashes.SHA256())) + self._pem)
        return str(path)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
