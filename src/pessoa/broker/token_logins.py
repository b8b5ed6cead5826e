"""The keys of delegation tokens, which every login with a token is checked by (KIP-48).

They follow from the id of the token by PBKDF2, some milliseconds of work: they are derived in a thread, one at a time,
when a token is first used here, and remembered. The login waits for that, and other connections are served.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pessoa.net.pending import Pending, ServedLater
from pessoa.security.sasl.token_keys import token_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.security.sasl.scram_keys import ScramKeys
    from pessoa.wire.frames import Buffer

_REMEMBERED = 1024


class TokenUse(NamedTuple):
    mechanism: str
    # delegation.token.secret.key
    secret: str
    token_id: str

    def __repr__(self) -> str:
        return f"<TokenUse {self.mechanism}>"


class KeysMissing(Exception):
    """The SCRAM keys of a token must be derived first."""

    def __init__(self, use: TokenUse) -> None:
        super().__init__(use)
        self.use = use


class TokenKeys:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        # The last one that was used is the last.
        self._keys_by_token: OrderedDict[TokenUse, ScramKeys] = OrderedDict()

    def __repr__(self) -> str:
        return f"<TokenKeys of {len(self._keys_by_token)} tokens>"

    def get(self, use: TokenUse) -> ScramKeys:
        """Return the SCRAM keys of a token. Raises `KeysMissing` if they must be derived first."""
        keys = self._keys_by_token.get(use)
        if keys is None:
            raise KeysMissing(use)
        self._keys_by_token.move_to_end(use)
        return keys

    async def derive(self, use: TokenUse) -> None:
        async with self._turn:
            if use not in self._keys_by_token:
                keys = await asyncio.get_running_loop().run_in_executor(None, token_keys, *use)
                self._keys_by_token[use] = keys
                if len(self._keys_by_token) > _REMEMBERED:
                    self._keys_by_token.popitem(last=False)


class LoginAfterKeys(ServedLater):
    """The response to a SCRAM login with a token whose keys must be derived first; then the request is served again."""

    __slots__ = ("_keys", "_serve", "_task", "_use")

    is_last_step = True

    def __init__(self, keys: TokenKeys, use: TokenUse, serve: Callable[[], list[Buffer] | Pending | None]) -> None:
        super().__init__()
        self._keys = keys
        self._use = use
        self._serve = serve
        self._task: asyncio.Task[None] | None = None

    def when_ready(self, call: Callable[[], object]) -> None:
        self._on_ready = call
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._keys.derive(self._use)
        except Exception as problem:  # noqa: BLE001 (`frames` raises it)
            self.fail_with(problem)
        else:
            self.serve_with(self._serve)

    def cancel(self) -> None:
        super().cancel()
        if self._task is not None:
            self._task.cancel()
