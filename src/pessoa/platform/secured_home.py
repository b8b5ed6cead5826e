"""The files of a secured cluster: its authority, the keys of its nodes, and the settings of each client and service.

    secure/                              0700, as every directory below it
      ca.crt                             the certificate of the authority; clients trust it
      ca.key                             its key, 0600, as every other file here
      broker-N.pem                       the key and the certificate of a node
      broker-N.properties                the settings of node N (security_plan.py)
      services/NAME.pem                  the key and the certificate of a service
      services/NAME.properties           the settings of a service
      clients/NAME/client.properties     for Java clients and `--command-config`: of admin, nodes, services and users
      clients/NAME/librdkafka.properties the same for confluent-kafka, kcat and the like
      clients/NAME/netrc                 the same for curl, towards the services

`secure_home` makes what is missing and keeps what is there: passwords above all, and certificates until they are soon
to end. Files that follow from others (addresses and paths are in them) are written anew. A home with an authority is a
secured one from then on; `pessoa up` starts it as such even without the option.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pessoa.base.properties import MalformedProperties, read_properties, render_settings
from pessoa.platform.home import HomeProblem
from pessoa.platform.private_files import PUBLIC_FILE, make_private_directory, write_private
from pessoa.platform.security_plan import (
    ADMIN,
    PLAIN,
    SCRAM,
    Login,
    broker_settings,
    client_settings,
    librdkafka_settings,
    login_at_registry,
    netrc_text,
    node_name,
    read_login,
    service_settings,
)
from pessoa.security.tls.authority import Authority, NotAnAuthority, is_due, is_signed_by

# By these names clients and nodes reach a platform on one machine.
HOSTS = ("localhost", "127.0.0.1", "::1")
REGISTRY = "https://localhost:8081"
_PASSWORD_BYTES = 32


class SecuredFiles(NamedTuple):
    """The paths of the files of a secured home."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def authority_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def clients(self) -> Path:
        return self.folder / "clients"

    def key_store(self, node_id: int) -> Path:
        return self.folder / f"{node_name(node_id)}.pem"

    def broker(self, node_id: int) -> Path:
        return self.folder / f"{node_name(node_id)}.properties"

    def service(self, name: str) -> Path:
        return self.folder / "services" / f"{name}.properties"

    def client(self, name: str) -> Path:
        return self.clients / name / "client.properties"

    def service_key_store(self, name: str) -> Path:
        return self.folder / "services" / f"{name}.pem"

    def librdkafka(self, name: str) -> Path:
        return self.clients / name / "librdkafka.properties"

    def netrc(self, name: str) -> Path:
        return self.clients / name / "netrc"


class Secured(NamedTuple):
    """The files and users of a secured home. `fresh` are the users whose passwords were made just now."""

    files: SecuredFiles
    users: tuple[Login, ...]
    fresh: frozenset[str]


def secured_files(home: Path) -> SecuredFiles:
    return SecuredFiles(home / "secure")


def is_secured(home: Path) -> bool:
    return secured_files(home).authority.exists()


def new_password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def secure_home(
    home: Path, brokers: int, services: Sequence[str], servers: str, now: datetime, registry: str = REGISTRY
) -> Secured:
    """Write the missing files of a secured cluster and return its users. Raises `HomeProblem` for files that cannot
    be used."""
    files = secured_files(home)
    try:
        for folder in (files.folder, files.clients, files.folder / "services"):
            make_private_directory(folder)
        _certify(files, brokers, services, now)
        nodes = [_login(files, node_name(node_id), PLAIN) for node_id in range(1, brokers + 1)]
        users = [_login(files, name, SCRAM) for name in (ADMIN, *services)]
        fresh = frozenset(one.name for one in users if not files.client(one.name).exists())
        for login in nodes:
            write_client(files.clients, login, client_settings(login, servers, files.authority))
        for login in users:
            write_client(files.clients, login, client_settings(login, servers, files.authority, registry))
        _address_others(files, (*nodes, *users), servers, registry)
        _write_settings(files, nodes, services)
    except OSError as failure:
        raise HomeProblem(f"{failure.filename or files.folder} cannot be used: {failure.strerror}.") from failure
    return Secured(files, tuple(users), fresh)


def _certify(files: SecuredFiles, brokers: int, services: Iterable[str], now: datetime) -> None:
    authority = _authority(files, now)
    stores = {node_name(node_id): files.key_store(node_id) for node_id in range(1, brokers + 1)}
    stores |= {name: files.service_key_store(name) for name in services}
    for name, path in stores.items():
        present = path.read_text(encoding="utf-8") if path.exists() else ""
        shown = present[max(present.find("-----BEGIN CERTIFICATE-----"), 0) :]
        if is_due(present, now) or not is_signed_by(shown, authority):
            write_private(path, authority.issue(name, HOSTS, now))
        path.chmod(0o600)


def _authority(files: SecuredFiles, now: datetime) -> Authority:
    if files.authority.exists():
        try:
            return Authority.from_pem(files.authority_key.read_text("utf-8"), files.authority.read_text("utf-8"))
        except (NotAnAuthority, FileNotFoundError, UnicodeDecodeError):
            raise HomeProblem(
                f"{files.authority} and {files.authority_key} are not a certificate authority. Restore them, or move"
                f" {files.folder} away for a new one: then every client needs its new files."
            ) from None
    authority = Authority.make(f"Pessoa cluster in {files.folder.parent.name}"[:64], now)
    # The certificate last: a home is secured if it has one.
    write_private(files.authority_key, authority.key_pem())
    write_private(files.authority, authority.certificate_pem(), PUBLIC_FILE)
    return authority


def _login(files: SecuredFiles, name: str, mechanism: str) -> Login:
    """Return the login from its client's properties file, or a new one with a new password."""
    path = files.client(name)
    present = read_login(_properties(path)) if path.exists() else None
    if present is None or (present.name, present.mechanism) != (name, mechanism):
        path.unlink(missing_ok=True)
        return Login(name, new_password(), mechanism)
    return present


def _properties(path: Path) -> dict[str, str]:
    try:
        return read_properties(path)
    except MalformedProperties:
        raise HomeProblem(f"{path} is damaged. Restore it, or remove it for a new one.") from None


def write_client(folder: Path, login: Login, settings: Mapping[str, str]) -> tuple[Path, Path]:
    """Write a client's settings for Java and for librdkafka into a directory of its own; return both paths."""
    own = folder / login.name
    make_private_directory(own)
    java, native = own / "client.properties", own / "librdkafka.properties"
    write_private(java, render_settings(settings, f"{login.name}: for Java clients and --command-config of the tools"))
    # librdkafka's programs read lines as they are, without escapes.
    lines = "".join(f"{key}={value}\n" for key, value in librdkafka_settings(settings, login).items())
    write_private(native, f"# {login.name}: for confluent-kafka, kcat and other clients with librdkafka\n{lines}")
    if "schema.registry.url" in settings:
        host = urlsplit(settings["schema.registry.url"]).hostname or ""
        write_private(own / "netrc", netrc_text(login, HOSTS[:2] if host in HOSTS else (host,)))
    return java, native


def _address_others(files: SecuredFiles, done: Iterable[Login], servers: str, registry: str) -> None:
    """Write the present addresses into the files of users that were added to the cluster."""
    names = {login.name for login in done}
    for path in sorted(files.clients.glob("*/client.properties")):
        settings = _properties(path) if path.parent.name not in names else {}
        login = read_login(settings)
        if login is not None and login.name == path.parent.name:
            present = {"bootstrap.servers": servers, **login_at_registry(login, registry, files.authority)}
            write_client(files.clients, login, {**settings, **present})


def _write_settings(files: SecuredFiles, nodes: Sequence[Login], services: Sequence[str]) -> None:
    for node_id, node in enumerate(nodes, start=1):
        settings = broker_settings(node, nodes, files.key_store(node_id), files.authority)
        write_private(files.broker(node_id), render_settings(settings, f"{node.name}: written at every start"))
    for name in services:
        client = _properties(files.client(name))
        settings = service_settings(name, client, files.service_key_store(name), files.authority)
        write_private(files.service(name), render_settings(settings, f"{name}: written at every start"))
