"""The authorizer, compared with a simple model that looks at every ACL for every decision."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pessoa.base.ids import Uuid
from pessoa.metadata.table_images import Acl
from pessoa.security.acl import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from pessoa.security.authorizer import Authorizer
from pessoa.wire.request_context import RequestContext

OPERATIONS = [ALL, READ, WRITE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]
PRINCIPALS = ["User:a", "User:b", "User:*"]
HOSTS = ["10.0.0.1", "::1", "*"]
NAMES = st.text("ab", min_size=1, max_size=3)

entries = st.builds(
    Acl,
    st.sampled_from([int(TOPIC), int(GROUP)]),
    NAMES | st.just("*"),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from([int(one) for one in OPERATIONS]),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
questions = st.tuples(
    st.sampled_from(["User:a", "User:b", "User:c"]),
    st.sampled_from(["10.0.0.1", "::ffff:10.0.0.1", "0:0:0:0:0:0:0:1", "10.0.0.2"]),
    st.sampled_from(OPERATIONS[1:]),
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
)
PLAIN_HOST = {"::ffff:10.0.0.1": "10.0.0.1", "0:0:0:0:0:0:0:1": "::1"}


def is_under(acl: Acl, kind: int, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (PLAIN_HOST.get(host, host), "*")


def grants(acl: Acl, operation: int) -> bool:
    if acl.permission_type == DENY or acl.operation in (ALL, operation):
        return acl.operation in (ALL, operation)
    if operation == DESCRIBE:
        return acl.operation in (READ, WRITE, DELETE, ALTER)
    return operation == DESCRIBE_CONFIGS and acl.operation == ALTER_CONFIGS


def expected(acls: list[Acl], allows: bool, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
    if principal == "User:c":
        return True
    under = [acl for acl in acls if is_under(acl, kind, name)]
    if not under:
        return allows
    found = {acl.permission_type for acl in under if is_about(acl, principal, host) and grants(acl, operation)}
    return found == {ALLOW}


def expected_with_some(acls: list[Acl], allows: bool, principal: str, host: str, operation: int, kind: int) -> bool:
    """Return Kafka's decision for "any resource": patterns are compared with patterns, after a check of one made-up
    name."""
    if expected(acls, allows, principal, host, operation, kind, "hardcode"):
        return True
    mine = [
        acl
        for acl in acls
        if acl.resource_type == kind and is_about(acl, principal, host) and acl.operation in (operation, ALL)
    ]
    denied = [acl for acl in mine if acl.permission_type == DENY]
    allowed = [acl for acl in mine if acl.permission_type == ALLOW]
    if any(acl.pattern_type == LITERAL and acl.resource_name == "*" for acl in denied):
        return False
    for acl in allowed:
        if acl.pattern_type == LITERAL and acl.resource_name == "*":
            return True
        dominated = any(
            acl.resource_name.startswith(other.resource_name)
            if other.pattern_type == PREFIXED
            else acl.pattern_type == LITERAL and acl.resource_name == other.resource_name
            for other in denied
        )
        if not dominated:
            return True
    return False


@given(st.lists(st.lists(entries, max_size=8), min_size=1, max_size=3), st.lists(questions, min_size=1), st.booleans())
def test_the_authorizer_decides_as_a_simple_model_of_the_rules(
    generations: list[list[Acl]], asked: list[tuple[str, str, int, int, str]], allows: bool
) -> None:
    authorizer = Authorizer(frozenset({"User:c"}), allows_without_acl=allows)
    for acls in generations:
        authorizer.load({Uuid(number.to_bytes(16)): acl for number, acl in enumerate(acls)})
        # Each twice: the second verdict is a remembered one.
        for principal, host, operation, kind, name in asked * 2:
            context = RequestContext(1, 0, 1, "client", host, 1, principal=principal)
            question = (principal, host, operation, kind, name)
            assert authorizer.may(context, operation, kind, name) is expected(acls, allows, *question)  # type: ignore[arg-type]
            some = authorizer.may_with_some(context, operation, kind)  # type: ignore[arg-type]
            assert some is expected_with_some(acls, allows, *question[:-1])
