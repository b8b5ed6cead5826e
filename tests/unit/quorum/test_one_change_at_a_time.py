"""The voters change one at a time: the next change waits until the last one is committed (KIP-853)."""

from __future__ import annotations

import asyncio

from pessoa.wire.errors import ErrorCode
from tests.support.virtual_time import run
from tests.unit.quorum.test_voters import add_voter_request, ask, growing, remove_voter_request


def test_a_second_voter_change_is_refused_while_the_first_is_not_committed() -> None:
    async def body() -> None:
        async with growing(3) as nodes:
            leader = await nodes.leader()
            for node_id in (2, 3):
                assert await ask(leader, add_voter_request(nodes.by_id[node_id])) == (ErrorCode.NONE, None)
            for node_id in (2, 3):
                nodes.by_id[node_id].kill()
            first = asyncio.get_running_loop().create_task(ask(leader, remove_voter_request(nodes.by_id[3])))
            await nodes.wait_until(lambda: leader.quorum.voters == (1, 2))
            assert leader.quorum.is_leader
            error, message = await ask(leader, remove_voter_request(nodes.by_id[2]))
            assert error is ErrorCode.REQUEST_TIMED_OUT
            assert message is not None
            assert "another change" in message
            assert leader.quorum.voters == (1, 2)
            await nodes.by_id[2].start()
            await first

    run(body)
