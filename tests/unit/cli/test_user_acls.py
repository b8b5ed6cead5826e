from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pessoa.cli.main import main
from pessoa.cli.user_acls import BadWish, Wish, entries_of, is_meant, rows_of
from pessoa.client.acl_admin import Entry, Operation, Pattern, PatternType, Permission, ResourceType

ORDERS = Pattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
BILLING = Pattern(ResourceType.GROUP, "billing", PatternType.LITERAL)


def operations(wish: Wish, permission: Permission = Permission.ALLOW) -> dict[Pattern, set[str]]:
    found = entries_of("ana", wish, permission)
    return {pattern: {entry.operation.name for entry in entries} for pattern, entries in found.items()}


def test_allowing_a_producer_creates_the_acls_of_kafka_acls_producer() -> None:
    wish = Wish(produce=True, topics=("orders",), transactional_ids=("t",))
    transactional_id = Pattern(ResourceType.TRANSACTIONAL_ID, "t", PatternType.LITERAL)
    assert operations(wish) == {ORDERS: {"WRITE", "DESCRIBE", "CREATE"}, transactional_id: {"WRITE", "DESCRIBE"}}


def test_allowing_a_consumer_creates_the_acls_of_kafka_acls_consumer() -> None:
    wish = Wish(consume=True, topics=("orders",), groups=("billing",))
    assert operations(wish) == {ORDERS: {"READ", "DESCRIBE"}, BILLING: {"READ"}}


def test_denying_producing_does_not_deny_consuming() -> None:
    both = Permission.DENY
    assert operations(Wish(produce=True, topics=("orders",)), both) == {ORDERS: {"WRITE"}}
    assert operations(Wish(consume=True, topics=("orders",)), both) == {ORDERS: {"READ"}}
    assert operations(Wish(topics=("orders",)), both) == {ORDERS: {"ALL"}}


def test_a_name_with_a_trailing_star_is_a_prefix_and_a_star_alone_matches_all() -> None:
    found = list(entries_of("ana", Wish(manage=True, topics=("shop-*", "*", "a*b")), Permission.ALLOW))
    assert [(one.name, one.pattern_type.name) for one in found] == [
        ("shop-", "PREFIXED"), ("*", "LITERAL"), ("a*b", "LITERAL"),
    ]  # fmt: skip


def test_the_principal_may_be_given_with_or_without_its_type() -> None:
    for name in ("ana", "User:ana"):
        (entries,) = entries_of(name, Wish(manage=True, topics=("orders",), host="10.0.0.1"), Permission.ALLOW).values()
        assert entries == [Entry("User:ana", "10.0.0.1", Operation.ALL, Permission.ALLOW)]


@pytest.mark.parametrize(
    ("wish", "hint"),
    [
        (Wish(produce=True), "--topic NAME"),
        (Wish(topics=("t",)), "--produce"),
        (Wish(consume=True, topics=("t",)), "--group NAME"),
        (Wish(produce=True, groups=("g",)), "--topic"),
    ],
)
def test_a_missing_argument_is_named_with_what_to_write(wish: Wish, hint: str) -> None:
    with pytest.raises(BadWish, match=hint):
        entries_of("ana", wish, Permission.ALLOW)


def test_removing_without_an_action_removes_all_acls_of_that_user_on_the_named_resources() -> None:
    wish = Wish(topics=("orders",))
    denied = Entry("User:ana", "*", Operation.WRITE, Permission.DENY)
    assert is_meant("ana", wish, ORDERS, denied)
    assert not is_meant("ana", wish, BILLING, denied)
    assert not is_meant("bob", wish, ORDERS, denied)


def test_removing_the_acls_of_a_consumer_needs_no_group() -> None:
    wish = Wish(consume=True, topics=("orders",))
    assert is_meant("ana", wish, ORDERS, Entry("User:ana", "*", Operation.READ, Permission.ALLOW))
    assert not is_meant("ana", wish, ORDERS, Entry("User:ana", "*", Operation.WRITE, Permission.ALLOW))
    assert not is_meant("ana", wish, ORDERS, Entry("User:bob", "*", Operation.READ, Permission.ALLOW))


def test_the_acls_of_a_user_on_a_resource_are_one_row_and_denials_come_first() -> None:
    entries = entries_of("ana", Wish(produce=True, consume=True, topics=("orders",), groups=("g*",)), Permission.ALLOW)
    found = [(pattern, entry) for pattern, each in entries.items() for entry in each]
    found.append((ORDERS, Entry("User:ana", "10.0.0.1", Operation.ALL, Permission.DENY)))
    assert rows_of(found) == [
        ("ana", "denied", "ALL", "topic orders", "10.0.0.1"),
        ("ana", "allowed", "READ, WRITE, CREATE, DESCRIBE", "topic orders", "*"),
        ("ana", "allowed", "READ", "group g*", "*"),
    ]


@pytest.mark.parametrize("words", [("users", "list"), ("users", "add", "ana"), ("acls", "list")])
def test_without_a_secured_cluster_the_commands_explain_how_to_create_one(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = CliRunner().invoke(main, words, env={"PESSOA_HOME": str(tmp_path)})
    assert done.exit_code == 1
    assert "pessoa up --secure" in done.output
    assert "--command-config" in done.output


@pytest.mark.parametrize("name", ["../x", "broker-1", "a b"])
def test_an_invalid_user_name_is_refused_before_the_cluster_is_contacted(name: str) -> None:
    done = CliRunner().invoke(main, ["users", "add", name])
    assert done.exit_code == 1
    assert "name" in done.output


def test_an_unknown_acl_operation_is_refused_with_the_list_of_operations() -> None:
    done = CliRunner().invoke(main, ["acls", "allow", "ana", "--operation", "fly", "--topic", "t"])
    assert done.exit_code == 2
    assert "DESCRIBE_CONFIGS" in done.output


@pytest.mark.parametrize("host", ["localhost", "10.0.0.0/8", "10.0.0", "10.0.0.*", ""])
def test_a_host_that_is_no_address_is_refused_with_what_to_write(host: str) -> None:
    done = CliRunner().invoke(main, ["acls", "allow", "ana", "--manage", "--topic", "t", "--host", host])
    assert done.exit_code == 2
    assert "address" in done.output
    assert "'*'" in done.output


@pytest.mark.parametrize("host", ["*", "10.0.0.1", "::1", "2001:db8::7", "fe80::1%eth0"])
def test_addresses_and_the_star_are_hosts(host: str, tmp_path: Path) -> None:
    words = ["acls", "allow", "ana", "--manage", "--topic", "t", "--host", host]
    done = CliRunner().invoke(main, words, env={"PESSOA_HOME": str(tmp_path)})
    assert "pessoa up --secure" in done.output, "the command line was understood"


@pytest.mark.parametrize("password", ["", " x", "pässword", "a\tb", "x" * 300])
def test_a_password_that_clients_would_read_differently_is_refused_and_not_shown(
    password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pessoa.cli import secured_cluster

    monkeypatch.setattr(secured_cluster, "admin_settings", lambda *_: {"bootstrap.servers": "127.0.0.1:1"})
    words = ["users", "add", "ana", "--password-stdin", "--folder", str(tmp_path)]
    done = CliRunner().invoke(main, words, input=f"{password}\n")
    assert done.exit_code == 1
    assert "The password" in done.output
    assert not password.strip() or password not in done.output
