"""How a member of a consumer group gets from what it owns to what it shall own (KIP-848).

    STABLE ──new target──► UNREVOKED_PARTITIONS ──it says it has given up──► UNRELEASED_PARTITIONS or STABLE
                 └─nothing to give up──────────────────────────────────────►          │        ▲
                                                                                      └others──┘
                                                                                    give up theirs

A member first gives up what is not in its target, at its old epoch; only when its next heartbeat no longer lists
those partitions does it go to the epoch of the target. A partition of its target that another member still owns is
left out and given later, when that one has given it up. So no partition ever has two owners.

When only the subscription has changed, partitions of topics that the member left are taken away at once, without a
new target: it must not own what it is not subscribed to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.consumer_group import (
    NO_EPOCH,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    Partitions,
)
from pessoa.wire.errors import ErrorCode, Refusal


@dataclass(frozen=True, slots=True)
class Situation:
    """The inputs of a reconciliation, besides the member."""

    target_epoch: int
    target: Partitions
    subscribed_topic_ids: Collection[Uuid]
    # The epoch of a partition's owner, NO_EPOCH if it has none.
    partition_epoch: Callable[[Uuid, int], int]
    # What the member says that it owns; None if it says nothing of it, which means: as before.
    reported: Mapping[Uuid, Collection[int]] | None
    has_subscription_changed: bool = False


def reconcile(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """Return the member after its next step towards its target; the same object if there is nothing to do."""
    if member.state is MemberState.STABLE:
        if member.epoch != situation.target_epoch:
            return _toward_target(member, situation)
        return _after_subscription_change(member, situation)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_has(situation, member.pending_revocation):
            return _after_subscription_change(member, situation)
        return _toward_target(member, situation)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _toward_target(member, situation)
    if situation.reported is None or situation.reported:
        raise Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "the state of the member is not known: it must give up all its partitions and join again",
        )
    return _toward_target(replace(member, epoch=situation.target_epoch), situation, member.epoch)


def _still_has(situation: Situation, partitions: OwnedPartitions) -> bool:
    if situation.reported is None:
        return True
    return any(
        index in partitions.get(topic_id, ()) for topic_id, indexes in situation.reported.items() for index in indexes
    )


def _after_subscription_change(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    if not situation.has_subscription_changed:
        return member
    left = {each: owned for each, owned in member.assigned.items() if each not in situation.subscribed_topic_ids}
    if not left:
        return member
    kept = {each: owned for each, owned in member.assigned.items() if each not in left}
    pending = dict(member.pending_revocation)
    for topic_id, owned in left.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **owned}
    if _still_has(situation, pending):
        return member.at_epoch(
            member.epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=pending
        )
    return member.at_epoch(member.epoch, assigned=kept)


def _toward_target(member: ConsumerMember, situation: Situation, previous_epoch: int | None = None) -> ConsumerMember:
    assigned: dict[Uuid, dict[int, int]] = {}
    to_revoke: dict[Uuid, dict[int, int]] = {}
    has_unreleased = False
    for topic_id in dict.fromkeys((*situation.target, *member.assigned)):
        owned = member.assigned.get(topic_id, {})
        is_subscribed = topic_id in situation.subscribed_topic_ids
        target = situation.target.get(topic_id, frozenset()) if is_subscribed else frozenset()
        kept = {index: epoch for index, epoch in owned.items() if index in target}
        given_up = {index: epoch for index, epoch in owned.items() if index not in target}
        own_revoked = member.pending_revocation.get(topic_id, {})
        for index in sorted(target - kept.keys()):
            # What the member itself is about to give up it may as well keep.
            if situation.partition_epoch(topic_id, index) != NO_EPOCH and index not in own_revoked:
                has_unreleased = True
            else:
                kept[index] = situation.target_epoch
        if kept:
            assigned[topic_id] = kept
        if given_up:
            to_revoke[topic_id] = given_up
    if to_revoke and _still_has(situation, to_revoke):
        # It stays at its epoch, and gets nothing new before it has given up.
        held = {
            topic_id: old
            for topic_id, kept in assigned.items()
            if (old := {each: epoch for each, epoch in kept.items() if each in member.assigned.get(topic_id, {})})
        }
        updated = member.at_epoch(
            member.epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=held, pending_revocation=to_revoke
        )
    else:
        updated = member.at_epoch(
            situation.target_epoch,
            state=MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE,
            assigned=assigned,
            pending_revocation={},
        )
    return updated if previous_epoch is None else replace(updated, previous_epoch=previous_epoch)
