"""Whom a service believes when it asks another over HTTPS, and what it shows of itself.

The certificates are those of an operator, of an authority made with `openssl` or `keytool` as tutorials show it. They
leave out extensions that RFC 5280 asks for, and Java, OpenSSL and Python up to 3.12 do not mind. Python 3.13 does by
default (VERIFY_X509_STRICT). It also takes whatever stands in the trust store for trusted, whoever has signed it
(VERIFY_X509_PARTIAL_CHAIN), as Java does and older Pythons do not. Here both are as in Java, on every Python.
"""

from __future__ import annotations

import ssl


def trusting(authority: str | None, own: str | None = None, password: str | None = None) -> ssl.SSLContext:
    """Believe those whom the file of `authority` vouches for, or else the system; show the certificate in `own`."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if own is not None:
        context.load_cert_chain(own, password=password)
    return context
