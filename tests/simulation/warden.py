"""The user who says what others may do: takes an entry away under a running client and gives it back, and changes
passwords while clients connect. The nemesis says when (`orders`).

    "rights"     remove an entry ─▶ until no node has it ─▶ for a while ─▶ add it again ─▶ until all have it
    "password"   another password for a user

A request that got no response may still be carried out, even after the next one. So nothing is taken for done until the
nodes have it in their images, and what was undone by a late request is done again: in the end every entry is there.
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
# A request of ours that is still on its way has arrived by then, if the cluster is well.
_QUIET_S = 1.0


class Warden(Client):
    rights: Rights
    # Names of clients that run.
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

    # Entries.

    async def _take_away_for_a_while(self) -> None:
        users = {f"User:{user_of(name)}" for name in self.clients} - {f"User:{WARDEN}"}
        entries = [one for one in self.rights.entries if one.principal in users and one.resource_type != CLUSTER]
        if not entries:
            return
        # Those of a share group are few, and matter most where there is one.
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
        # It is looked at meanwhile: an entry that a late request brings back has been gone since then only.
        await self._wait(lambda: not self.rights.is_gone(entry), end_s - self.loop.now_s)
        self.rights.ask_for(entry)

    async def _restore(self) -> None:
        """Everything is to be there that no order takes away."""
        while missing := [one for one in self.rights.entries if not self.rights.is_everywhere(one)]:
            for entry in missing:
                self.rights.ask_for(entry)
            await self._add(missing)
            await self._wait(partial(self._are_everywhere, missing), 1.0)

    def _are_everywhere(self, entries: list[Acl]) -> bool:
        return all(map(self.rights.is_everywhere, entries))

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Until the condition holds, or the time is up. Nodes tell no client what they know, so it is looked at."""
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
