"""The ACLs that an application needs, derived from its kind and the names of its resources."""

from __future__ import annotations

import pytest

from pessoa.control_center.acl_recipes import Acl, BadRecipe, acls_for


def brief(found: list[Acl]) -> list[str]:
    return [
        f"{pattern.kind.name} {pattern.pattern_type.name} {pattern.name} {entry.operation.name}"
        for pattern, entry in found
    ]


def test_a_producer_may_write_its_topics_and_a_star_ends_a_prefix() -> None:
    found = acls_for("producer", "User:shop", "orders, click*", "")
    assert brief(found) == [
        "TOPIC LITERAL orders WRITE", "TOPIC LITERAL orders DESCRIBE",
        "TOPIC PREFIXED click WRITE", "TOPIC PREFIXED click DESCRIBE",
    ]  # fmt: skip
    assert {entry.principal for _, entry in found} == {"User:shop"}


def test_a_consumer_may_read_its_topics_as_a_member_of_its_group() -> None:
    assert brief(acls_for("consumer", "User:shop", "*", "billing")) == [
        "TOPIC LITERAL * READ", "TOPIC LITERAL * DESCRIBE",
        "GROUP LITERAL billing READ", "GROUP LITERAL billing DESCRIBE",
    ]  # fmt: skip


def test_the_acls_of_a_streams_application_cover_all_resources_with_its_application_id_as_prefix() -> None:
    found = brief(acls_for("streams", "User:shop", "orders", "totals", "sums"))
    assert "TOPIC PREFIXED totals ALL" in found
    assert "TRANSACTIONAL_ID PREFIXED totals WRITE" in found
    assert "TOPIC LITERAL sums WRITE" in found
    assert "TOPIC LITERAL orders READ" in found


@pytest.mark.parametrize(
    ("kind", "principal", "topics", "group", "told"),
    [
        ("producer", "shop", "orders", "", "User:name"),
        ("producer", "User:", "orders", "", "User:name"),
        ("producer", "User:shop", " , ", "", "Name a topic"),
        ("consumer", "User:shop", "orders", " ", "needs its group"),
        ("admin", "User:shop", "orders", "", "producer, consumer, streams"),
    ],
)
def test_an_acl_recipe_with_a_missing_field_names_it(
    kind: str, principal: str, topics: str, group: str, told: str
) -> None:
    with pytest.raises(BadRecipe, match=told):
        acls_for(kind, principal, topics, group)
