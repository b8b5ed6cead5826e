"""The rules of the authorizer, one by one; `tests/property/test_authorizer_against_a_model.py` combines them."""

from __future__ import annotations

import logging

import pytest

from pessoa.base.ids import Uuid
from pessoa.metadata.table_images import Acl
from pessoa.security import acl
from pessoa.security.acl import (
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_NAME,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from pessoa.security.authorizer import MAX_VERDICTS, Authorizer, normalised_host, parse_super_users
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.request_context import RequestContext

ALICE = "User:alice"


def asker(principal: str = ALICE, host: str = "10.0.0.1", api: ApiKey = ApiKey.FETCH) -> RequestContext:
    return RequestContext(api, 0, 1, "client", host, 1, principal=principal)


def entry(
    operation: int,
    name: str = "t",
    *,
    kind: int = TOPIC,
    pattern: int = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    permission: int = ALLOW,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer(*entries: Acl, super_users: str = "", allows_without_acl: bool = False) -> Authorizer:
    made = Authorizer(parse_super_users(super_users), allows_without_acl=allows_without_acl)
    made.load({Uuid(number.to_bytes(16)): one for number, one in enumerate(entries)})
    return made


def test_without_any_acl_everything_is_denied() -> None:
    assert not authorizer().may(asker(), READ, TOPIC, "t")


def test_an_acl_allows_its_operation_on_its_topic_and_nothing_else() -> None:
    made = authorizer(entry(READ))
    assert made.may(asker(), READ, TOPIC, "t")
    assert not made.may(asker(), WRITE, TOPIC, "t")
    assert not made.may(asker(), READ, TOPIC, "u")
    assert not made.may(asker(), READ, GROUP, "t")
    assert not made.may(asker("User:bob"), READ, TOPIC, "t")


def test_deny_overrides_allow_in_any_order_and_with_any_pattern() -> None:
    denied = entry(READ, "te", pattern=PREFIXED, principal="User:*", permission=DENY)
    for entries in ((entry(READ, "test"), denied), (denied, entry(READ, "test"))):
        assert not authorizer(*entries).may(asker(), READ, TOPIC, "test")


def test_super_users_are_allowed_everything_even_if_it_is_denied_to_them() -> None:
    made = authorizer(entry(READ, permission=DENY), super_users=" User:admin ; User:alice;; ")
    assert made.may(asker(), READ, TOPIC, "t")
    assert not made.may(asker("User:Alice"), READ, TOPIC, "t")


def test_before_the_acls_are_loaded_only_super_users_are_allowed() -> None:
    made = Authorizer(frozenset({"User:admin"}), allows_without_acl=True)
    assert made.may(asker("User:admin"), READ, TOPIC, "t")
    assert not made.may(asker(), READ, TOPIC, "t")
    made.load({})
    assert made.may(asker(), READ, TOPIC, "t")


def test_allow_everyone_applies_only_to_resources_without_acls() -> None:
    made = authorizer(
        entry(READ, "t", principal="User:bob"),
        entry(READ, "pre", pattern=PREFIXED, principal="User:bob"),
        allows_without_acl=True,
    )
    assert made.may(asker(), READ, TOPIC, "other")
    assert not made.may(asker(), READ, TOPIC, "t")
    assert not made.may(asker(), READ, TOPIC, "prefixed")
    everything = authorizer(entry(READ, "*", principal="User:bob"), allows_without_acl=True)
    assert not everything.may(asker(), READ, TOPIC, "other")
    assert everything.may(asker(), READ, GROUP, "other")


@pytest.mark.parametrize("operation", [READ, WRITE, DELETE, ALTER])
def test_allowing_read_write_delete_or_alter_implies_describe(operation: int) -> None:
    assert authorizer(entry(operation)).may(asker(), DESCRIBE, TOPIC, "t")


@pytest.mark.parametrize("operation", [acl.CREATE, ALTER_CONFIGS, DESCRIBE_CONFIGS, IDEMPOTENT_WRITE])
def test_other_operations_do_not_imply_describe(operation: int) -> None:
    assert not authorizer(entry(operation)).may(asker(), DESCRIBE, TOPIC, "t")


def test_alter_configs_implies_describe_configs() -> None:
    assert authorizer(entry(ALTER_CONFIGS)).may(asker(), DESCRIBE_CONFIGS, TOPIC, "t")
    assert not authorizer(entry(ALTER)).may(asker(), DESCRIBE_CONFIGS, TOPIC, "t")


def test_a_deny_implies_nothing() -> None:
    made = authorizer(entry(acl.ALL), entry(READ, permission=DENY))
    assert made.may(asker(), DESCRIBE, TOPIC, "t")
    assert not made.may(asker(), READ, TOPIC, "t")


def test_a_deny_of_all_denies_each_operation() -> None:
    made = authorizer(entry(READ), entry(acl.ALL, permission=DENY))
    assert not made.may(asker(), READ, TOPIC, "t")


def test_a_prefixed_acl_named_asterisk_is_no_wildcard() -> None:
    made = authorizer(entry(READ, "*", pattern=PREFIXED))
    assert not made.may(asker(), READ, TOPIC, "t")
    assert made.may(asker(), READ, TOPIC, "*t")


@pytest.mark.parametrize("principal", ["User:alice ", "User:ALICE", "alice", "Group:alice", "User:alice;User:admin"])
def test_principals_are_compared_exactly(principal: str) -> None:
    made = authorizer(entry(READ), super_users="User:admin")
    assert not made.may(asker(principal), READ, TOPIC, "t")


def test_topic_names_in_another_unicode_form_are_different_names() -> None:
    made = authorizer(entry(READ, principal="User:Zo\u00eb"))
    assert made.may(asker("User:Zo\u00eb"), READ, TOPIC, "t")
    assert not made.may(asker("User:Zoe\u0308"), READ, TOPIC, "t")


def test_a_user_name_with_colons_is_not_the_part_before_the_colon() -> None:
    made = authorizer(entry(READ))
    assert not made.may(asker("User:alice:x"), READ, TOPIC, "t")


def test_the_wildcard_principal_is_of_type_user() -> None:
    made = authorizer(entry(READ, principal="User:*"))
    assert made.may(asker("User:anyone"), READ, TOPIC, "t")


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::FFFF:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::1", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_a_deny_applies_to_every_spelling_of_its_host(written: str, seen: str) -> None:
    made = authorizer(entry(READ, principal="User:*"), entry(READ, host=written, permission=DENY))
    assert not made.may(asker(host=seen), READ, TOPIC, "t")
    assert made.may(asker(host="10.0.0.2"), READ, TOPIC, "t")


def test_a_network_in_an_acl_host_matches_no_address() -> None:
    assert not authorizer(entry(READ, host="10.0.0.0/8")).may(asker(), READ, TOPIC, "t")


def test_a_host_that_is_no_address_is_not_normalised() -> None:
    assert [normalised_host(one) for one in ("*", "localhost", "", "010.0.0.1")] == ["*", "localhost", "", "010.0.0.1"]


def test_new_acls_apply_at_once_although_decisions_are_cached() -> None:
    made = authorizer(entry(READ))
    assert made.may(asker(), READ, TOPIC, "t")
    made.load({})
    assert not made.may(asker(), READ, TOPIC, "t")
    made.load({Uuid(bytes(16)): entry(READ)})
    assert made.may(asker(), READ, TOPIC, "t")


def test_decisions_about_very_many_names_take_bounded_memory() -> None:
    made = authorizer(entry(READ, "*"))
    for number in range(MAX_VERDICTS + 10):
        assert made.may(asker(), READ, TOPIC, str(number))
    assert "10 verdicts" in repr(made)


@pytest.mark.parametrize(
    ("principal", "host", "name"),
    [(ALICE, "10.0.0.1", "t" * 256), ("User:" + "a" * 251, "10.0.0.1", "t"), (ALICE, "h" * 256, "t")],
)
def test_a_decision_about_a_name_that_is_too_long_is_right_and_not_cached(principal: str, host: str, name: str) -> None:
    made = authorizer(entry(READ, "*", principal="User:*"))
    assert made.may(asker(principal, host), READ, TOPIC, name)
    assert not made.may(asker(principal, host), WRITE, TOPIC, name)
    made.may_with_some(asker(principal, host), WRITE, GROUP)
    expected = 0 if len(principal) > 255 or len(host) > 255 else 1
    assert f" {expected} verdicts" in repr(made)


def test_the_decision_about_the_longest_legal_topic_name_is_cached() -> None:
    made = authorizer(entry(READ, "*"))
    assert made.may(asker(), READ, TOPIC, "t" * 249)
    assert " 1 verdicts" in repr(made)


@pytest.mark.parametrize("name", ["\0some", "", "*"])
def test_no_resource_name_of_a_request_is_confused_with_the_check_for_any_resource(name: str) -> None:
    rights = entry(WRITE, "any")
    made = authorizer(rights)
    assert not made.may(asker(), WRITE, TOPIC, name)
    assert made.may_with_some(asker(), WRITE, TOPIC)
    made = authorizer(rights)
    assert made.may_with_some(asker(), WRITE, TOPIC)
    assert not made.may(asker(), WRITE, TOPIC, name)


def test_the_check_for_any_topic_is_made_again_when_acls_change() -> None:
    made = authorizer()
    assert not made.may_with_some(asker(), WRITE, TOPIC)
    made.load({Uuid(bytes(16)): entry(WRITE, "any")})
    assert made.may_with_some(asker(), WRITE, TOPIC)
    assert made.may_with_some(asker(), WRITE, TOPIC)
    assert not made.may(asker(), WRITE, TOPIC, "other")


def test_authorized_operations_are_bits_by_their_numbers() -> None:
    made = authorizer(entry(READ), entry(ALTER_CONFIGS))
    assert (
        made.operations(asker(), TOPIC, "t") == 1 << READ | 1 << DESCRIBE | 1 << DESCRIBE_CONFIGS | 1 << ALTER_CONFIGS
    )
    assert made.operations(asker(), CLUSTER, CLUSTER_NAME) == 0
    assert authorizer(super_users=ALICE).operations(asker(), GROUP, "g") == 0b1101_0100_1000


@pytest.mark.parametrize("text", ["alice", "User:a;bob", ":a"])
def test_super_users_must_be_given_as_type_and_name(text: str) -> None:
    with pytest.raises(ValueError, match="a type and a name"):
        parse_super_users(text)


# authorizeByResourceType


def test_write_access_to_any_topic_is_enough_for_an_idempotent_producer() -> None:
    assert authorizer(entry(WRITE, "any")).may_with_some(asker(), WRITE, TOPIC)
    assert not authorizer(entry(READ, "any")).may_with_some(asker(), WRITE, TOPIC)
    assert not authorizer(entry(WRITE, "any", principal="User:bob")).may_with_some(asker(), WRITE, TOPIC)
    assert authorizer(super_users=ALICE).may_with_some(asker(), WRITE, TOPIC)
    assert authorizer(allows_without_acl=True).may_with_some(asker(), WRITE, TOPIC)


def test_a_denied_wildcard_denies_the_check_for_any_topic() -> None:
    made = authorizer(entry(WRITE, "any"), entry(WRITE, "*", permission=DENY))
    assert not made.may_with_some(asker(), WRITE, TOPIC)


def test_an_allowed_topic_under_a_denied_prefix_does_not_pass_the_check_for_any_topic() -> None:
    under = authorizer(entry(WRITE, "any"), entry(WRITE, "an", pattern=PREFIXED, permission=DENY))
    assert not under.may_with_some(asker(), WRITE, TOPIC)
    beside = authorizer(entry(WRITE, "any", pattern=PREFIXED), entry(WRITE, "any", permission=DENY))
    assert beside.may_with_some(asker(), WRITE, TOPIC)
    equal = authorizer(entry(WRITE, "any"), entry(WRITE, "any", permission=DENY))
    assert not equal.may_with_some(asker(), WRITE, TOPIC)


# The log.


def test_denied_operations_are_logged_in_kafkas_format(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    made = authorizer()
    made.may(asker(), READ, TOPIC, "t")
    made.may(asker(), READ, TOPIC, "t", 3)
    made.may(asker(), READ, TOPIC, "t", quietly=True)
    first, second = caplog.messages
    assert first == (
        "Principal = User:alice is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny"
    )
    assert "resourceRefCount = 3" in second


def test_allowed_operations_are_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    made = authorizer(entry(WRITE, "x", kind=TRANSACTIONAL_ID), super_users="User:root")
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    made.may(asker(), WRITE, TRANSACTIONAL_ID, "x")
    made.may(asker("User:root"), WRITE, TRANSACTIONAL_ID, "x")
    by_entry, by_right = caplog.messages
    assert by_entry.endswith(
        "based on rule MatchingAcl(acl=StandardAcl(resourceType=TRANSACTIONAL_ID, resourceName=x, patternType=LITERAL, "
        "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW))"
    )
    assert by_right.endswith("based on rule SuperUser")


def test_names_in_authorizer_log_lines_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    authorizer().may(asker("User:a\nPrincipal = User:b"), READ, TOPIC, "t\x1b[2J\u2028\r")
    (line,) = caplog.messages
    assert line.isprintable()
    assert "User:a\\nPrincipal" in line
    assert "t\\x1b[2J\\u2028\\r" in line
