"""StreamsGroupHeartbeat (KIP-1071), which is all that a member of a streams group sends to the group coordinator.

A heartbeat does, in this order, whatever of it is to be done:

1. find or make the member, and check its epoch;
2. note what the member says of itself, and the topology of the first member;
3. look at the topics: which tasks are there, which internal topics are missing (`topology_configuration`). Missing ones
   are asked for (`CreateInternalTopics`), in the name of the client; a later heartbeat finds them;
4. raise the group epoch if the member, the topics or the settings for assignments have changed;
5. compute a new target assignment if the group epoch has passed the last one's: at most once per
   `group.streams.assignment.interval.ms`, and for a group that was empty not before
   `group.streams.initial.rebalance.delay.ms` have passed. A topology that is not ready has no tasks;
6. take the member one step towards its target (`task_reconciliation`).

The answer always has the statuses that hold: they tell the client why it has no tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from pessoa.coordinator.groups.classic.classic_group import ClassicGroup
from pessoa.coordinator.groups.group_config import METADATA_REFRESH_INTERVAL_MS, is_within_interval
from pessoa.coordinator.groups.group_registry import Registry, client_host, client_id
from pessoa.coordinator.groups.streams import streams_answers as answers
from pessoa.coordinator.groups.streams.sticky_assignor import StreamsMemberSpec, assign_sticky
from pessoa.coordinator.groups.streams.streams_group import (
    NO_TOPOLOGY_EPOCH,
    StreamsGroup,
    StreamsMember,
    TaskRoles,
    TaskState,
    UserEndpoint,
)
from pessoa.coordinator.groups.streams.streams_group_config import NUM_STANDBY_REPLICAS, StreamsGroupConfig
from pessoa.coordinator.groups.streams.streams_replay import (
    replay_streams_record,
    streams_assignment_epoch_record,
    streams_current_record,
    streams_epoch_record,
    streams_member_record,
    streams_member_tombstones,
    streams_target_record,
    topology_record,
)
from pessoa.coordinator.groups.streams.streams_request_checks import JOIN_EPOCH, check_form, stored_topology
from pessoa.coordinator.groups.streams.task_reconciliation import TaskSituation, reconcile_tasks
from pessoa.coordinator.groups.streams.topology_configuration import (
    ASSIGNMENT_DELAYED,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
    ConfiguredTopology,
    InternalTopic,
    TopologyStatus,
    configure,
    required_topics,
)
from pessoa.coordinator.shard import CoordinatorRecord, Output
from pessoa.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller
from pessoa.wire.schema import Message
from pessoa.wire.stored.streams_group_records import StreamsGroupMetadataKey, StreamsGroupTopologyValue

# Kafka's wait between two tries of a timer whose records were refused.
_FENCING_RETRY_MS = 500

Records = list[CoordinatorRecord]


class CreateInternalTopics(NamedTuple):
    """The internal topics that are missing, and the client whose heartbeat asks for them."""

    group_id: str
    topics: tuple[InternalTopic, ...]
    caller: Caller


class _Epoch(NamedTuple):
    """The group epoch after this heartbeat, and the topology that it is for."""

    epoch: int
    configured: ConfiguredTopology


class StreamsGroups:
    """The streams groups of a shard, which stand among the other groups of `registry`. `create_topics` is called with
    the internal topics that are missing, and returns the errors of earlier attempts."""

    def __init__(
        self,
        registry: Registry,
        config: StreamsGroupConfig,
        create_topics: Callable[[CreateInternalTopics], list[str]],
    ) -> None:
        self._registry = registry
        self.config = config
        self._create_topics = create_topics
        # Since when groups that were empty wait for more members before they assign. By id: the group of a first
        # heartbeat is another object than the one that its records make.
        self._empty_since_ms: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<StreamsGroups: {len(self._groups())}, waiting for members: {len(self._empty_since_ms)}>"

    def _groups(self) -> list[StreamsGroup]:
        return [group for group in self._registry.groups.values() if isinstance(group, StreamsGroup)]

    # ── heartbeats ──

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, context: Caller, token: int, now_ms: int) -> Output:
        check_form(request)
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request, token)
        output = Output()
        records = output.records
        group = self._find_group(request, records)
        member = self._find_member(group, request)
        updated = _update_member(member, request, context)
        if updated != member or member.id not in group.members:
            records.append(streams_member_record(group.id, updated))
        topology = self._note_topology(records, group, request)
        has_changed = updated != member or member.id not in group.members
        step = self._refresh_epoch(records, group, topology, has_changed, now_ms)
        statuses = self._statuses(group, updated, topology, step.configured, context)
        target_epoch, target = self._update_target(records, group, step, updated, statuses, now_ms)
        moved = self._take_step(records, group, updated, target_epoch, target, answers.reported(request), now_ms)
        self.expect_heartbeat(group.id, moved.id, now_ms + self._session_timeout_ms(group.id))
        if request.shutdown_application:
            group.shutdown_asked_by = moved.id
        if group.shutdown_asked_by is not None:
            statuses.append(_shutdown_status(group.shutdown_asked_by))
        # A member that joins, or that has not received its last response, gets all of its tasks.
        knows_tasks = JOIN_EPOCH < request.member_epoch == member.epoch
        shows_tasks = not knows_tasks or moved.assigned != member.assigned
        interval_ms = self.config.heartbeat_interval_ms(self._registry.overrides(group.id))
        response = answers.heartbeat_response(moved, statuses, interval_ms, shows_tasks=shows_tasks)
        answers.add_endpoints(response, request, group, moved, topology, self._partition_count)
        output.replies.append((token, response))
        return output

    def _find_group(self, request: StreamsGroupHeartbeatRequest, records: Records) -> StreamsGroup:
        """Return the group, or a new one for a joining member; a new group is registered when its records are
        replayed."""
        known = self._registry.groups.get(request.group_id)
        if isinstance(known, StreamsGroup):
            return known
        if request.member_epoch != JOIN_EPOCH or request.group_id in self._registry.share_groups:
            return self._registry.streams_group(request.group_id)
        if known is not None:
            if not isinstance(known, ClassicGroup) or not known.is_empty:
                return self._registry.streams_group(request.group_id)
            # A classic group without members makes way; its offsets stay.
            records += known.tombstones()
        return StreamsGroup(request.group_id)

    def _find_member(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsMember:
        member_id, epoch = request.member_id, request.member_epoch
        if epoch == JOIN_EPOCH:
            limit = self.config.group_streams_max_size
            if member_id not in group.members and len(group.members) >= limit:
                raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.id} has its {limit} members")
            return group.members.get(member_id) or StreamsMember(member_id)
        member = group.member(member_id)
        if epoch == member.epoch:
            return member
        # After a lost response a member comes with its previous epoch, and with no more than it was given.
        if epoch == member.previous_epoch and answers.are_owned(answers.reported(request), member):
            return member
        raise Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH, f"the member is at epoch {member.epoch}, not {epoch}: it must join again"
        )

    def _leave(self, request: StreamsGroupHeartbeatRequest, token: int) -> Output:
        group = self._registry.streams_group(request.group_id)
        member = group.member(request.member_id)
        output = Output(notes=[f"member {member.id} leaves streams group {group.id}"])
        if request.shutdown_application:
            group.shutdown_asked_by = member.id
        self._remove(output, group, member.id)
        output.replies.append((token, answers.leave_response(member.id, request.member_epoch)))
        return output

    # ── steps ──

    def _note_topology(
        self, records: Records, group: StreamsGroup, request: StreamsGroupHeartbeatRequest
    ) -> StreamsGroupTopologyValue:
        """Return the topology of the group. The first one is written; a different one is refused unless it is older."""
        if request.topology is not None:
            asked = stored_topology(request.topology)
            if group.topology is None:
                records.append(topology_record(group.id, asked))
                return asked
            if asked.epoch >= group.topology.epoch and asked != group.topology:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        if group.topology is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"group {group.id} has no topology: its members must join again")
        return group.topology

    def _partition_count(self, name: str) -> int | None:
        topic = self._registry.topic(name)
        return None if topic is None else len(topic.partitions)

    def _refresh_epoch(
        self, records: Records, group: StreamsGroup, topology: StreamsGroupTopologyValue, has_changed: bool, now_ms: int
    ) -> _Epoch:
        configured = group.configured
        metadata_hash = group.metadata_hash
        if configured is None or configured.epoch != topology.epoch or now_ms >= group.refresh_at_ms:
            configured = configure(topology, self._partition_count)
            metadata_hash = self._registry.metadata_hash(required_topics(topology))
            group.configured, group.refresh_at_ms = configured, now_ms + METADATA_REFRESH_INTERVAL_MS
        validated = topology.epoch if configured.is_ready else NO_TOPOLOGY_EPOCH
        configs = self._assignment_configs(group.id)
        is_same = (metadata_hash, validated, configs) == (
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        )
        if is_same and not has_changed:
            return _Epoch(group.epoch, configured)
        records.append(streams_epoch_record(group.id, group.epoch + 1, metadata_hash, validated, configs))
        return _Epoch(group.epoch + 1, configured)

    def _assignment_configs(self, group_id: str) -> tuple[tuple[str, str], ...]:
        return ((NUM_STANDBY_REPLICAS, str(self.config.standby_replicas(self._registry.overrides(group_id)))),)

    def _statuses(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        topology: StreamsGroupTopologyValue,
        configured: ConfiguredTopology,
        context: Caller,
    ) -> list[TopologyStatus]:
        found = []
        if member.topology_epoch != topology.epoch:
            text = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            found.append(TopologyStatus(STALE_TOPOLOGY, f"{text}{topology.epoch}."))
        if configured.status is not None:
            status = configured.status
            if configured.to_create:
                trouble = self._create_topics(CreateInternalTopics(group.id, configured.to_create, context))
                if trouble:
                    status = status._replace(detail=f"{status.detail} Creation failed: {'; '.join(trouble)}.")
            found.append(status)
        return found

    def _update_target(
        self,
        records: Records,
        group: StreamsGroup,
        step: _Epoch,
        updated: StreamsMember,
        statuses: list[TopologyStatus],
        now_ms: int,
    ) -> tuple[int, TaskRoles]:
        """Return the member's target and its epoch, after the target of the whole group was computed again if the group
        epoch was raised."""
        last = group.assignment_epoch, group.target_of(updated.id)
        if group.assignment_epoch >= step.epoch:
            return last
        overrides = self._registry.overrides(group.id)
        delay_ms = self.config.initial_rebalance_delay_ms(overrides)
        if group.is_empty:
            self._empty_since_ms[group.id] = now_ms
        if group.id in self._empty_since_ms:
            if is_within_interval(self._empty_since_ms[group.id], delay_ms, now_ms):
                statuses.append(
                    TopologyStatus(ASSIGNMENT_DELAYED, "The assignment waits for more members to join the group.")
                )
                return last
            del self._empty_since_ms[group.id]
        interval_ms = self.config.assignment_interval_ms(overrides)
        if is_within_interval(group.assignment_timestamp_ms, interval_ms, now_ms):
            return last
        members = {**group.members, updated.id: updated}
        specs = {one.id: StreamsMemberSpec(one.process_id, group.target_of(one.id)) for one in members.values()}
        result = assign_sticky(
            specs, step.configured.task_counts, step.configured.stateful, self.config.standby_replicas(overrides)
        )
        records += (
            streams_target_record(group.id, member_id, result[member_id])
            for member_id in specs
            if group.targets.get(member_id) != result[member_id]
        )
        records.append(streams_assignment_epoch_record(group.id, step.epoch, now_ms))
        return step.epoch, result[updated.id]

    def _take_step(
        self,
        records: Records,
        group: StreamsGroup,
        member: StreamsMember,
        target_epoch: int,
        target: TaskRoles,
        reported: TaskRoles | None,
        now_ms: int,
    ) -> StreamsMember:
        moved = reconcile_tasks(member, TaskSituation(target_epoch, target, group.owners, reported))
        if moved == member:
            return member
        records.append(streams_current_record(group.id, moved))
        if moved.state is TaskState.UNREVOKED_TASKS:
            self.expect_revocation(group.id, moved, now_ms)
        else:
            self._registry.timers.cancel(_rebalance_key(group.id, moved.id))
        return moved

    # ── timers, and the end of a member ──

    def _session_timeout_ms(self, group_id: str) -> int:
        return self.config.session_timeout_ms(self._registry.overrides(group_id))

    def expect_heartbeat(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        self._schedule(_session_key(group_id, member_id), group_id, member_id, deadline_ms, "its session has ended")

    def expect_revocation(self, group_id: str, member: StreamsMember, now_ms: int) -> None:
        reason = f"it has not given up its tasks within {member.rebalance_timeout_ms} ms"
        deadline_ms = now_ms + member.rebalance_timeout_ms
        self._schedule(_rebalance_key(group_id, member.id), group_id, member.id, deadline_ms, reason, member.epoch)

    def _schedule(
        self,
        key: tuple[str, str, str],
        group_id: str,
        member_id: str,
        deadline_ms: int,
        reason: str,
        at_epoch: int | None = None,
    ) -> None:
        def fence(_: int) -> Output:
            output = Output()
            group = self._registry.groups.get(group_id)
            member = group.members.get(member_id) if isinstance(group, StreamsGroup) else None
            if isinstance(group, StreamsGroup) and member is not None and at_epoch in (None, member.epoch):
                output.notes.append(f"member {member_id} of streams group {group_id} is fenced: {reason}")
                self._remove(output, group, member_id)
            return output

        self._registry.timers.schedule(key, deadline_ms, fence)

    def _remove(self, output: Output, group: StreamsGroup, member_id: str) -> None:
        output.records += streams_member_tombstones(group.id, member_id)
        output.records.append(
            streams_epoch_record(
                group.id,
                group.epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
            )
        )

        def on_outcome(code: ErrorCode, now_ms: int) -> Output:
            known = self._registry.groups.get(group.id)
            if not isinstance(known, StreamsGroup) or member_id not in known.members:
                self._registry.timers.cancel(_session_key(group.id, member_id))
                self._registry.timers.cancel(_rebalance_key(group.id, member_id))
            elif code is not ErrorCode.NONE and _session_key(group.id, member_id) not in self._registry.timers:
                # The timer that wanted it out is spent, and the log would not have it.
                self.expect_heartbeat(group.id, member_id, now_ms + _FENCING_RETRY_MS)
            return Output()

        output.on_outcome = on_outcome

    # ── the shard ──

    def replay(self, key: Message, value: Message | None) -> bool:
        """Apply a record; return False if its key is not one of a streams group."""
        if value is None and isinstance(key, StreamsGroupMetadataKey):
            self._empty_since_ms.pop(key.group_id, None)
        return replay_streams_record(self._registry, key, value)

    def resume(self, group: StreamsGroup, now_ms: int) -> None:
        """Begin the sessions of the group's members again, after the shard was loaded."""
        deadline_ms = now_ms + self._session_timeout_ms(group.id)
        for member in group.members.values():
            self.expect_heartbeat(group.id, member.id, deadline_ms)
            if member.state is TaskState.UNREVOKED_TASKS:
                self.expect_revocation(group.id, member, now_ms)


def _session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("streams session", group_id, member_id)


def _rebalance_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("streams rebalance", group_id, member_id)


def _shutdown_status(member_id: str) -> TopologyStatus:
    return TopologyStatus(
        SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
        "application.",
    )


def _update_member(member: StreamsMember, request: StreamsGroupHeartbeatRequest, context: Caller) -> StreamsMember:
    """Return the member with the fields of the request; a field that the request leaves out keeps its value."""
    endpoint, tags = request.user_endpoint, request.client_tags
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=member.user_endpoint if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=member.client_tags if tags is None else tuple(sorted((one.key, one.value) for one in tags)),
        client_id=client_id(context),
        client_host=client_host(context),
    )
