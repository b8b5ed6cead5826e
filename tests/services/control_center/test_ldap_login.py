"""Logging in to the control centre with the users of a real OpenLDAP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.base.config_values import ConfigProblem
from pessoa.client.blocking_connection import ConnectionFailed
from pessoa.control_center.center import Center
from pessoa.control_center.center_config import from_properties
from pessoa.control_center.ldap_login import LdapDirectory, LdapSettings, elements, escaped, integer, octets, tlv
from pessoa.web.problems import HttpProblem
from tests.browser.center_process import ControlCenter
from tests.support.certificates import Authority
from tests.support.ldap_directory import SUFFIX, ldap_directory

PEOPLE, GROUPS = f"ou=people,{SUFFIX}", f"ou=groups,{SUFFIX}"
BY_PATTERN = {"user_dn": f"uid={{name}},{PEOPLE}"}
BY_SEARCH = {"search_base": PEOPLE, "bind_dn": f"cn=admin,{SUFFIX}", "bind_password": "admin"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ldap_directory(tmp_path_factory.mktemp("ldap")) as found:
        yield found


@pytest.mark.parametrize("way", [BY_PATTERN, BY_SEARCH], ids=["by pattern", "by search"])
def test_an_ldap_user_logs_in_with_the_password_and_gets_the_role_of_a_group(url: str, way: dict[str, str]) -> None:
    settings = LdapSettings(url, groups_base=GROUPS, admin_groups=("operators",), **way)  # type: ignore[arg-type]
    directory = LdapDirectory(settings, ssl.create_default_context)
    assert directory.log_in("ada", "secret") == 0
    assert directory.role_of("ada") == "admin"
    assert directory.log_in("ruy", "também secreto") == 0
    assert directory.role_of("ruy") is None
    for name, password in (("ada", "wrong"), ("nobody", "secret"), ("", "secret"), ("*", "secret"),
                           (f"ada,{PEOPLE}", "secret"), ("ada)(uid=*", "secret")):  # fmt: skip
        assert directory.log_in(name, password) is None


def test_an_empty_password_is_refused_although_the_directory_accepts_it_as_an_anonymous_bind(url: str) -> None:
    directory = LdapDirectory(LdapSettings(url, **BY_PATTERN), ssl.create_default_context)  # type: ignore[arg-type]
    assert directory.log_in("ada", "") is None


def test_an_unreachable_ldap_directory_or_a_refused_bind_user_is_a_failed_connection(url: str) -> None:
    away = LdapDirectory(LdapSettings("ldap://127.0.0.1:1", **BY_PATTERN), ssl.create_default_context)  # type: ignore[arg-type]
    with pytest.raises(ConnectionFailed, match="does not answer"):
        away.log_in("ada", "secret")
    wrong = LdapSettings(url, search_base=PEOPLE, bind_dn=f"cn=admin,{SUFFIX}", bind_password="old")
    with pytest.raises(ConnectionFailed, match="refuses"):
        LdapDirectory(wrong, ssl.create_default_context).log_in("ada", "secret")


def test_an_ldap_login_creates_a_session_with_the_role_of_the_groups(url: str) -> None:
    prefix = "pessoa.control.center.ldap"
    config = from_properties({
        f"{prefix}.url": url, f"{prefix}.user.dn": BY_PATTERN["user_dn"], f"{prefix}.groups.base": GROUPS,
        f"{prefix}.editor.groups": "operators", "pessoa.control.center.role": "reader",
    })  # fmt: skip

    async def act() -> None:
        center = Center(config)
        token = await center.accounts.log_in("ada", "secret")
        assert center.accounts.by_cookie(token) == ("ada", "editor")
        assert center.accounts.by_cookie(await center.accounts.log_in("ruy", "também secreto")) == ("ruy", "reader")
        with pytest.raises(HttpProblem) as refused:
            await center.accounts.log_in("ada", "wrong")
        assert refused.value.status == 401
        assert center.authenticator is not None
        center.authenticator.close()
        await asyncio.to_thread(center.link.close)

    asyncio.run(act())


def test_ldaps_trusts_only_the_certificate_authority_of_the_settings(tmp_path: Path) -> None:
    authority = Authority("directories")
    trusted = authority.write(tmp_path / "authority.pem")
    prefix = "pessoa.control.center.ldap"
    with ldap_directory(tmp_path, authority.issue(tmp_path / "slapd.pem", "directory")) as secure:
        settings = LdapSettings(secure, **BY_PATTERN)  # type: ignore[arg-type]
        with pytest.raises(ConnectionFailed, match="certificate"):
            LdapDirectory(settings, ssl.create_default_context).log_in("ada", "secret")
        with ControlCenter(
            tmp_path / "center.log", "127.0.0.1:1", "", f"{prefix}.url={secure}",
            f"{prefix}.user.dn={BY_PATTERN['user_dn']}", f"ssl.truststore.location={trusted}",
        ) as center:  # fmt: skip
            wrong = httpx.post(f"{center.url}/login", data={"name": "ada", "password": "guess"})
            assert wrong.status_code == 401
            entered = httpx.post(f"{center.url}/login?next=/audit", data={"name": "ada", "password": "secret"})
            assert (entered.status_code, entered.headers["location"]) == (303, "/audit")
            assert "ada" in httpx.get(f"{center.url}/audit", cookies=entered.cookies).text


def test_ldap_settings_that_cannot_work_are_refused() -> None:
    prefix = "pessoa.control.center.ldap"
    with pytest.raises(ConfigProblem, match="ldaps://host"):
        from_properties({f"{prefix}.url": "http://directory", f"{prefix}.user.dn": "uid={name}"})
    with pytest.raises(ConfigProblem, match="where the user's name stands"):
        from_properties({f"{prefix}.url": "ldap://directory", f"{prefix}.user.dn": "uid=ada"})
    with pytest.raises(ConfigProblem, match="already checked"):
        from_properties({f"{prefix}.url": "ldap://directory", f"{prefix}.user.dn": "uid={name}",
                         "pessoa.authentication.users.file": "/users"})  # fmt: skip


@given(st.text())
def test_an_escaped_name_has_no_special_character_of_a_distinguished_name(name: str) -> None:
    assert not set(escaped(name)) & set(',+"<>;=# \x00')


@given(st.lists(st.tuples(st.sampled_from([0x02, 0x04, 0x30]), st.binary(max_size=400))), st.integers(0, 2**31))
def test_ber_elements_are_decoded_as_they_were_encoded(pairs: list[tuple[int, bytes]], number: int) -> None:
    data = b"".join(tlv(tag, value) for tag, value in pairs) + integer(number) + octets("é")
    found = list(elements(data))
    assert found[:-2] == pairs
    assert int.from_bytes(found[-2][1], "big", signed=True) == number
    assert found[-1][1].decode() == "é"
