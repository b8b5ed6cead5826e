"""Which certificates a service trusts when it asks another over HTTPS, and which it shows.

The certificates are those of an operator, of an authority made with `openssl` or `keytool` as tutorials show it. They
leave out extensions that RFC 5280 asks for, and Java, OpenSSL and Python up to 3.12 do not mind. Python 3.13 does by
default (VERIFY_X509_STRICT). It also trusts every certificate in the trust store, even if it is not self-signed
(VERIFY_X509_PARTIAL_CHAIN), as Java does and older Pythons do not. Here both are as in Java, on every Python.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterable


def tls_context(authority: str | None, own: str | None = None, password: str | None = None) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates in `authority`, or the system's, and presents the one in
    `own`."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if own is not None:
        context.load_cert_chain(own, password=password)
    return context


@functools.cache
def _public_trust() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()


def trust_for(urls: Iterable[str], trust: ssl.SSLContext | bool = True) -> ssl.SSLContext | bool:
    """Return what a client of these URLs verifies certificates by: a TLS context, or False without https. Reading
    the system's authorities takes a tenth of a second, so it is done once for all services."""
    if not any(url.lower().startswith("https:") for url in urls):
        return False
    return _public_trust() if trust is True else trust
