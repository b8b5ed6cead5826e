"""Quotas on changes by the controller: partitions that a client creates or deletes, per second (KIP-599).

The active controller counts, with a bucket of tokens for each client or user that has a limit (`rates.TokenBucket`): a
topic costs its partitions. Versions of CreateTopics, DeleteTopics and CreatePartitions that know the error are strict:

    strict     nothing is done for a topic while tokens are owed: THROTTLING_QUOTA_EXCEEDED for this one, and the
               response says after how long none will be. The last topic that was done may have overdrawn the bucket
    otherwise  everything is done, and the response says how long the client shall wait if tokens are owed then

A decision changes nothing, so it spends from a `MutationCharge`; what it spent is taken from the bucket when the
decision stands (`settle`). A new controller begins with full buckets.

A bucket that is full is the same as none. As for rates (`client_quotas.py`), those of client ids are bounded in number,
and those of users go only when they are full.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pessoa.quota.client_quotas import MAX_CLIENTS, shortened, user_of
from pessoa.quota.precedence import CONTROLLER_MUTATION_RATE, Configured, Limits
from pessoa.quota.rates import TokenBucket, Windows, whole_throttle_ms
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from pessoa.quota.precedence import Limit

# From so many users on, those with full buckets are looked for.
_MANY_USERS = 1_000


class MutationCharge:
    """The tokens that one request takes for the partitions that it creates or deletes."""

    __slots__ = ("_bucket", "_now_ms", "_rate", "_spent", "_tokens", "throttle_ms")

    def __init__(self, bucket: TokenBucket, rate: float, now_ms: int) -> None:
        self._bucket = bucket
        self._rate = rate
        self._now_ms = now_ms
        self._tokens = bucket.tokens(rate, now_ms)
        self._spent = 0
        # How long the client shall wait.
        self.throttle_ms = 0

    def __repr__(self) -> str:
        return f"<MutationCharge: {self._spent} spent, {self._tokens:g} left>"

    def spend(self, partitions: int, *, is_strict: bool) -> None:
        """Take tokens for so many partitions. With `is_strict` raise THROTTLING_QUOTA_EXCEEDED instead if tokens are
        owed."""
        if is_strict and self._tokens < 0:
            self._note_owed()
            raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._tokens -= partitions
        self._spent += partitions
        if not is_strict and self._tokens < 0:
            self._note_owed()

    def settle(self) -> int:
        """Take the spent tokens from the bucket, because the decision was made. Return how many milliseconds the
        client must wait."""
        if self._spent:
            self._bucket.spend(self._spent, self._rate, self._now_ms)
            self._spent = 0
        return self.throttle_ms

    def _note_owed(self) -> None:
        self.throttle_ms = whole_throttle_ms(-self._tokens / self._rate * 1000)


class MutationQuotas:
    def __init__(self, configured: Configured, windows: Windows | None = None) -> None:
        self.windows = windows or Windows()
        self._limits = Limits(configured)
        self._buckets_of_users: dict[str, TokenBucket] = {}
        self._many_users = _MANY_USERS
        # (user or None, client id), the longest unused first.
        self._buckets_of_client_ids: OrderedDict[tuple[str | None, str], TokenBucket] = OrderedDict()

    def __repr__(self) -> str:
        return f"<MutationQuotas: {len(self._buckets_of_users)} users, {len(self._buckets_of_client_ids)} client ids>"

    def follow(self, configured: Configured) -> None:
        """Take over limits that have changed; the tokens that clients have spent stay spent."""
        self._limits = Limits(configured)

    def charge_of(self, principal: str, client_id: str | None, now_ms: int) -> MutationCharge | None:
        """Return the charge for one request of this client; None if no limit holds for it."""
        if not self._limits.has(CONTROLLER_MUTATION_RATE):
            return None
        limit = self._limits.of_client(CONTROLLER_MUTATION_RATE, user_of(principal), shortened(client_id))
        return None if limit is None else MutationCharge(self._bucket(limit, now_ms), limit.value, now_ms)

    def _bucket(self, limit: Limit, now_ms: int) -> TokenBucket:
        if limit.client_id is None:
            assert limit.user is not None, "a limit is one of a user, of a client id or of both"
            found = self._buckets_of_users.get(limit.user)
            if found is None:
                self._remove_full(limit.value, now_ms)
                found = self._buckets_of_users[limit.user] = TokenBucket(self.windows)
            return found
        place = (limit.user, limit.client_id)
        found = self._buckets_of_client_ids.get(place)
        if found is None:
            found = self._buckets_of_client_ids[place] = TokenBucket(self.windows)
            if len(self._buckets_of_client_ids) > MAX_CLIENTS:
                self._buckets_of_client_ids.popitem(last=False)
        self._buckets_of_client_ids.move_to_end(place)
        return found

    def _remove_full(self, rate: float, now_ms: int) -> None:
        """Remove the full buckets of users when there are very many. Full is judged by the rate of one user: a bucket
        that fills more slowly may be removed a little early."""
        if len(self._buckets_of_users) >= self._many_users:
            self._buckets_of_users = {
                user: one for user, one in self._buckets_of_users.items() if not one.is_full(rate, now_ms)
            }
            self._many_users = max(_MANY_USERS, 2 * len(self._buckets_of_users))
