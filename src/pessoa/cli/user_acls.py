"""`pessoa acls`: which user may do what, in everyday words. `kafka-acls` does the same with Kafka's operations.

    --produce --topic T             WRITE, CREATE and DESCRIBE on the topic, as `kafka-acls --producer`
    --consume --topic T --group G   READ and DESCRIBE on the topic, READ on the group, as `kafka-acls --consumer`
    --manage                        everything on what is named
    --operation READ                one of Kafka's operations by its name

A name that ends in * stands for all that begin so; * alone for all. A deny wins over every allow. What is denied by
--produce is WRITE, and by --consume READ: DESCRIBE belongs to both.

What a command line means is decided without a cluster (`entries_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from pessoa.cli.secured_cluster import connection_options
from pessoa.client.acl_admin import Entry, Operation, Pattern, PatternType, Permission, ResourceType

F = TypeVar("F", bound=Callable[..., object])

EPILOG = """\b
Examples:
  pessoa acls allow ana --produce --topic orders
  pessoa acls allow ana --consume --topic orders --group billing
  pessoa acls allow ana --consume --topic 'shop-*' --group 'ana-*'    all topics that begin with shop-
  pessoa acls allow ana --manage --topic ana-test                     also delete it and change its settings
  pessoa acls allow ana --produce --topic orders --transactional-id ana-1
  pessoa acls deny ana --consume --topic salaries                     wins over every allow
  pessoa acls list ana
  pessoa acls remove ana --produce --topic orders
  pessoa acls remove ana --everything
"""
_CLUSTER = Pattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = [one.name for one in Operation if one is not Operation.ANY]
_WHAT = "Say what it is about: --topic NAME, --group NAME, --transactional-id NAME or --cluster."
_HEADINGS = ("user", "is", "operations", "on", "from")


class Wish(NamedTuple):
    """The parsed options of an `acls` command."""

    produce: bool = False
    consume: bool = False
    manage: bool = False
    operations: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    cluster: bool = False
    host: str = "*"

    @property
    def patterns(self) -> list[Pattern]:
        named = zip(_KINDS, (self.topics, self.groups, self.transactional_ids), strict=True)
        found = [_pattern(_KINDS[kind], name) for kind, names in named for name in names]
        return [*found, _CLUSTER] if self.cluster else found

    @property
    def says_what(self) -> bool:
        return bool(self.produce or self.consume or self.manage or self.operations)


class BadWish(ValueError):
    """The command line lacks an option; the sentence says what to write."""


def _pattern(kind: ResourceType, name: str) -> Pattern:
    if name != "*" and name.endswith("*"):
        return Pattern(kind, name[:-1], PatternType.PREFIXED)
    return Pattern(kind, name, PatternType.LITERAL)


def principal_of(user: str) -> str:
    return user if user.startswith("User:") else f"User:{user}"


def entries_of(user: str, wish: Wish, permission: Permission) -> dict[Pattern, list[Entry]]:
    """Return the ACL entries that the options describe; raises a `BadWish`."""
    _check(wish, permission)
    return _entries(user, wish, permission)


def is_meant(user: str, wish: Wish, pattern: Pattern, entry: Entry) -> bool:
    """Whether an ACL entry is to be removed: without operations, every entry of the user on the named resources is."""
    if not wish.says_what:
        return entry.principal == principal_of(user) and pattern in wish.patterns
    return entry in _entries(user, wish, entry.permission).get(pattern, ())


def _entries(user: str, wish: Wish, permission: Permission) -> dict[Pattern, list[Entry]]:
    found: dict[Pattern, list[Entry]] = {}
    for pattern in wish.patterns:
        operations = list(dict.fromkeys(_operations(wish, pattern.kind, permission)))
        if operations:
            found[pattern] = [Entry(principal_of(user), wish.host, one, permission) for one in operations]
    return found


def _check(wish: Wish, permission: Permission) -> None:
    if not wish.patterns:
        raise BadWish(_WHAT)
    if not wish.says_what and permission is Permission.ALLOW:
        raise BadWish("Say what is allowed: --produce, --consume, --manage or --operation NAME.")
    if (wish.produce or wish.consume) and not wish.topics:
        raise BadWish("Say which topic: --topic NAME, or --topic '*' for all.")
    if wish.consume and not wish.groups and permission is Permission.ALLOW:
        raise BadWish("A consumer needs its group as well: --group NAME, or --group '*' for any.")
    if not _is_host(wish.host):
        raise BadWish(
            f"{wish.host!r} is no IP address, and would match no connection: --host ADDRESS, once for each command, or"
            " --host '*' for any. Brokers compare addresses; names and networks are not looked up."
        )


def _is_host(text: str) -> bool:
    """Whether the text can be the host of a new entry: an IP address or `*`."""
    try:
        ip_address(text)
    except ValueError:
        return text == "*"
    return True


def _operations(wish: Wish, kind: ResourceType, permission: Permission) -> Iterator[Operation]:
    """Yield the operations that are allowed or denied on a resource of this kind."""
    is_allowed = permission is Permission.ALLOW
    if wish.manage or not wish.says_what:
        yield Operation.ALL
    if wish.produce and kind in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID):
        yield Operation.WRITE
        if is_allowed:
            yield Operation.DESCRIBE
        if is_allowed and kind is ResourceType.TOPIC:
            yield Operation.CREATE
    if wish.consume and kind in (ResourceType.TOPIC, ResourceType.GROUP):
        yield Operation.READ
        if is_allowed and kind is ResourceType.TOPIC:
            yield Operation.DESCRIBE
    yield from (Operation[name.upper().replace("-", "_")] for name in wish.operations)


def rows_of(found: Sequence[tuple[Pattern, Entry]]) -> list[tuple[str, ...]]:
    """Return the rows of a table: one for all entries of a user on a resource with the same permission and host, in
    order."""
    together: dict[tuple[str, str, str, str], list[str]] = {}
    for pattern, entry in sorted(found, key=_order):
        may = "allowed" if entry.permission is Permission.ALLOW else "denied"
        user = entry.principal.removeprefix("User:")
        together.setdefault((user, may, _pattern_text(pattern), entry.host), []).append(entry.operation.name)
    return [(user, may, ", ".join(operations), on, host) for (user, may, on, host), operations in together.items()]


def _order(one: tuple[Pattern, Entry]) -> tuple[str, int, int, str, int, str, int]:
    pattern, entry = one
    return (
        entry.principal,
        entry.permission,
        pattern.kind,
        pattern.name or "",
        pattern.pattern_type,
        entry.host,
        entry.operation,
    )


def _pattern_text(pattern: Pattern) -> str:
    if pattern.kind is ResourceType.CLUSTER:
        return "the cluster"
    end = "*" if pattern.pattern_type is PatternType.PREFIXED else ""
    return f"{pattern.kind.name.lower().replace('_', ' ')} {pattern.name}{end}"


# ---- The commands ----


@click.group(
    help="Say who may do what in a secured cluster.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def acls() -> None:
    pass


def _wish_options(command: F) -> F:
    """Add the options for the operations and resources of an `acls` command."""
    options = (
        click.option("--produce", is_flag=True, help="Write records."),
        click.option("--consume", is_flag=True, help="Read records, as a member of a group."),
        click.option("--manage", is_flag=True, help="Everything on what is named."),
        click.option("--operation", "operations", multiple=True, metavar="NAME", callback=_known_operations,
                     help="One of Kafka's operations; may be repeated."),
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="'orders', 'shop-*' or '*'."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID"),
        click.option("--cluster", is_flag=True, help="The cluster itself: topics to be made, settings, users."),
        click.option("--host", default="*", show_default=True, metavar="IP", help="Only from this address."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _known_operations(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name.upper().replace("-", "_") not in _OPERATIONS:
            raise click.BadParameter(f"{name} is none of {', '.join(_OPERATIONS)}.")
    return names


@acls.command(help="Allow a user something; '*' is every user.", epilog=EPILOG)
@click.argument("user")
@_wish_options
@connection_options
def allow(user: str, servers: str | None, config: Path | None, **wish: object) -> None:
    _create(user, _wish_of(wish), Permission.ALLOW, servers, config)


@acls.command(help="Deny a user something, whatever is allowed.", epilog=EPILOG)
@click.argument("user")
@_wish_options
@connection_options
def deny(user: str, servers: str | None, config: Path | None, **wish: object) -> None:
    _create(user, _wish_of(wish), Permission.DENY, servers, config)


@acls.command(help="Remove what was allowed or denied.", epilog=EPILOG)
@click.argument("user")
@click.option("--everything", is_flag=True, help="All entries of this user.")
@_wish_options
@connection_options
def remove(user: str, everything: bool, servers: str | None, config: Path | None, **wish: object) -> None:
    from pessoa.cli.secured_cluster import admin_settings, reach
    from pessoa.client.acl_admin import delete_acls, describe_acls

    wanted = _wish_of(wish)
    if not everything and not wanted.patterns:
        raise click.UsageError(f"{_WHAT} --everything removes all entries of {user}.")
    with reach(admin_settings(servers, config)) as cluster:
        own = [(pattern, entry) for pattern, entry in describe_acls(cluster) if entry.principal == principal_of(user)]
        removed = [one for one in own if everything or is_meant(user, wanted, *one)]
        for pattern, entry in removed:
            delete_acls(cluster, pattern, [entry])
    if not removed:
        raise click.ClickException(f"{user} has no such entry; `pessoa acls list {user}` shows what there is.")
    click.echo("Removed:")
    _show(removed)


@acls.command("list", help="List what users may do: all of them, or one.", epilog=EPILOG)
@click.argument("user", required=False)
@connection_options
def list_(user: str | None, servers: str | None, config: Path | None) -> None:
    from pessoa.cli.secured_cluster import admin_settings, reach
    from pessoa.client.acl_admin import describe_acls

    with reach(admin_settings(servers, config)) as cluster:
        found = describe_acls(cluster)
    if user is not None:
        found = [one for one in found if one[1].principal == principal_of(user)]
    if found:
        _show(found)
    else:
        click.echo(f"No entries{'' if user is None else f' of {user}'}: only super users may do anything.")


def _wish_of(options: dict[str, object]) -> Wish:
    return Wish(**options)  # type: ignore[arg-type]


def _create(user: str, wish: Wish, permission: Permission, servers: str | None, config: Path | None) -> None:
    from pessoa.cli.secured_cluster import admin_settings, reach
    from pessoa.client.acl_admin import create_acls

    try:
        entries = entries_of(user, wish, permission)
    except BadWish as problem:
        raise click.UsageError(str(problem)) from None
    with reach(admin_settings(servers, config)) as cluster:
        for pattern, each in entries.items():
            create_acls(cluster, pattern, each)
    _show([(pattern, entry) for pattern, each in entries.items() for entry in each])


def _show(found: Sequence[tuple[Pattern, Entry]]) -> None:
    from pessoa.platform.report import table_for_here

    click.echo(table_for_here(rows_of(found), _HEADINGS))
