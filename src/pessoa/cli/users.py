"""`pessoa users`: the users that may log in to a running cluster with SCRAM.

A new user gets a random password, or the one on standard input, and a directory with its settings: client.properties
for Java clients and the tools, librdkafka.properties for the others. Passwords are never on a command line, and never
printed. A user that is removed loses its access control lists as well: another one of that name must not inherit them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pessoa.cli.secured_cluster import connection_options

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster

EPILOG = """\b
Examples:
  pessoa users add ana                            a random password; says where ana's files are
  pessoa users add ana --password-stdin           the password is the first line of standard input
  pessoa users add ana --replace                  another password for ana
  pessoa users list                               who there is, and how they log in
  pessoa users remove ana                         with the access control lists of ana
"""
LONGEST_PASSWORD = 256


@click.group(
    help="Add, remove and list the users of a secured cluster.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def users() -> None:
    pass


@users.command(help="Add a user, and write the files with its settings.", epilog=EPILOG)
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--replace", is_flag=True, help="Give a user that exists another password.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to write; default: the home.")
@connection_options
def add(
    name: str, password_stdin: bool, replace: bool, folder: Path | None, servers: str | None, config: Path | None
) -> None:
    from pessoa.base.home_folder import pessoa_home
    from pessoa.cli.secured_cluster import admin_settings, reach
    from pessoa.client.quota_admin import describe_credentials
    from pessoa.platform.first_access import set_password
    from pessoa.platform.secured_home import new_password, secured_files, write_client
    from pessoa.platform.security_plan import Login, with_login

    _check_name(name)
    settings = admin_settings(servers, config)
    target = folder or (secured_files(pessoa_home()).clients if config is None else Path())
    if not target.is_dir():
        raise click.ClickException(f"{target} is no directory; make it, or name another one with --folder.")
    login = Login(name, _password_from_stdin() if password_stdin else new_password())
    with reach(settings) as cluster:
        if not replace and describe_credentials(cluster, [name]):
            raise click.ClickException(f"{name} exists already; --replace gives it another password.")
        set_password(cluster, login)
    try:
        java, native = write_client(target, login, with_login(settings, login))
    except OSError as problem:
        raise click.ClickException(
            f"{name} was added, but {target / name} cannot be written: {problem.strerror}. With --replace and --folder"
            " it gets another password, and a file elsewhere."
        ) from None
    click.echo(f"User:{name} can log in, and may do nothing until it is allowed: pessoa acls allow {name} --help")
    click.echo(f"  for --command-config and Java   {java}")
    click.echo(f"  for Python and kcat             {native}")


@users.command(help="Remove a user with its access control lists and its files.", epilog=EPILOG)
@click.argument("name")
@click.option("--keep-acls", is_flag=True, help="Leave the access control lists, for another user of that name.")
@connection_options
def remove(name: str, keep_acls: bool, servers: str | None, config: Path | None) -> None:
    from pessoa.cli.secured_cluster import admin_settings, reach
    from pessoa.client.quota_admin import alter_credentials, describe_credentials
    from pessoa.platform.security_plan import ADMIN

    if name == ADMIN and config is None:
        raise click.ClickException(
            "admin is who these commands log in as; pessoa users add admin --replace gives it another password."
        )
    settings = admin_settings(servers, config)
    with reach(settings) as cluster:
        found = describe_credentials(cluster, [name]).get(name)
        if not found:
            raise click.ClickException(f"There is no user called {name}; `pessoa users list` shows who there is.")
        alter_credentials(cluster, name, [], [mechanism for mechanism, _ in found])
        count = 0 if keep_acls else _remove_acls(cluster, name)
    if config is None:
        _remove_files(name)
    lists = f" and {count} access control entries of it" if count else ""
    click.echo(f"Removed User:{name}{lists}. Connections that it has open stay until they end.")


@users.command("list", help="List who can log in with SCRAM.", epilog=EPILOG)
@connection_options
def list_(servers: str | None, config: Path | None) -> None:
    from pessoa.base.home_folder import pessoa_home
    from pessoa.cli.secured_cluster import admin_settings, reach
    from pessoa.client.quota_admin import describe_credentials
    from pessoa.platform.report import table_for_here
    from pessoa.platform.secured_home import secured_files

    with reach(admin_settings(servers, config)) as cluster:
        found = describe_credentials(cluster, None)
    files = secured_files(pessoa_home())
    rows = []
    for name, credentials in sorted(found.items()):
        file = files.client(name) if config is None else None
        shown = str(file) if file is not None and file.exists() else "-"
        mechanisms = ", ".join(f"{mechanism.text} ({iterations})" for mechanism, iterations in sorted(credentials))
        rows.append((name, mechanisms, shown))
    click.echo(table_for_here(rows, ("user", "logs in with", "settings")))


def _check_name(name: str) -> None:
    from pessoa.platform.security_plan import BadName, check_user_name

    try:
        check_user_name(name)
    except BadName as problem:
        raise click.ClickException(str(problem)) from None


def _password_from_stdin() -> str:
    """Return the first line of standard input, without its line end; on a terminal it is prompted for twice."""
    if sys.stdin.isatty():
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password or password != password.strip() or not (password.isascii() and password.isprintable()):
        raise click.ClickException(
            "The password must be printable ASCII, without spaces at its ends: clients encode others differently."
        )
    if len(password) > LONGEST_PASSWORD:
        raise click.ClickException(f"The password is longer than {LONGEST_PASSWORD} characters.")
    return password


def _remove_acls(cluster: Cluster, name: str) -> int:
    """Delete every ACL entry of a user; return how many there were."""
    from pessoa.client.acl_admin import delete_acls, describe_acls

    own = [(pattern, entry) for pattern, entry in describe_acls(cluster) if entry.principal == f"User:{name}"]
    for pattern, entry in own:
        delete_acls(cluster, pattern, [entry])
    return len(own)


def _remove_files(name: str) -> None:
    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.secured_home import secured_files
    from pessoa.platform.security_plan import BadName, check_user_name

    try:
        check_user_name(name)
    except BadName:
        return  # a user of such a name was made by another tool, and has no files here
    files = secured_files(pessoa_home())
    for path in (files.client(name), files.librdkafka(name), files.netrc(name)):
        path.unlink(missing_ok=True)
    folder = files.client(name).parent
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
