"""SCRAM credentials: AlterUserScramCredentials and DescribeUserScramCredentials (KIP-554).

A client never sends a password, but the salted one; what is stored are the two keys that follow from it (RFC 5802), of
which neither is enough to log in. Describing shows mechanisms and iterations, never keys.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pessoa.controller.decision import Decision
from pessoa.security.sasl.scram_keys import ALGORITHMS, MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, derived_keys
from pessoa.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pessoa.wire.api.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from pessoa.controller.decision import Situation
    from pessoa.metadata.image import MetadataImage
    from pessoa.wire.schema import Message


def alter_user_scram_credentials(situation: Situation, request: AlterUserScramCredentialsRequest) -> Decision:
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    named = Counter(change.name for change in changes)
    records: dict[str, list[Message]] = {}
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for change in changes:
        result = results.setdefault(
            change.name,
            AlterUserScramCredentialsResult(user=change.name, error_code=ErrorCode.NONE, error_message=None),
        )
        try:
            record = _record(situation, change, named[change.name])
            records.setdefault(change.name, []).append(record)
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
    written = [
        record for name, of_user in records.items() if results[name].error_code == ErrorCode.NONE for record in of_user
    ]
    response = AlterUserScramCredentialsResponse(throttle_time_ms=0, results=list(results.values()))
    return Decision(written, response)


def _record(situation: Situation, change: ScramCredentialDeletion | ScramCredentialUpsertion, count: int) -> Message:
    if not change.name:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The name of the user is empty.")
    if change.mechanism not in MECHANISMS:
        raise Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"There is no SCRAM mechanism {change.mechanism}.")
    if count > 1:
        raise Refusal(ErrorCode.DUPLICATE_RESOURCE, "A user's credentials can be changed once in a request.")
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in situation.image.scram.credentials:
            raise Refusal(ErrorCode.RESOURCE_NOT_FOUND, "The user has no such credential.")
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        raise Refusal(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{change.iterations} iterations are not between {MIN_ITERATIONS} and {MAX_ITERATIONS}.",
        )
    stored_key, server_key = derived_keys(ALGORITHMS[MECHANISMS[change.mechanism]], change.salted_password)
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=change.iterations,
    )


def describe_user_scram_credentials(
    image: MetadataImage, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in sorted(image.scram.credentials.items()):
        known.setdefault(user, []).append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    asked = Counter(user.name for user in request.users or ())
    results = []
    for name in asked or known:
        code, message = ErrorCode.NONE, ""
        if asked[name] > 1:
            code, message = ErrorCode.DUPLICATE_RESOURCE, f"The user {name!r} is named more than once."
        elif name not in known:
            code, message = ErrorCode.RESOURCE_NOT_FOUND, f"The user {name!r} has no SCRAM credentials."
        infos = known[name] if code is ErrorCode.NONE else []
        results.append(
            DescribeUserScramCredentialsResult(
                user=name, error_code=code, error_message=message, credential_infos=infos
            )
        )
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", results=results
    )
