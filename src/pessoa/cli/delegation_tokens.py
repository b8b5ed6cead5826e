"""`kafka-delegation-tokens`: create, renew, expire and describe delegation tokens (KIP-48)."""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from pessoa.cli import command_line as line
from pessoa.cli.command_line import LONG, Options, UsageError
from pessoa.cli.tool_run import connect, tool, warn
from pessoa.client.client_errors import KafkaFailure, check

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.client.cluster_client import Cluster

_ACTIONS = ("create", "renew", "expire", "describe")
# What each action needs, and what makes no sense with it.
_REQUIRED = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
_REFUSED = {
    "create": ("hmac", "renew-time-period", "expiry-time-period"),
    "renew": ("renewer-principal", "max-life-time-period", "expiry-time-period", "owner-principal"),
    "expire": ("renewer-principal", "max-life-time-period", "renew-time-period", "owner-principal"),
    "describe": ("hmac", "renew-time-period", "max-life-time-period", "expiry-time-period"),
}


class _Token(NamedTuple):
    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    ends_ms: int


def make_options() -> Options:
    options = Options("kafka-delegation-tokens", "Create, renew, expire, or describe delegation tokens.")
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="String")
    text("command-config", "a properties file for the connection", metavar="String")
    flag("create", "create a token")
    flag("renew", "let a token live longer")
    flag("expire", "let a token end sooner")
    flag("describe", "describe tokens")
    text("owner-principal", "whose token it is", metavar="String")
    text("renewer-principal", "who may renew it", metavar="String")
    text("max-life-time-period", "how long it may live, in ms; -1 as the broker says", metavar="Long", kind=LONG)
    text("renew-time-period", "how much longer, in ms; -1 as the broker says", metavar="Long", kind=LONG)
    text("expiry-time-period", "how much sooner, in ms; -1 at once", metavar="Long", kind=LONG)
    text("hmac", "the secret of the token", metavar="String")
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    chosen = [name for name in _ACTIONS if given.has(name)]
    if len(chosen) != 1:
        raise UsageError("Command must include exactly one action: --create, --renew, --expire or --describe")
    line.require(given, "bootstrap-server", "command-config", *_REQUIRED[chosen[0]])
    line.refuse(given, chosen[0], *_REFUSED[chosen[0]])
    try:
        with connect(given) as cluster:
            {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}[chosen[0]](cluster, given)
    except KafkaFailure as failure:
        sys.stdout.flush()
        warn(failure.java_text)
        return 1
    return 0


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.strip().partition(":")
    if not colon:
        raise UsageError(f"expected a string in format principalType:principalName but got {text}", with_help=False)
    return kind, name


def _create(cluster: Cluster, given: Given) -> None:
    from pessoa.wire.api.create_delegation_token import (
        CreatableRenewers,
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )

    renewers = [_principal(text) for text in given.values("renewer-principal")]
    lifetime = given.number("max-life-time-period")
    listed = ", ".join(f"{kind}:{name}" for kind, name in renewers)
    print(f"Calling create token operation with renewers :[{listed}] , max-life-time-period :{lifetime}")
    owner = _principal(given.value("owner-principal")) if given.has("owner-principal") else ("", "")
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner[0],
        owner_principal_name=owner[1],
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
        max_lifetime_ms=lifetime,
    )
    made = cluster.ask(request, CreateDelegationTokenResponse, name="createDelegationToken")
    check(made.error_code)
    print(f"Created delegation token with tokenId : {made.token_id}")
    token = _Token(
        made.token_id,
        bytes(made.hmac),
        f"{made.principal_type}:{made.principal_name}",
        f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
        [f"{kind}:{name}" for kind, name in renewers],
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
    )
    _print([token])


def _renew(cluster: Cluster, given: Given) -> None:
    from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

    hmac, period = given.value("hmac"), given.number("renew-time-period")
    print(f"Calling renew token operation with hmac :{hmac} , renew-time-period :{period}")
    request = RenewDelegationTokenRequest(hmac=_decode_hmac(hmac), renew_period_ms=period)
    answer = cluster.ask(request, RenewDelegationTokenResponse, name="renewDelegationToken")
    check(answer.error_code)
    print(f"Completed renew operation. New expiry date : {_minute(answer.expiry_timestamp_ms)}")


def _expire(cluster: Cluster, given: Given) -> None:
    from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

    hmac, period = given.value("hmac"), given.number("expiry-time-period")
    print(f"Calling expire token operation with hmac :{hmac} , expire-time-period :{period}")
    request = ExpireDelegationTokenRequest(hmac=_decode_hmac(hmac), expiry_time_period_ms=period)
    answer = cluster.ask(request, ExpireDelegationTokenResponse, name="expireDelegationToken")
    check(answer.error_code)
    print(f"Completed expire operation. New expiry date : {_minute(answer.expiry_timestamp_ms)}")


def _describe(cluster: Cluster, given: Given) -> None:
    from pessoa.wire.api.describe_delegation_token import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )

    owners = [_principal(text) for text in given.values("owner-principal")]
    if owners:
        listed = ", ".join(f"{kind}:{name}" for kind, name in owners)
        print(f"Calling describe token operation for owners: [{listed}]")
    else:
        print("Calling describe token operation for current user.")
    wanted = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in owners]
    request = DescribeDelegationTokenRequest(owners=wanted or None)
    answer = cluster.ask(request, DescribeDelegationTokenResponse, name="describeDelegationToken")
    check(answer.error_code)
    print(f"Total number of tokens : {len(answer.tokens)}")
    _print(
        [
            _Token(
                one.token_id,
                bytes(one.hmac),
                f"{one.principal_type}:{one.principal_name}",
                f"{one.token_requester_principal_type}:{one.token_requester_principal_name}",
                [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in one.renewers],
                one.issue_timestamp,
                one.expiry_timestamp,
                one.max_timestamp,
            )
            for one in answer.tokens
        ]
    )


def _print(tokens: list[_Token]) -> None:
    def row(*cells: str) -> str:
        widths = (15, 30, 15, 15, 25, 15, 15, 15)
        return "\n" + " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))

    print(row("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"), end="")
    for one in tokens:
        hmac = base64.b64encode(one.hmac).decode()
        dates = (_minute(one.issued_ms), _minute(one.expires_ms), _minute(one.ends_ms))
        print(row(one.token_id, hmac, one.owner, one.requester, f"[{', '.join(one.renewers)}]", *dates), end="")
    print()


def _minute(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone():%Y-%m-%dT%H:%M}"


def _decode_hmac(hmac: str) -> bytes:
    try:
        return base64.b64decode(hmac, validate=True)
    except ValueError:
        raise UsageError(f"{hmac} is not Base64", with_help=False) from None
