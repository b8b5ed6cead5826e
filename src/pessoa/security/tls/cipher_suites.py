"""Java's names of cipher suites, translated to OpenSSL's names.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256   ECDHE-RSA-AES128-GCM-SHA256      up to TLS 1.2
    TLS_AES_256_GCM_SHA384                  the same                         TLS 1.3

Python cannot tell OpenSSL which suites of TLS 1.3 to offer; all three are offered, the strongest first. So a list that
leaves TLS_AES_256_GCM_SHA384 out while it names others of TLS 1.3 could not be kept, and is refused. A list that has
none of them keeps TLS 1.3 away, and one that has no others keeps TLS 1.2 away, as in Java.
"""

from __future__ import annotations

from typing import NamedTuple

TLS_1_3_SUITES = frozenset(("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"))
FIRST_OF_TLS_1_3 = "TLS_AES_256_GCM_SHA384"


class CipherSuites(NamedTuple):
    """Cipher suites: `of_tls_1_2` by OpenSSL's names, `of_tls_1_3` by their standard names."""

    of_tls_1_2: tuple[str, ...]
    of_tls_1_3: frozenset[str]


def cipher_suites(names: tuple[str, ...]) -> CipherSuites:
    """Return the suites that a list names, by Java's names or OpenSSL's; whether OpenSSL has them is not checked."""
    modern = frozenset(name for name in names if name in TLS_1_3_SUITES)
    return CipherSuites(tuple(_openssl_name(name) for name in names if name not in modern), modern)


def _openssl_name(name: str) -> str:
    exchange, separator, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return name
    cipher = cipher.replace("AES_128_", "AES128-").replace("AES_256_", "AES256-").replace("CBC_", "")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20-POLY1305"
    before = "" if exchange == "RSA" else f"{exchange}-"
    return f"{before}{cipher}".replace("_", "-")
