"""The authorizer: whether a principal may do an operation with a resource, by the rules of Kafka's StandardAuthorizer.

    super user?  ──yes──▶ allowed, whatever the entries say, and before they are loaded
        │ no
    entries loaded?  ──no──▶ denied
        │ yes
    of the entries whose pattern the name falls under:
        one that denies this  ──▶ denied
        one that allows this  ──▶ allowed       READ, WRITE, DELETE, ALTER allow DESCRIBE too, ALTER_CONFIGS
                                                DESCRIBE_CONFIGS; a DENY implies nothing
        others only           ──▶ denied
        none for anyone       ──▶ allow.everyone.if.no.acl.found

An entry is about this question if its principal is the one that asks or `User:*`, and its host is the one that it asks
from or `*`. Principals are compared as they are written. Hosts are compared as addresses: `::FFFF:10.0.0.1` is
10.0.0.1 and `::1` is `0:0:0:0:0:0:0:1`, so no way of writing an address gets past a DENY. (Apache Kafka compares the
text that Java writes, and an entry with another form of the same address matches no client.)

`AclTable` is the immutable index of all entries. `Authorizer` holds the present one with the verdicts that it has
given, and writes Kafka's log of decisions (`authorizer_log`). Verdicts are forgotten when the entries change, and when
there are many of them; those about very long names are not kept: names come from clients. A table is built at the first
question after a change.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from pessoa.base.ids import Uuid
from pessoa.security.acl import (
    ALL,
    ALLOW,
    ANY_USER,
    DENY,
    IMPLIED_BY,
    LITERAL,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    Entry,
    Operation,
    ResourceType,
)
from pessoa.security.authorizer_log import are_all_shown, log_verdict

# Verdicts that are kept at most. One takes some 230 bytes with common names, and 1.3 KB with one of the longest that is
# kept: clients choose the names, so what is longer (a name on the wire may have 32,767 bytes) is decided each time.
MAX_VERDICTS = 20_000
# In characters, of the name, the principal and the host. The longest legal name of a topic has 249.
MAX_REMEMBERED_LENGTH = 255
# Kafka's name for any resource at all, whose verdict tells super users from others.
_ANY_NAME = "hardcode"
_ByPrincipal: TypeAlias = dict[str, list[Entry]]
# What is allowed is logged at this level.
_DEBUG = logging.DEBUG


class Verdict(NamedTuple):
    is_allowed: bool
    # The entry that decided, or the name of the rule.
    rule: Entry | str


SUPER_USER = Verdict(True, "SuperUser")
NOT_LOADED = Verdict(False, "NotLoaded")
DEFAULT_ALLOW = Verdict(True, "DefaultAllow")
DEFAULT_DENY = Verdict(False, "DefaultDeny")


class Asker(Protocol):
    """The client that requests an operation: a request's context."""

    @property
    def api_key(self) -> int: ...

    @property
    def principal(self) -> str: ...

    @property
    def client_host(self) -> str: ...


@lru_cache(maxsize=4096)
def normalised_host(host: str) -> str:
    """Return the canonical text of an IP address (IPv4-mapped as IPv4); anything else (`*`, a name) unchanged."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(address if mapped is None else mapped)


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals in `User:a;User:b`. Raises a `ValueError` that names an entry without a type and a name."""
    names = frozenset(filter(None, (one.strip() for one in text.split(";"))))
    for name in sorted(names):
        kind, colon, _ = name.partition(":")
        if not colon or not kind:
            raise ValueError(f"{name!r} is not a type and a name with a colon between, such as User:alice")
    return names


class _Patterns:
    """The entries for one type of resource, by their patterns, and of each pattern by their principals: a cluster may
    have as many entries for `*` as it has users."""

    __slots__ = ("_lengths", "_literal", "_prefixed", "of_principal")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._literal: dict[str, _ByPrincipal] = {}
        self._prefixed: dict[str, _ByPrincipal] = {}
        self.of_principal: _ByPrincipal = {}
        for entry in entries:
            table = self._literal if entry.pattern_type == LITERAL else self._prefixed
            table.setdefault(entry.resource_name, {}).setdefault(entry.principal, []).append(entry)
            self.of_principal.setdefault(entry.principal, []).append(entry)
        # Of prefixes: so many lookups find all that a name begins with.
        self._lengths = sorted({len(prefix) for prefix in self._prefixed})

    def matching(self, name: str) -> Iterator[_ByPrincipal]:
        """Yield the entries, by principal, of each pattern that matches a resource name."""
        if name in self._literal:
            yield self._literal[name]
        if name != WILDCARD and WILDCARD in self._literal:
            yield self._literal[WILDCARD]
        for length in self._lengths:
            if length > len(name):
                break
            if name[:length] in self._prefixed:
                yield self._prefixed[name[:length]]


class AclTable:
    """All ACL entries, indexed by resource type, pattern and principal. Immutable."""

    def __init__(self, entries: Iterable[Entry] = (), *, allows_without_acl: bool = False) -> None:
        by_type: dict[int, list[Entry]] = {}
        for entry in entries:
            by_type.setdefault(entry.resource_type, []).append(entry)
        self._by_type = {kind: _Patterns(some) for kind, some in by_type.items()}
        self._without_acl = DEFAULT_ALLOW if allows_without_acl else DEFAULT_DENY

    def decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> Verdict:
        """Return whether the entries allow the operation, and the entry that decides. `host` is normalised."""
        patterns = self._by_type.get(kind)
        allowing: Entry | None = None
        has_entries = False
        for by_principal in patterns.matching(name) if patterns is not None else ():
            has_entries = True
            for entry in _entries_about(by_principal, principal):
                if not _is_host(entry, host):
                    continue
                if entry.permission_type == DENY:
                    if entry.operation in (operation, ALL):
                        return Verdict(False, entry)
                elif allowing is None and _allows(entry, operation):
                    allowing = entry
        if allowing is not None:
            return Verdict(True, allowing)
        return DEFAULT_DENY if has_entries else self._without_acl

    def allows_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the operation is allowed on at least one resource name of this type (Kafka's
        authorizeByResourceType, for principals that are no super users). As there, no operation implies another one."""
        denied: set[tuple[int, str]] = set()
        allowed: set[tuple[int, str]] = set()
        if self.decide(principal, host, operation, kind, _ANY_NAME).is_allowed:
            return True
        by_principal = self._by_type[kind].of_principal if kind in self._by_type else {}
        for entry in _entries_about(by_principal, principal):
            if entry.operation in (operation, ALL) and _is_host(entry, host):
                patterns = denied if entry.permission_type == DENY else allowed
                patterns.add((entry.pattern_type, entry.resource_name))
        everything = (LITERAL, WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        prefixes = {name for kind_of, name in denied if kind_of != LITERAL}
        return any(
            pattern not in denied and not any(pattern[1].startswith(prefix) for prefix in prefixes)
            for pattern in allowed
        )


def _entries_about(by_principal: _ByPrincipal, principal: str) -> Iterator[Entry]:
    """Yield the entries about a principal: its own, and those for `User:*`."""
    yield from by_principal.get(principal, ())
    if principal != ANY_USER:
        yield from by_principal.get(ANY_USER, ())


def _is_host(entry: Entry, host: str) -> bool:
    return entry.host == WILDCARD or normalised_host(entry.host) == host


def _allows(entry: Entry, operation: Operation) -> bool:
    if entry.permission_type != ALLOW:
        return False
    return entry.operation in (operation, ALL) or entry.operation in IMPLIED_BY.get(operation, ())


class Authorizer:
    """Decides by the ACL entries whether a request's operation is allowed. Without `authorizer.class.name` a node
    has no authorizer, and every operation is allowed."""

    def __init__(self, super_users: frozenset[str] = frozenset(), *, allows_without_acl: bool = False) -> None:
        self._super_users = super_users
        self._allows_without_acl = allows_without_acl
        # None before the metadata log has been read.
        self._entries: Mapping[Uuid, Entry] | None = None
        # None until the first question about these entries.
        self._table: AclTable | None = None
        self._verdicts: dict[tuple[str, str, int, int, str], Verdict] = {}

    def __repr__(self) -> str:
        count = "no" if self._entries is None else len(self._entries)
        return f"<Authorizer: {count} entries, {len(self._verdicts)} verdicts, {len(self._super_users)} super users>"

    def load(self, entries: Mapping[Uuid, Entry]) -> None:
        """Replace the ACL entries, and drop the cached verdicts. The same mapping again changes nothing."""
        if entries is not self._entries:
            self._entries = entries
            self._table = None
            self._verdicts = {}

    def can_decide_about(self, principal: str) -> bool:
        """Return False for a principal that is no super user while the entries are not loaded: a denial would mean
        nothing."""
        return self._entries is not None or principal in self._super_users

    def may(
        self,
        asker: Asker,
        operation: Operation,
        kind: ResourceType,
        name: str,
        count: int = 1,
        *,
        quietly: bool = False,
    ) -> bool:
        """Return whether the operation is allowed. `count` is how often the request names the resource, for the log;
        with `quietly` a denial is not logged as a refusal (a list is filtered, another permission may suffice)."""
        principal, host = asker.principal, asker.client_host
        key = (principal, host, operation, kind, name)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._cache_verdict(key, self.decide(principal, host, operation, kind, name))
        is_allowed, rule = verdict
        if not is_allowed or are_all_shown(_DEBUG):
            log_verdict(asker, is_allowed, rule, operation, kind, name, count, quietly=quietly)
        return is_allowed

    def _cache_verdict(self, key: tuple[str, str, int, int, str], verdict: Verdict) -> Verdict:
        principal, host, _, _, name = key
        if verdict is not NOT_LOADED and max(len(principal), len(host), len(name)) <= MAX_REMEMBERED_LENGTH:
            if len(self._verdicts) >= MAX_VERDICTS:
                self._verdicts = {}
            self._verdicts[key] = verdict
        return verdict

    def decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> Verdict:
        """Return the verdict, without using the cached verdicts and without writing to the log."""
        if principal in self._super_users:
            return SUPER_USER
        table = self._current_table()
        return NOT_LOADED if table is None else table.decide(principal, normalised_host(host), operation, kind, name)

    def may_with_some(self, asker: Asker, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the operation is allowed with some resource of the type."""
        principal, host = asker.principal, asker.client_host
        if principal in self._super_users:
            return True
        table = self._current_table()
        if table is None:
            return False
        # Beside the verdicts about single resources. Clients choose names, but no operation below 0.
        key = (principal, host, -operation, kind, "")
        verdict = self._verdicts.get(key)
        if verdict is None:
            is_allowed = table.allows_some(principal, normalised_host(host), operation, kind)
            verdict = self._cache_verdict(key, DEFAULT_ALLOW if is_allowed else DEFAULT_DENY)
        return verdict.is_allowed

    def operations(self, asker: Asker, kind: ResourceType, name: str) -> int:
        """Return the operations that are allowed on the resource, as the bits of `authorized_operations`."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[kind]
            if self.may(asker, operation, kind, name, quietly=True)
        )

    def _current_table(self) -> AclTable | None:
        if self._table is None and self._entries is not None:
            self._table = AclTable(self._entries.values(), allows_without_acl=self._allows_without_acl)
        return self._table
