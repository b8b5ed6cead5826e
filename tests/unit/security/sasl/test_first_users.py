"""`--add-scram`: the users with which a cluster is formatted."""

from __future__ import annotations

import base64
import hashlib

import pytest

from pessoa.security.sasl.first_users import BadFirstUser, parse_first_users
from pessoa.security.sasl.scram_keys import keys_of_password


def octets(count: int) -> bytes:
    return b"\x05" * count


def test_a_scram_user_given_by_password_gets_a_salt() -> None:
    (record,) = parse_first_users(["SCRAM-SHA-512=[name=alice,password=alice-secret,iterations=8192]"], octets)
    keys = keys_of_password("SCRAM-SHA-512", "alice-secret", record.salt, 8192)
    assert (record.name, record.mechanism, record.iterations) == ("alice", 2, 8192)
    assert (record.stored_key, record.server_key) == (keys.stored_key, keys.server_key)
    assert record.salt.isalnum()


def test_a_scram_user_given_by_salted_password_needs_its_salt() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"alice-secret", b"salt", 4096)
    text = (
        f'name="alice",salt="{base64.b64encode(b"salt").decode()}",saltedpassword="{base64.b64encode(salted).decode()}"'
    )
    (record,) = parse_first_users([f"SCRAM-SHA-256=[{text}]"], octets)
    assert record.stored_key == keys_of_password("SCRAM-SHA-256", "alice-secret", b"salt", 4096).stored_key


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        ("alice:secret", "is written"),
        ("SCRAM-SHA-1=[name=a,password=hunter2]", "not supported"),
        ("SCRAM-SHA-256=[password=hunter2]", "supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "supply one of"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,saltedpassword=aGk=]", "supply one of"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=aGk=]", "supply 'salt'"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,salt=?]", "must be base64"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=1]", "must be from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=1000000000]", "must be from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,colour=red]", "may stand in the brackets"),
        ('SCRAM-SHA-256=[name=a,password=""]', "must not be empty"),
    ],
)
def test_an_error_in_a_scram_user_is_reported_without_the_password(argument: str, why: str) -> None:
    with pytest.raises(BadFirstUser, match=why) as raised:
        parse_first_users([argument], octets)
    assert "hunter2" not in str(raised.value)


def test_a_user_is_named_once_for_each_mechanism() -> None:
    one, other = "SCRAM-SHA-256=[name=a,password=b]", "SCRAM-SHA-512=[name=a,password=b]"
    assert len(parse_first_users([one, other], octets)) == 2
    with pytest.raises(BadFirstUser, match="twice"):
        parse_first_users([one, other, one], octets)
