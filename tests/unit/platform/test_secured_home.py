"""What `pessoa up --secure` writes into a home folder, and what it keeps at the next start."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pessoa.base.properties import read_properties
from pessoa.platform.home import HomeProblem
from pessoa.platform.private_files import write_private
from pessoa.platform.process_plan import plan
from pessoa.platform.secured_home import is_secured, secure_home, secured_files, write_client
from pessoa.platform.security_plan import (
    BadName,
    Login,
    check_user_name,
    client_settings,
    jaas_of,
    read_login,
    with_login,
)
from pessoa.security.sasl.jaas import parse_jaas

NOW = datetime.now(UTC)
SERVERS = "127.0.0.1:9092,127.0.0.1:29092"
SERVICES = ("schema-registry", "kafka-rest", "connect")


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def passwords(folder: Path) -> set[str]:
    found = set()
    for path in folder.rglob("librdkafka.properties"):
        found.add(read_properties(path)["sasl.password"])
    return found


def test_only_the_authority_certificate_is_readable_by_others(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        secured = secure_home(tmp_path, 3, SERVICES, SERVERS, NOW)
    finally:
        os.umask(old)
    modes = {path: path.stat().st_mode & 0o777 for path in (secured.files.folder, *secured.files.folder.rglob("*"))}
    assert modes.pop(secured.files.authority) == 0o644
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_the_permissions_of_directories_and_keys_that_others_could_read_are_tightened(tmp_path: Path) -> None:
    files = secure_home(tmp_path, 1, (), SERVERS, NOW).files
    files.folder.chmod(0o755)
    files.key_store(1).chmod(0o644)
    secure_home(tmp_path, 1, (), SERVERS, NOW)
    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert files.key_store(1).stat().st_mode & 0o777 == 0o600


def test_securing_a_home_again_changes_nothing(tmp_path: Path) -> None:
    first = secure_home(tmp_path, 3, SERVICES, SERVERS, NOW)
    before = contents(first.files.folder)
    second = secure_home(tmp_path, 3, SERVICES, SERVERS, NOW + timedelta(days=1))
    assert contents(first.files.folder) == before
    assert first.fresh == {"admin", *SERVICES}
    assert not second.fresh


def test_every_login_has_its_own_random_password(tmp_path: Path) -> None:
    found = passwords(secure_home(tmp_path, 3, SERVICES, SERVERS, NOW).files.folder)
    assert len(found) == 3 + 1 + len(SERVICES)
    assert min(map(len, found)) >= 40


def test_a_certificate_that_expires_soon_is_replaced_and_the_authority_is_kept(tmp_path: Path) -> None:
    files = secure_home(tmp_path, 2, (), SERVERS, NOW).files
    before = contents(files.folder)
    secure_home(tmp_path, 2, (), SERVERS, NOW + timedelta(days=800))
    after = contents(files.folder)
    assert {name for name in after if after[name] != before[name]} == {"broker-1.pem", "broker-2.pem"}


def test_a_login_whose_file_was_lost_is_created_again_and_reported(tmp_path: Path) -> None:
    files = secure_home(tmp_path, 1, (), SERVERS, NOW).files
    before = files.client("admin").read_text()
    files.client("admin").unlink()
    assert secure_home(tmp_path, 1, (), SERVERS, NOW).fresh == {"admin"}
    assert files.client("admin").read_text() != before


def test_changed_ports_are_written_to_the_files_of_every_user(tmp_path: Path) -> None:
    files = secure_home(tmp_path, 1, (), SERVERS, NOW).files
    ana = Login("ana", 'p"a\\ss')
    write_client(files.clients, ana, client_settings(ana, SERVERS, files.authority))
    secure_home(tmp_path, 1, (), "127.0.0.1:1", NOW)
    for name in ("admin", "ana"):
        assert read_properties(files.client(name))["bootstrap.servers"] == "127.0.0.1:1"
        assert "bootstrap.servers=127.0.0.1:1\n" in files.librdkafka(name).read_text()
    assert read_login(read_properties(files.client("ana"))) == ana


def test_an_authority_without_its_key_is_an_error_that_explains_what_to_do(tmp_path: Path) -> None:
    files = secure_home(tmp_path, 1, (), SERVERS, NOW).files
    files.authority_key.unlink()
    with pytest.raises(HomeProblem, match="Restore them, or move"):
        secure_home(tmp_path, 1, (), SERVERS, NOW)


def test_a_home_is_secured_once_it_has_an_authority(tmp_path: Path) -> None:
    assert not is_secured(tmp_path)
    secure_home(tmp_path, 1, (), SERVERS, NOW)
    assert is_secured(tmp_path)


def test_passwords_and_keys_are_not_on_any_command_line(tmp_path: Path) -> None:
    files = secure_home(tmp_path, 3, SERVICES, SERVERS, NOW).files
    words = "\n".join(word for row in plan(tmp_path, "c", 3, SERVICES, secured=files) for word in row.command)
    assert str(files.broker(2)) in words
    assert str(files.service("kafka-rest")) in words
    assert not [password for password in passwords(files.folder) if password in words]
    assert "PLAINTEXT" not in words


def test_every_listener_of_a_secured_plan_uses_tls_and_sasl(tmp_path: Path) -> None:
    for row in plan(tmp_path, "c", 3, [], secured=secured_files(tmp_path)):
        settings = dict(word.split("=", 1) for word in row.command if "=" in word)
        names = [one.split("://")[0] for one in settings["listeners"].split(",")]
        protocols = dict(one.split(":") for one in settings["listener.security.protocol.map"].split(","))
        assert [protocols[name] for name in names] == ["SASL_SSL"] * 3


def test_services_get_the_client_settings_under_their_own_prefixes(tmp_path: Path) -> None:
    files = secure_home(tmp_path, 1, SERVICES, SERVERS, NOW).files
    for name, key in (
        ("schema-registry", "kafkastore.sasl.jaas.config"),
        ("kafka-rest", "client.sasl.jaas.config"),
        ("connect", "sasl.jaas.config"),
    ):
        jaas = read_properties(files.service(name))[key]
        assert parse_jaas(jaas, "SCRAM-SHA-512").username == name


@pytest.mark.parametrize("password", ["plain", 'with "quotes"', "back\\slash", "semi;colon", "a=b#c"])
def test_a_password_survives_being_written_to_a_properties_file(password: str, tmp_path: Path) -> None:
    login = Login("ana", password)
    write_client(tmp_path, login, client_settings(login, SERVERS, tmp_path / "ca.crt"))
    assert read_login(read_properties(tmp_path / "ana" / "client.properties")) == login
    assert f"sasl.password={password}\n" in (tmp_path / "ana" / "librdkafka.properties").read_text()


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", ".hidden", "broker-1", "a b", "a\nb", 'a"b', "x" * 129])
def test_user_names_that_are_paths_or_node_names_are_refused(name: str) -> None:
    with pytest.raises(BadName):
        check_user_name(name)


@pytest.mark.parametrize("name", ["ana", "ana@example.org", "service-1", "a.b_c", "broker-x"])
def test_ordinary_user_names_are_accepted(name: str) -> None:
    check_user_name(name)


def test_repr_of_a_login_shows_no_password() -> None:
    assert "secret" not in repr(Login("ana", "secret"))
    assert "secret" in jaas_of(Login("ana", "secret"))


def test_a_new_user_gets_only_the_connection_settings_of_the_administrator() -> None:
    way = {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": "/t",
        "ssl.truststore.certificates": "PEM",
        "ssl.truststore.password": "changeit",
        "ssl.endpoint.identification.algorithm": "",
    }
    own = {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "secret of admin",
        "producer.sasl.jaas.config": "secret of admin",
        "ssl.keystore.key": "secret of admin",
        "ssl.keystore.location": "/admin.p12",
        "ssl.key.password": "secret of admin",
        "client.id": "admin",
    }
    login = Login("ana", "hers")
    made = with_login({**way, **own}, login)
    assert made == {**way, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas_of(login)}


def test_a_private_file_is_not_written_through_a_symbolic_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / "file.new").symlink_to(target)
    write_private(tmp_path / "file", "secret")
    assert target.read_text() == "untouched"
    assert (tmp_path / "file").read_text() == "secret"
