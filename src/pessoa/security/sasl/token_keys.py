"""The secret of a delegation token (KIP-48): it follows from the token's id and from a key that all nodes share.

    hmac = HMAC-SHA-512(delegation.token.secret.key, token id)

A client logs in with SCRAM, with the id as its name and the base64 of the hmac as its password. Nothing of that is
stored: each node derives it when it needs it.
"""

from __future__ import annotations

import base64
import hmac

from pessoa.security.sasl.scram_keys import MIN_ITERATIONS, ScramKeys, keys_of_password, text_salt


def token_hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_keys(mechanism: str, secret: str, token_id: str) -> ScramKeys:
    """Return the keys by which a node checks a login with that delegation token. The salt is the same on all nodes."""
    mac = token_hmac(secret, token_id)
    salt = text_salt(hmac.digest(mac, mechanism.encode(), "sha256"))
    return keys_of_password(mechanism, base64.b64encode(mac).decode(), salt, MIN_ITERATIONS)
