"""The key store format of Java before version 9, JKS.

    FEEDFEED  version  count  entry…  SHA-1(password, "Mighty Aphrodite", all before)

    entry 1   alias  created  encrypted key  certificate…       a private key and its chain
    entry 2   alias  created  certificate                       a trusted certificate

Numbers are big-endian, texts have two bytes of length before them. Passwords are UTF-16. A private key is an
EncryptedPrivateKeyInfo (PKCS#8) with an algorithm of Sun's own: the key, xor a stream in which each block is the SHA-1
of the password and the block before, the first "block" being a salt; a SHA-1 of password and key follows.

SHA-1 is no protection against a reader of the file; the format leaves no choice. Stores that `keytool` of Java 9 or
newer writes are PKCS12, whatever their names end in.
"""

from __future__ import annotations

import hashlib
import hmac
from struct import Struct
from typing import NamedTuple

MAGIC = b"\xfe\xed\xfe\xed"

_SALT_BYTES = _DIGEST_BYTES = 20
_PRIVATE_KEY, _TRUSTED = 1, 2
_WHITENER = b"Mighty Aphrodite"
# 1.3.6.1.4.1.42.2.17.1.1, in DER
_SUNS_ALGORITHM = bytes.fromhex("060a2b060104012a02110101")
_U16, _U32, _U64 = Struct(">H"), Struct(">I"), Struct(">Q")
_VERSIONS = (1, 2)


class JksProblem(ValueError):
    """A store cannot be read; the message says why, and contains no secret."""


class JksStore(NamedTuple):
    """The content of a JKS file: `key` is PKCS#8 in DER, with its `chain`; certificates are DER."""

    key: bytes | None
    chain: tuple[bytes, ...]
    trusted: tuple[bytes, ...]


def read_jks(
    data: bytes, store_password: str | None, key_password: str | None = None, *, wants_key: bool = True
) -> JksStore:
    """Return the first private key and all trusted certificates of a store. Without a store password its digest is
    not checked."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if store_password is not None:
        expected = _sha1(_utf16(store_password), _WHITENER, body)
        if not hmac.compare_digest(expected, digest):
            raise JksProblem("the password is wrong, or the file is damaged")
    try:
        found = _entries(_Reader(body))
        if found.key is None or not wants_key:
            return found._replace(key=None)
        return found._replace(key=_decrypt_key(found.key, store_password if key_password is None else key_password))
    except (IndexError, UnicodeDecodeError) as error:
        raise JksProblem("the file is damaged") from error


def _entries(reader: _Reader) -> JksStore:
    """Return the entries as they are in the file: the key is still encrypted."""
    reader.take(len(MAGIC))
    version = reader.number(_U32)
    if version not in _VERSIONS:
        raise JksProblem(f"the format has version {version}, and only 1 and 2 are known")
    key: bytes | None = None
    chain: tuple[bytes, ...] = ()
    trusted: list[bytes] = []
    for _ in range(reader.number(_U32)):
        kind = reader.number(_U32)
        reader.text()
        reader.number(_U64)
        if kind == _PRIVATE_KEY:
            encrypted = reader.block()
            certificates = tuple(reader.certificate(version) for _ in range(reader.number(_U32)))
            if key is None:
                key, chain = encrypted, certificates
        elif kind == _TRUSTED:
            trusted.append(reader.certificate(version))
        else:
            raise JksProblem(f"it has an entry of kind {kind}, which is neither a private key nor a certificate")
    return JksStore(key, chain, tuple(trusted))


class _Reader:
    """Reads bytes from the front; raises IndexError where they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise IndexError
        self._at += size
        return taken

    def number(self, form: Struct) -> int:
        number: int = form.unpack(self.take(form.size))[0]
        return number

    def text(self) -> str:
        return self.take(self.number(_U16)).decode()

    def block(self) -> bytes:
        return self.take(self.number(_U32))

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.text()
        return self.block()


def _decrypt_key(encrypted: bytes, password: str | None) -> bytes:
    if password is None:
        raise JksProblem("its private key is encrypted, and no password is given")
    content = _encrypted_content(encrypted)
    secret = _utf16(password)
    salt, body, digest = (
        content[:_SALT_BYTES],
        content[_SALT_BYTES:-_DIGEST_BYTES],
        content[-_DIGEST_BYTES:],
    )
    key = bytearray()
    block = salt
    for start in range(0, len(body), _DIGEST_BYTES):
        block = _sha1(secret, block)
        key += bytes(a ^ b for a, b in zip(body[start : start + _DIGEST_BYTES], block, strict=False))
    if not hmac.compare_digest(_sha1(secret, bytes(key)), digest):
        raise JksProblem("the password of the private key is wrong")
    return bytes(key)


def _encrypted_content(encrypted: bytes) -> bytes:
    """Return the encrypted part of SEQUENCE { SEQUENCE { algorithm, NULL }, OCTET STRING }."""
    whole, _ = _read_der(encrypted, 0)
    algorithm, after = _read_der(whole, 0)
    if not algorithm.startswith(_SUNS_ALGORITHM):
        raise JksProblem("its private key is encrypted in an unknown way")
    content, _ = _read_der(whole, after)
    if len(content) <= _SALT_BYTES + _DIGEST_BYTES:
        raise IndexError
    return content


def _read_der(data: bytes, start: int) -> tuple[bytes, int]:
    """Return the content of the DER value at `start`, and the position behind it."""
    size, at = data[start + 1], start + 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[at : at + count], "big"), at + count
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()
