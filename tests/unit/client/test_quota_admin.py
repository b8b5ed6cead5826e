from __future__ import annotations

from typing import cast

from pessoa.client.cluster_client import Cluster
from pessoa.client.quota_admin import Credential, Mechanism, alter_credentials
from pessoa.security.sasl.scram import CredentialShape, most_common_credential_shape
from pessoa.security.sasl.scram_keys import keys_of_password, salted_password
from pessoa.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)


class Asked:
    """A cluster that accepts every AlterUserScramCredentials and records its upsertions."""

    def __init__(self) -> None:
        self.upsertions: list[ScramCredentialUpsertion] = []

    def ask(self, request: AlterUserScramCredentialsRequest, *_: object, **__: object) -> object:
        self.upsertions += request.upsertions
        return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=[])


def test_scram_salts_are_random_and_have_the_form_of_kafkas_tools() -> None:
    asked = Asked()
    for _ in range(2):
        alter_credentials(cast("Cluster", asked), "ana", [Credential(Mechanism.SCRAM_SHA_256, 4096, "secret")], [])
    one, other = asked.upsertions
    assert one.salt != other.salt
    for made in asked.upsertions:
        assert made.salted_password == salted_password("sha256", "secret", made.salt, 4096)
        keys = keys_of_password("SCRAM-SHA-256", "secret", made.salt, 4096)
        assert most_common_credential_shape([keys]) == CredentialShape(), "as an unknown user gets one"
