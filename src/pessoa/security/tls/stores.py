"""Key stores and trust stores: the certificate that a node presents, and those that it trusts.

    PEM      keys and certificates as text, in the settings themselves or in a file; keys are PKCS#8, encrypted or not
    PKCS12   what `openssl pkcs12` and Java write
    JKS      Java's older format (`jks.py`)

The format of a binary file is read from its first bytes, as Java does: `keytool` has written PKCS12 into files called
.jks since Java 9. What is wrong is a `ConfigProblem` that names the key and the file and says what to do; no password
and no part of a key is ever in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.base.config_values import ConfigProblem
from pessoa.security.tls.jks import MAGIC, JksProblem, JksStore, read_jks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

    from pessoa.security.tls.settings import TlsSettings

_FORMATS = ("JKS", "PKCS12", "PEM")
_ASN1_SEQUENCE = b"\x30"
# A larger file is no key store: every certificate of the web's authorities together has a quarter of a mebibyte.
_MAX_FILE_BYTES = 16 * 1024 * 1024
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class KeyStore:
    """A private key with its certificates, from that of the node to that of its authority."""

    key: PrivateKeyTypes
    chain: tuple[Certificate, ...]

    def __repr__(self) -> str:
        return f"<KeyStore of {self.chain[0].subject.rfc4514_string()}>"

    @property
    def certificate(self) -> Certificate:
        return self.chain[0]

    def chain_pem(self) -> bytes:
        return _pem_of(self.chain)

    def key_pem(self, password: bytes | None = None) -> bytes:
        """Return the key as PKCS#8 in PEM; unencrypted if there is no password."""
        from cryptography.hazmat.primitives import serialization

        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password)
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@dataclass(frozen=True, slots=True, repr=False)
class TrustStore:
    certificates: tuple[Certificate, ...]

    def __repr__(self) -> str:
        return f"<TrustStore of {len(self.certificates)} certificates>"

    def pem(self) -> str:
        return _pem_of(self.certificates).decode()


def _pem_of(certificates: tuple[Certificate, ...]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


# ---- Key stores ----


def read_key_store(settings: TlsSettings) -> KeyStore | None:
    """Return the key store that the settings name; None if they name none. Raises `ConfigProblem`."""
    if not settings.has_key_store:
        return None
    if _format(settings.keystore_type, "ssl.keystore.type") == "PEM":
        return _pem_key_store(settings)
    _refuse_inline(settings.keystore_key or settings.keystore_certificate_chain, "ssl.keystore", "key")
    key, path = "ssl.keystore.location", settings.keystore_location
    data = _read(key, path)
    if not settings.keystore_password:
        raise ConfigProblem("ssl.keystore.password", None, f"the key store {path} needs its password; set it")
    if data.startswith(MAGIC):
        store = _jks(key, path, data, settings.keystore_password, settings.key_password or None)
        private = None if store.key is None else _der_key(key, path, store.key)
        return _check_key_store(key, path, private, _certificates(key, path, store.chain))
    return _pkcs12_key_store(key, path, data, settings.keystore_password)


def _pem_key_store(settings: TlsSettings) -> KeyStore:
    if settings.keystore_location:
        if settings.keystore_key or settings.keystore_certificate_chain:
            raise ConfigProblem("ssl.keystore.location", settings.keystore_location,
                                "a PEM key store is either a file or ssl.keystore.key; remove one of them")  # fmt: skip
        if settings.keystore_password:
            raise ConfigProblem("ssl.keystore.password", None,
                                "a PEM key store has no password; that of its key is ssl.key.password")  # fmt: skip
        key, path = "ssl.keystore.location", settings.keystore_location
        text = _read(key, path)
        return _check_key_store(
            key, path, _pem_key(key, path, text, settings.key_password), _pem_certificates(key, path, text)
        )
    if not settings.keystore_key or not settings.keystore_certificate_chain:
        missing = "ssl.keystore.certificate.chain" if settings.keystore_key else "ssl.keystore.key"
        raise ConfigProblem(missing, None, "a key and its certificates go together; set both")
    private = _pem_key("ssl.keystore.key", None, settings.keystore_key.encode(), settings.key_password)
    chain_key = "ssl.keystore.certificate.chain"
    return _check_key_store(chain_key, None, private,
                    _pem_certificates(chain_key, None, settings.keystore_certificate_chain.encode()))  # fmt: skip


def _pkcs12_key_store(key: str, path: str, data: bytes, password: str) -> KeyStore:
    private, own, others = _pkcs12(key, path, data, password)
    return _check_key_store(key, path, private, (() if own is None else (own,)) + others)


def _check_key_store(
    key: str, path: str | None, private: PrivateKeyTypes | None, certificates: tuple[Certificate, ...]
) -> KeyStore:
    """Return the key store: the key with its own certificate first and those of its issuers behind it. Raises
    `ConfigProblem`."""
    if private is None:
        raise ConfigProblem(key, path, "there is no private key in it; a key store has one, with its certificates")
    public = _public_bytes(private.public_key())
    own = next((one for one in certificates if _public_bytes(one.public_key()) == public), None)
    if own is None:
        raise ConfigProblem(key, path, "no certificate in it belongs to its private key")
    chain = [own]
    while (issuer := _issuer_of(chain[-1], certificates)) is not None and issuer not in chain:
        chain.append(issuer)
    return KeyStore(private, tuple(chain))


def _issuer_of(certificate: Certificate, among: tuple[Certificate, ...]) -> Certificate | None:
    return next((one for one in among if one.subject == certificate.issuer and one != certificate), None)


def _public_bytes(public: object) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    encoded: bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return encoded


# ---- Trust stores ----


def read_trust_store(settings: TlsSettings) -> TrustStore | None:
    """Return the trust store that the settings name; None if they name none: then the system's authorities are
    trusted."""
    if not settings.has_trust_store:
        return None
    key, path = "ssl.truststore.location", settings.truststore_location or None
    if _format(settings.truststore_type, "ssl.truststore.type") == "PEM":
        if settings.truststore_password:
            raise ConfigProblem("ssl.truststore.password", None, "a PEM trust store has no password; remove it")
        if path is None:
            key = "ssl.truststore.certificates"
            return TrustStore(_pem_certificates(key, None, settings.truststore_certificates.encode()))
        return TrustStore(_pem_certificates(key, path, _read(key, path)))
    _refuse_inline(settings.truststore_certificates, "ssl.truststore", "certificates")
    assert path is not None
    trusted = _read_binary_trust_store(key, path, _read(key, path), settings.truststore_password or None)
    if not trusted:
        raise ConfigProblem(key, path, "there is no trusted certificate in it; import one with keytool -importcert")
    return TrustStore(trusted)


def _read_binary_trust_store(key: str, path: str, data: bytes, password: str | None) -> tuple[Certificate, ...]:
    if data.startswith(MAGIC):
        return _certificates(key, path, _jks(key, path, data, password, None, wants_key=False).trusted)
    private, own, others = _pkcs12(key, path, data, password)
    # A certificate that belongs to a private key is there to be shown.
    return others if private is not None or own is None else (own, *others)


# ---- Formats ----


def _format(name: str, key: str) -> str:
    if name.upper() not in _FORMATS:
        raise ConfigProblem(key, name, f"it must be one of {', '.join(_FORMATS)}")
    return name.upper()


def _refuse_inline(text: str, store: str, part: str) -> None:
    if text:
        raise ConfigProblem(f"{store}.{part}", None, f"only PEM can stand in a setting; set {store}.type=PEM")


def _read(key: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigProblem(key, path, f"the file cannot be read: {error.strerror}") from error
    if not data or len(data) > _MAX_FILE_BYTES:
        raise ConfigProblem(key, path, "the file is empty" if not data else "the file is too large for a key store")
    return data


def _jks(
    key: str, path: str, data: bytes, password: str | None, key_password: str | None, *, wants_key: bool = True
) -> JksStore:
    try:
        return read_jks(data, password, key_password, wants_key=wants_key)
    except JksProblem as problem:
        raise ConfigProblem(key, path, str(problem)) from problem


def _pkcs12(
    key: str, path: str, data: bytes, password: str | None
) -> tuple[PrivateKeyTypes | None, Certificate | None, tuple[Certificate, ...]]:
    from cryptography.hazmat.primitives.serialization import pkcs12

    if not data.startswith(_ASN1_SEQUENCE):
        kind = "it looks like PEM; set the type to PEM" if b"-----BEGIN" in data else "convert it with keytool"
        raise ConfigProblem(key, path, f"it is neither PKCS12 nor JKS; {kind}")
    try:
        private, own, others = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    except ValueError as error:
        raise ConfigProblem(key, path, "the password is wrong, or the PKCS12 file is damaged") from error
    return private, own, tuple(others)


def _pem_key(key: str, path: str | None, text: bytes, password: str) -> PrivateKeyTypes | None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    block = next((match for match in _PEM_BLOCK.finditer(text) if match[1].endswith(b"PRIVATE KEY")), None)
    if block is None:
        return None
    is_encrypted = b"ENCRYPTED" in block[0]
    if is_encrypted and not password:
        raise ConfigProblem("ssl.key.password", None, "the private key is encrypted; set its password")
    try:
        return load_pem_private_key(block[0], password.encode() if is_encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        why = "the password of the private key is wrong, or the key is damaged" if is_encrypted else "it is damaged"
        raise ConfigProblem(key, path, f"the private key cannot be read: {why}") from error


def _der_key(key: str, path: str, data: bytes) -> PrivateKeyTypes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        return load_der_private_key(data, None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigProblem(key, path, "the private key in it cannot be read") from error


def _pem_certificates(key: str, path: str | None, text: bytes) -> tuple[Certificate, ...]:
    from cryptography.x509 import load_pem_x509_certificate

    blocks = [match[0] for match in _PEM_BLOCK.finditer(text) if match[1].endswith(b"CERTIFICATE")]
    if not blocks:
        raise ConfigProblem(key, path, "there is no certificate in it (-----BEGIN CERTIFICATE-----)")
    try:
        return tuple(map(load_pem_x509_certificate, blocks))
    except ValueError as error:
        raise ConfigProblem(key, path, "a certificate in it cannot be read") from error


def _certificates(key: str, path: str, encoded: tuple[bytes, ...]) -> tuple[Certificate, ...]:
    from cryptography.x509 import load_der_x509_certificate

    try:
        return tuple(map(load_der_x509_certificate, encoded))
    except ValueError as error:
        raise ConfigProblem(key, path, "a certificate in it cannot be read") from error
