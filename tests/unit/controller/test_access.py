"""Quotas, SCRAM credentials and ACLs: created, described with filters, deleted."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode

import pytest

from pessoa.controller.acl_decisions import describe_acls
from pessoa.controller.quotas import describe_client_quotas
from pessoa.controller.scram_decisions import describe_user_scram_credentials
from pessoa.security.sasl.scram_keys import derived_keys
from pessoa.wire.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from pessoa.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from pessoa.wire.api.describe_acls import DescribeAclsRequest
from pessoa.wire.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from pessoa.wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from pessoa.wire.errors import ErrorCode
from tests.support.admin_script import quota, scram
from tests.unit.controller.conftest import Cluster

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, CLUSTER = 2, 4
READ, WRITE, DENY, ALLOW = 3, 4, 2, 3


# ---- Quotas ----


def alter(cluster: Cluster, request: AlterClientQuotasRequest) -> ErrorCode:
    return ErrorCode.of(cluster.ask(request, AlterClientQuotasResponse).entries[0].error_code)


def described(
    cluster: Cluster, *filters: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasResponse:
    components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in filters]
    return describe_client_quotas(cluster.image, DescribeClientQuotasRequest(components=components, strict=strict))


def found(
    cluster: Cluster, *filters: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    response = described(cluster, *filters, strict=strict)
    assert response.error_code == ErrorCode.NONE
    return [
        ({one.entity_type: one.entity_name for one in entry.entity}, {one.key: one.value for one in entry.values})
        for entry in response.entries or ()
    ]


@pytest.fixture
def limited(cluster: Cluster) -> Cluster:
    for entity, key, value in (
        ({"user": "alice"}, "producer_byte_rate", 1.0),
        ({"user": None}, "producer_byte_rate", 2.0),
        ({"client-id": "c", "user": "alice"}, "producer_byte_rate", 3.0),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 4.0),
    ):
        assert alter(cluster, quota(dict(entity), (key, value))) is ErrorCode.NONE
    return cluster


def test_quotas_are_found_by_exact_names_defaults_and_entity_types(limited: Cluster) -> None:
    alice = ({"user": "alice"}, {"producer_byte_rate": 1.0})
    default_user = ({"user": None}, {"producer_byte_rate": 2.0})
    both = ({"client-id": "c", "user": "alice"}, {"producer_byte_rate": 3.0})
    assert found(limited, ("user", EXACT, "alice")) == [alice, both]
    assert found(limited, ("user", EXACT, "alice"), strict=True) == [alice]
    assert found(limited, ("user", DEFAULT, None)) == [default_user]
    assert found(limited, ("user", SPECIFIED, None), strict=True) == [alice, default_user]
    assert len(found(limited)) == 4
    assert found(limited, strict=True) == []


def test_removing_the_last_quota_of_an_entity_removes_the_entity(limited: Cluster) -> None:
    assert alter(limited, quota({"user": "alice"}, ("producer_byte_rate", None))) is ErrorCode.NONE
    assert found(limited, ("user", EXACT, "alice"), strict=True) == []


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "x"), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "x"), ("ip", EXACT, "1.1.1.1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_malformed_client_quota_filter_is_refused(
    limited: Cluster, filters: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert ErrorCode.of(described(limited, *filters).error_code) is code


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1.5])
def test_a_byte_rate_is_a_positive_whole_number(cluster: Cluster, value: float) -> None:
    request = quota({"user": "u"}, ("producer_byte_rate", 1.0))
    request.entries[0].ops[0].value = value
    assert alter(cluster, request) is ErrorCode.INVALID_REQUEST


# ---- SCRAM ----


def credentials(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> dict[str, ErrorCode]:
    response = cluster.ask(request, AlterUserScramCredentialsResponse)
    return {one.user: ErrorCode.of(one.error_code) for one in response.results}


def test_the_keys_of_a_scram_credential_are_those_of_the_rfc() -> None:
    # The exchange of RFC 7677, section 3: user "user", password "pencil".
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchanged = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    stored_key, server_key = derived_keys("sha256", salted)
    assert hmac.digest(server_key, exchanged, "sha256") == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(stored_key, exchanged, "sha256")
    client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored_key


def test_scram_credentials_are_described_without_their_keys(cluster: Cluster) -> None:
    assert credentials(cluster, scram(upserted=[("alice", 1, 4096), ("bob", 2, 8192)])) == {
        "alice": ErrorCode.NONE,
        "bob": ErrorCode.NONE,
    }
    all_users = describe_user_scram_credentials(cluster.image, DescribeUserScramCredentialsRequest(users=None))
    assert [
        (one.user, [(info.mechanism, info.iterations) for info in one.credential_infos]) for one in all_users.results
    ] == [
        ("alice", [(1, 4096)]),
        ("bob", [(2, 8192)]),
    ]
    users = [UserName(name=name) for name in ("alice", "carol", "bob", "bob")]
    named = describe_user_scram_credentials(cluster.image, DescribeUserScramCredentialsRequest(users=users))
    assert {one.user: ErrorCode.of(one.error_code) for one in named.results} == {
        "alice": ErrorCode.NONE,
        "carol": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.DUPLICATE_RESOURCE,
    }


def test_a_deleted_scram_credential_is_not_described(cluster: Cluster) -> None:
    credentials(cluster, scram(upserted=[("alice", 1, 4096)]))
    assert credentials(cluster, scram(deleted=[("alice", 1)])) == {"alice": ErrorCode.NONE}
    assert credentials(cluster, scram(deleted=[("alice", 1)])) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}


# ---- ACLs ----


def acl(name: str, pattern: int = LITERAL, principal: str = "User:a", **changes: object) -> AclCreation:
    creation = AclCreation(
        resource_type=TOPIC, resource_name=name, resource_pattern_type=pattern, principal=principal, host="*",
        operation=READ, permission_type=ALLOW,
    )  # fmt: skip
    for key, value in changes.items():
        setattr(creation, key, value)
    return creation


def add(cluster: Cluster, *creations: AclCreation) -> list[ErrorCode]:
    response = cluster.ask(CreateAclsRequest(creations=list(creations)), CreateAclsResponse)
    return [ErrorCode.of(one.error_code) for one in response.results]


def names(cluster: Cluster, name: str | None = None, pattern: int = ANY, principal: str | None = None) -> list[str]:
    request = DescribeAclsRequest(
        resource_type_filter=ANY, resource_name_filter=name, pattern_type_filter=pattern, principal_filter=principal,
        host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    response = describe_acls(cluster.image, request)
    assert response.error_code == ErrorCode.NONE
    return sorted(one.resource_name for one in response.resources)


def test_acls_are_found_by_name_pattern_type_and_match(cluster: Cluster) -> None:
    assert add(cluster, acl("orders"), acl("ord", PREFIXED), acl("*"), acl("clicks")) == [ErrorCode.NONE] * 4
    assert names(cluster) == ["*", "clicks", "ord", "orders"]
    assert names(cluster, "orders") == ["orders"]
    assert names(cluster, "orders", LITERAL) == ["orders"]
    assert names(cluster, "ord", PREFIXED) == ["ord"]
    assert names(cluster, "orders", PREFIXED) == []
    assert names(cluster, "orders", MATCH) == ["*", "ord", "orders"]
    assert names(cluster, principal="User:b") == []


def test_an_existing_acl_is_not_written_again(cluster: Cluster) -> None:
    add(cluster, acl("orders"))
    before = len(cluster.quorum.batches)
    assert add(cluster, acl("orders")) == [ErrorCode.NONE]
    assert len(cluster.quorum.batches) == before


@pytest.mark.parametrize(
    "wrong",
    [
        acl(""),
        acl("t", pattern=MATCH),
        acl("t", pattern=0),
        acl("t", principal="alice"),
        acl("t", operation=ANY),
        acl("t", operation=99),
        acl("t", permission_type=ANY),
        acl("t", resource_type=ANY),
        acl("t", resource_type=CLUSTER),
    ],
)
def test_a_malformed_acl_is_refused(cluster: Cluster, wrong: AclCreation) -> None:
    assert add(cluster, wrong) == [ErrorCode.INVALID_REQUEST]
    assert not cluster.image.acls.by_id


def test_delete_acls_returns_the_deleted_acls(cluster: Cluster) -> None:
    add(cluster, acl("orders"), acl("orders", operation=WRITE, permission_type=DENY), acl("clicks"))
    wanted = DeleteAclsFilter(
        resource_type_filter=TOPIC, resource_name_filter="orders", pattern_type_filter=LITERAL, principal_filter=None,
        host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    response = cluster.ask(DeleteAclsRequest(filters=[wanted, wanted]), DeleteAclsResponse)
    assert [len(one.matching_acls) for one in response.filter_results] == [2, 2]
    assert names(cluster) == ["clicks"]
    wanted.operation = 0
    response = cluster.ask(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse)
    assert response.filter_results[0].error_code == ErrorCode.INVALID_REQUEST


def test_one_request_changes_at_most_ten_thousand_acls(cluster: Cluster) -> None:
    too_many = [acl(f"t{number}") for number in range(10_001)]
    assert set(add(cluster, *too_many)) == {ErrorCode.POLICY_VIOLATION}
    assert not cluster.image.acls.by_id
    add(cluster, *too_many[:-1])
    add(cluster, too_many[-1])
    wanted = DeleteAclsFilter(
        resource_type_filter=TOPIC, resource_name_filter=None, pattern_type_filter=ANY, principal_filter=None,
        host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    (result,) = cluster.ask(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse).filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.INVALID_REQUEST, [])
    assert len(cluster.image.acls.by_id) == 10_001


def a_filter(
    name: str | None = None, pattern_type: int = ANY, principal: str | None = None, host: str | None = None
) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=TOPIC, resource_name_filter=name, pattern_type_filter=pattern_type,
        principal_filter=principal, host_filter=host, operation=ANY, permission_type=ANY,
    )  # fmt: skip


def test_every_delete_acls_filter_deletes_the_acls_that_describe_acls_finds_with_it(cluster: Cluster) -> None:
    """Filters by name or principal are not compared with every entry."""
    for name in ("orders", "ord", "*"):
        for pattern_type in (LITERAL, PREFIXED):
            for principal in ("User:a", "User:b"):
                add(cluster, acl(name, resource_pattern_type=pattern_type, principal=principal))
    filters = [
        a_filter(name, pattern_type, principal)
        for name in (None, "orders", "ord", "*", "none")
        for pattern_type in (ANY, MATCH, LITERAL, PREFIXED)
        for principal in (None, "User:a", "User:c")
    ]
    described = []
    for one in filters:
        response = describe_acls(
            cluster.image,
            DescribeAclsRequest(
                resource_type_filter=TOPIC, resource_name_filter=one.resource_name_filter,
                pattern_type_filter=one.pattern_type_filter, principal_filter=one.principal_filter, host_filter=None,
                operation=ANY, permission_type=ANY,
            ),
        )  # fmt: skip
        described.append(
            {(it.resource_name, it.pattern_type, entry.principal) for it in response.resources for entry in it.acls}
        )
    results = cluster.ask(DeleteAclsRequest(filters=filters), DeleteAclsResponse).filter_results
    removed = [{(one.resource_name, one.pattern_type, one.principal) for one in it.matching_acls} for it in results]
    assert removed == described
    assert any(described)


def test_delete_acls_filters_that_need_too_many_comparisons_are_refused(cluster: Cluster) -> None:
    """A thousand filters and ten thousand entries held the event loop for three seconds."""
    add(cluster, *(acl(f"t{number}") for number in range(1_000)))
    named = [a_filter(f"t{number}", LITERAL) for number in range(300)]
    anything = [a_filter(host=f"10.0.0.{number}") for number in range(300)]
    results = cluster.ask(DeleteAclsRequest(filters=[*anything, *named]), DeleteAclsResponse).filter_results
    errors = [ErrorCode.of(one.error_code) for one in results]
    assert errors[:200] == [ErrorCode.NONE] * 200
    assert set(errors[200:300]) == {ErrorCode.INVALID_REQUEST}
    results = cluster.ask(DeleteAclsRequest(filters=named), DeleteAclsResponse).filter_results
    assert {one.error_code for one in results} == {ErrorCode.NONE}
    assert len(cluster.image.acls.by_id) == 700
