"""The administrator of ACLs and passwords: removes an ACL entry of a running client and adds it again, and changes
passwords while clients connect. The nemesis gives the orders (`orders`).

    "rights"     remove an entry ─▶ wait until no node has it ─▶ pause ─▶ add it ─▶ wait until all nodes have it
    "password"   set another password of a user

A request without a response may still be executed, even after the next one. So a change is complete only when the nodes
have it in their images, and a change that a late request has reverted is repeated: in the end every entry is present.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.security.acl import CLUSTER
from pessoa.security.sasl.scram_keys import MIN_ITERATIONS
from pessoa.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import TRANSIENT, Client
from tests.simulation.history import Violation
from tests.simulation.rights import error_codes
from tests.simulation.users import MECHANISM_NUMBER, SHARER, WARDEN, password_of, salt_of, salted, user_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pessoa.metadata.table_images import Acl
    from tests.simulation.client import M
    from tests.simulation.rights import Rights

_TIMEOUT_MS = 2_000
_LOOK_EVERY_S = 0.05
_ORDERS_EVERY_S = 0.2
# In a healthy cluster every request of the warden has arrived by then.
_QUIET_S = 1.0


class Warden(Client):
    rights: Rights
    # The names of the running clients.
    clients: Sequence[str] = ()

    def __init__(self, *details: Any) -> None:
        super().__init__(*details)
        self.orders: list[str] = []
        self.revocations = 0

    async def run(self) -> None:
        while not self.is_stopping:
            if self.orders:
                order = self.orders.pop(0)
                await (self._take_away_for_a_while() if order == "rights" else self._change_password())
            await self._restore()
            await asyncio.sleep(_ORDERS_EVERY_S)
        await self._restore()
        await asyncio.sleep(_QUIET_S)
        await self._restore()

    # ACL entries.

    async def _take_away_for_a_while(self) -> None:
        users = {f"User:{user_of(name)}" for name in self.clients} - {f"User:{WARDEN}"}
        entries = [one for one in self.rights.entries if one.principal in users and one.resource_type != CLUSTER]
        if not entries:
            return
        # A share group has few entries, so they are chosen more often.
        of_shares = [one for one in entries if one.principal == f"User:{SHARER}"]
        entry = self.rng.choice(of_shares if of_shares and self.rng.random() < 0.5 else entries)
        self.trace("takes away %s", entry)
        self.rights.removed.append(entry)
        while not self.rights.is_gone(entry) and not self.is_stopping:
            await self._remove(entry)
            await self._wait(lambda: self.rights.is_gone(entry), 1.0)
        self.revocations += 1
        self.trace("%s is gone", entry)
        end_s = self.loop.now_s + self.rng.choice((0.1, 0.5, 2.5)) * self.rng.random()
        # It is checked meanwhile: an entry that a late request adds again is gone only from its next removal on.
        await self._wait(lambda: not self.rights.is_gone(entry), end_s - self.loop.now_s)
        self.rights.ask_for(entry)

    async def _restore(self) -> None:
        """Add the entries that are missing on any node, until all nodes have all entries."""
        while missing := [one for one in self.rights.entries if not self.rights.is_everywhere(one)]:
            for entry in missing:
                self.rights.ask_for(entry)
            await self._add(missing)
            await self._wait(partial(self._are_everywhere, missing), 1.0)

    def _are_everywhere(self, entries: list[Acl]) -> bool:
        return all(map(self.rights.is_everywhere, entries))

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until the condition holds or the time is over. No request tells what is in a node's image, so it is
        polled."""
        end_s = self.loop.now_s + seconds
        while not condition() and self.loop.now_s < end_s and not self.is_stopping:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_EVERY_S * self.rng.random())

    async def _remove(self, entry: Acl) -> None:
        wanted = DeleteAclsFilter(
            resource_type_filter=entry.resource_type,
            resource_name_filter=entry.resource_name,
            pattern_type_filter=entry.pattern_type,
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
        await self._order(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse, 3)

    async def _add(self, entries: list[Acl]) -> None:
        creations = [
            AclCreation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission_type,
            )
            for one in entries
        ]
        await self._order(CreateAclsRequest(creations=creations), CreateAclsResponse, 3)

    # Passwords.

    async def _change_password(self) -> None:
        user = user_of(self.rng.choice(sorted(self.clients)))
        if user == WARDEN:
            return
        generation = self.rights.generations[user] = self.rights.generations.get(user, 0) + 1
        self.trace("password %s for %s", generation, user)
        salt = salt_of(user, generation)
        upsertion = ScramCredentialUpsertion(
            name=user,
            mechanism=MECHANISM_NUMBER,
            iterations=MIN_ITERATIONS,
            salt=salt,
            salted_password=salted("sha256", password_of(user, generation), salt, MIN_ITERATIONS),
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        while not self.is_stopping and not self.rights.is_password_everywhere(user, generation):
            await self._order(request, AlterUserScramCredentialsResponse, 0)
            await self._wait(lambda: self.rights.is_password_everywhere(user, generation), 1.0)

    async def _order(self, request: Any, kind: type[M], version: int) -> None:
        try:
            response = await self.ask(self.some_broker(), request, kind, version, _TIMEOUT_MS)
        except ChannelFailed as problem:
            self.trace("%s: %s", type(request).__name__, problem)
            await self.back_off()
            return
        strange = error_codes(response) - {ErrorCode.NONE} - TRANSIENT
        if strange:
            names = [ErrorCode.of(one).name for one in sorted(strange)]
            raise Violation(f"{self.name} asks for {type(request).__name__}: {names}")
