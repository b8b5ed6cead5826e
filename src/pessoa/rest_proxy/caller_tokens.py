"""The bearer token with which clients of a caller log in to Kafka (OAUTHBEARER).

librdkafka asks a callback for it: at the start, and again when most of the token's life has passed. A producer and an
admin client have the one token that they were made for. The consumer instances of a principal outlive the request that
made them, so they share one `CallerToken`, and each later request of the principal brings it its own token, once a
broker has accepted that:

    request with a newer token ──renew()──► CallerToken ──callback──► librdkafka ──re-authentication──► broker

Invariants: a token is replaced by one of the same principal that ends later, never by another; no `repr` and no error
shows it; it is held by the clients alone, so it goes when they go.
"""

from __future__ import annotations

from collections.abc import Mapping

from pessoa.client.bearer_tokens import OAUTHBEARER, TOKEN
from pessoa.rest_proxy.proxy_config import ClientSettings
from pessoa.web.auth import BearerCredentials

_SASL = "sasl."
# Ends before every other.
_NONE = BearerCredentials("", 0)


class CallerToken:
    """The newest token of a caller, as librdkafka's `oauth_cb`. librdkafka calls it in threads of its own; `renew`
    is called on the event loop. One assignment replaces both the token and its expiry."""

    __slots__ = ("__weakref__", "_given")

    def __init__(self, given: BearerCredentials = _NONE) -> None:
        self._given = given

    def __repr__(self) -> str:
        return f"<CallerToken until {self.expires_at_ms}>"

    @property
    def expires_at_ms(self) -> int:
        """The token's expiry by the wall clock."""
        return self._given.expires_at_ms

    def renew(self, given: BearerCredentials) -> None:
        """Use this token from the next login on, if it expires later than the present one."""
        if given.expires_at_ms > self._given.expires_at_ms:
            self._given = given

    def __call__(self, _: str) -> tuple[str, float]:
        """Return the token and its expiry in seconds, as librdkafka's `oauth_cb` has to."""
        given = self._given
        return given.token, given.expires_at_ms / 1000


def with_token(settings: ClientSettings, token: CallerToken) -> ClientSettings:
    """Return the settings of a librdkafka client with a caller's token in place of their SASL login."""
    kept = {key: value for key, value in settings.items() if not key.startswith(_SASL)}
    return {**kept, "sasl.mechanisms": OAUTHBEARER, "oauth_cb": token}


def java_with_token(settings: Mapping[str, str], given: BearerCredentials) -> dict[str, str]:
    """Return the settings of our own client, which have Java's names, with a caller's token in place of their SASL
    login."""
    kept = {key: value for key, value in settings.items() if not key.startswith(_SASL)}
    return {**kept, "sasl.mechanism": OAUTHBEARER, TOKEN: given.token}
