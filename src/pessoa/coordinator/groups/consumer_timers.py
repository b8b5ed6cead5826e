"""The names of the timers that a member of a consumer group has."""

from __future__ import annotations

from pessoa.coordinator.timers import Timers


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("consumer session", group_id, member_id)


def rebalance_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("consumer rebalance", group_id, member_id)


def rejoin_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """For a member of the classic protocol: until when it must join."""
    return ("consumer join", group_id, member_id)


def resync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """For a member of the classic protocol: until when it must sync."""
    return ("consumer sync", group_id, member_id)


def cancel_member_timers(timers: Timers, group_id: str, member_id: str) -> None:
    for key in (session_key, rebalance_key, rejoin_key, resync_key):
        timers.cancel(key(group_id, member_id))
