"""What `kafka-reassign-partitions` does: generate, execute, verify, cancel and list."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from pessoa.cli.command_line import UsageError
from pessoa.cli.reassign_partitions import (
    ANY,
    BROKER_RATES,
    DIRECTORY_RATE,
    TOPIC_REPLICAS,
    existing_reassignment,
    topic_not_found,
)
from pessoa.client.config_admin import Change, Operation, ResourceType, alter_configs
from pessoa.client.reassignment_admin import (
    alter_reassignments,
    list_reassignments,
    move_directories,
    replica_directories,
)
from pessoa.client.topic_admin import metadata
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pessoa.cli.command_line import Given
    from pessoa.cli.reassign_partitions import Plan
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition
    from pessoa.client.reassignment_admin import Ongoing

Assignment = dict["TopicPartition", list[int]]
# Topic, partition and broker.
Replica = tuple[str, int, int]
Directories = dict[Replica, str]

# As often as Apache's tool asks.
_RETRY_S = 0.1


def list_ongoing(cluster: Cluster) -> int:
    ongoing = list_reassignments(cluster)
    if not ongoing:
        print("No partition reassignments found.")
        return 0
    print("Current partition reassignments:")
    for topic, number in sorted(ongoing):
        one = ongoing[topic, number]
        adding = f" adding: {_ids(one.adding)}." if one.adding else ""
        removing = f" removing: {_ids(one.removing)}." if one.removing else ""
        print(f"{topic}-{number}: replicas: {_ids(one.replicas)}.{adding}{removing}")
    return 0


# Generate.


def generate(cluster: Cluster, topics: list[str], brokers: list[int]) -> int:
    known = {node.node_id for node in cluster.nodes()}
    if unknown := [broker for broker in brokers if broker not in known]:
        raise UsageError(f"Unknown broker id {unknown[0]}")
    current = _assignment(cluster, topics)
    proposed: Assignment = {}
    for topic in topics:
        parts = sorted(number for name, number in current if name == topic)
        factor = len(current[topic, parts[0]])
        if factor > len(brokers):
            raise UsageError(
                f"The target replication factor of {factor} cannot be reached because only {len(brokers)} broker(s) "
                "are registered."
            )
        for number in parts:
            # Leaders in turn, and the other replicas behind them one step further with every round, so that two
            # partitions with one leader do not share all their followers.
            first, shift = number % len(brokers), number // len(brokers) % max(1, len(brokers) - 1)
            followers = [
                (first + 1 + (shift + step) % max(1, len(brokers) - 1)) % len(brokers) for step in range(factor - 1)
            ]
            proposed[topic, number] = [brokers[first], *(brokers[position] for position in followers)]
    print(f"Current partition replica assignment\n{_as_json(cluster, current)}\n")
    print(f"Proposed partition reassignment configuration\n{_as_json(None, proposed)}")
    return 0


def _assignment(cluster: Cluster, topics: Iterable[str]) -> Assignment:
    wanted = sorted(set(topics))
    found = metadata(cluster, wanted, strict=False)
    for name in wanted:
        if name not in {topic.name for topic in found}:
            raise topic_not_found(name)
    return {(topic.name, part.partition): part.replicas for topic in found for part in topic.partitions}


def _as_json(cluster: Cluster | None, assignment: Mapping[TopicPartition, list[int]]) -> str:
    """Return a plan as JSON, with the present log directories of its replicas; without a cluster, with "any"."""
    brokers = {broker for replicas in assignment.values() for broker in replicas}
    paths = replica_directories(cluster, brokers) if cluster is not None else {}
    parts = []
    for topic, number in sorted(assignment):
        replicas = assignment[topic, number]
        log_dirs = [paths.get((topic, number, broker), (ANY, None))[0] for broker in replicas]
        parts.append({"topic": topic, "partition": number, "replicas": replicas, "log_dirs": log_dirs})
    return json.dumps({"version": 1, "partitions": parts}, separators=(",", ":"))


# Execute.


def execute(cluster: Cluster, plan: Plan, given: Given) -> int:
    ongoing = list_reassignments(cluster)
    if ongoing and not given.has("additional"):
        raise existing_reassignment()
    known = {node.node_id for node in cluster.nodes()}
    for move in plan.values():
        if unknown := [broker for broker in move.replicas if broker not in known]:
            raise UsageError(f"Unknown broker id {unknown[0]}")
    current = _assignment(cluster, (topic for topic, _ in plan))
    for topic, number in plan:
        if (topic, number) not in current:
            raise UsageError(f"Unable to find partition: {topic}-{number}")
    shown = _as_json(cluster, {key: current[key] for key in plan})
    print(f"Current partition replica assignment\n\n{shown}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    _throttle(cluster, plan, current, ongoing, given)
    wanted: dict[TopicPartition, list[int] | None] = {key: move.replicas for key, move in plan.items()}
    failed = alter_reassignments(
        cluster, wanted, allow_factor_change=not given.has("disallow-replication-factor-change")
    )
    if failed:
        reasons = "\n".join(f"{topic}-{number}: {failed[topic, number]}" for topic, number in sorted(failed))
        raise UsageError(f"Error reassigning partition(s):\n{reasons}")
    plural = "s" if len(plan) > 1 else ""
    print(f"Successfully started partition reassignment{plural} for {_names(plan)}")
    _move_between_directories(cluster, _directories_in(plan), given)
    return 0


def _throttle(
    cluster: Cluster, plan: Plan, current: Assignment, ongoing: Mapping[TopicPartition, Ongoing], given: Given
) -> None:
    rate, directory_rate = given.number("throttle"), given.number("replica-alter-log-dirs-throttle")
    if rate < 0 and directory_rate < 0:
        return
    print("Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
          "removed.")  # fmt: skip
    if rate >= 0:
        leaders: dict[str, set[str]] = {}
        followers: dict[str, set[str]] = {}
        brokers: set[int] = set()
        # A topic has one list for all its moves, so those under way come along.
        moves = {key: (set(one.replicas) - set(one.adding), set(one.adding)) for key, one in ongoing.items()}
        for key, move in plan.items():
            sources, targets = moves.get(key, (set(current[key]), set()))
            moves[key] = sources, targets | set(move.replicas) - sources
        for (topic, number), (sources, targets) in moves.items():
            leaders.setdefault(topic, set()).update(f"{number}:{broker}" for broker in sources)
            followers.setdefault(topic, set()).update(f"{number}:{broker}" for broker in targets)
            brokers |= sources | targets
        for topic in sorted(leaders):
            values = (leaders[topic], followers[topic])
            changes = [Change(key, ",".join(sorted(value))) for key, value in zip(TOPIC_REPLICAS, values, strict=True)]
            alter_configs(cluster, (ResourceType.TOPIC, topic), changes)
        for broker in sorted(brokers):
            alter_configs(cluster, (ResourceType.BROKER, str(broker)), [Change(key, str(rate)) for key in BROKER_RATES])
        print(f"The inter-broker throttle limit was set to {rate} B/s")
    if directory_rate >= 0:
        for broker in sorted({broker for move in plan.values() for broker in move.replicas}):
            alter_configs(cluster, (ResourceType.BROKER, str(broker)), [Change(DIRECTORY_RATE, str(directory_rate))])
        print(f"The replica-alter-dir throttle limit was set to {directory_rate} B/s")


def _directories_in(plan: Plan) -> Directories:
    """Return the log directories that the plan names for replicas."""
    return {
        (topic, number, broker): path
        for (topic, number), move in plan.items()
        for broker, path in zip(move.replicas, move.log_dirs, strict=True)
        if path != ANY
    }


def _move_between_directories(cluster: Cluster, wanted: Directories, given: Given) -> None:
    """Request every broker to move its replicas between log directories. A broker without such a replica keeps the
    request, and is requested again."""
    left, deadline = dict(wanted), time.monotonic() + given.number("timeout") / 1000
    while left:
        started = []
        for broker in sorted({broker for _, _, broker in left}):
            paths = {(topic, number): path for (topic, number, at), path in left.items() if at == broker}
            failed = move_directories(cluster, broker, paths)
            for (topic, number), failure in failed.items():
                if failure.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                    raise UsageError(f"Failed to alter dir for {topic}-{number}-{broker}: {failure}")
            started += [(*key, broker) for key in paths if key not in failed]
        if started:
            plural = "" if len(started) == 1 else "s"
            print(f"Successfully started log directory move{plural} for: {_replicas(started)}")
        left = {replica: path for replica, path in left.items() if replica not in started}
        if left and time.monotonic() >= deadline:
            plural = "" if len(left) == 1 else "s"
            raise UsageError(f"Timed out before log directory move{plural} could be started for: {_replicas(left)}")
        if left:
            time.sleep(_RETRY_S)


# Verify and cancel.


def verify(cluster: Cluster, plan: Plan, keeps_throttles: bool) -> int:
    ongoing = list_reassignments(cluster)
    found = metadata(cluster, sorted({topic for topic, _ in plan}), strict=False)
    current = {(topic.name, part.partition): part.replicas for topic in found for part in topic.partitions}
    print("Status of partition reassignment:")
    is_done = True
    for topic, number in sorted(plan):
        wanted, replicas = plan[topic, number].replicas, current.get((topic, number), [])
        if (topic, number) in ongoing:
            print(f"Reassignment of partition {topic}-{number} is still in progress.")
            is_done = False
        elif replicas == wanted:
            print(f"Reassignment of partition {topic}-{number} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {topic}-{number}, but replica set is {_ids(replicas)} "
                f"rather than {_ids(wanted)}."
            )
    print()
    is_done = _verify_directories(cluster, plan) and is_done and not ongoing
    if is_done and not keeps_throttles:
        _clear_throttles(cluster, plan)
    return 0


def _verify_directories(cluster: Cluster, plan: Plan) -> bool:
    wanted = _directories_in(plan)
    if not wanted:
        return True
    paths = replica_directories(cluster, {broker for _, _, broker in wanted})
    is_done = True
    for topic, number, broker in sorted(wanted, key=_by_broker):
        path = wanted[topic, number, broker]
        name = f"{topic}-{number}-{broker}"
        now, future = paths.get((topic, number, broker), ("", None))
        if not now:
            print(f"Partition {topic}-{number} is not found in any live log dir on broker {broker}. There is likely an "
                  "offline log directory on the broker.")  # fmt: skip
            is_done = False
        elif future is not None:
            is_done = False
            if future == path:
                print(f"Reassignment of replica {name} is still in progress.")
            else:
                print(
                    f"Partition {topic}-{number} on broker {broker} is being moved to log dir {future} instead of "
                    f"{path}."
                )
        elif now == path:
            print(f"Reassignment of replica {name} completed successfully.")
        else:
            print(f"Partition {topic}-{number} on broker {broker} is not being moved from log dir {now} to {path}.")
    return is_done


def _clear_throttles(cluster: Cluster, plan: Plan) -> None:
    brokers = sorted(node.node_id for node in cluster.nodes())
    print(f"Clearing broker-level throttles on broker{'s' if len(brokers) > 1 else ''} {_ids(brokers)}")
    for broker in brokers:
        changes = [Change(key, "", Operation.DELETE) for key in (*BROKER_RATES, DIRECTORY_RATE)]
        alter_configs(cluster, (ResourceType.BROKER, str(broker)), changes)
    topics = sorted({topic for topic, _ in plan})
    print(f"Clearing topic-level throttles on topic{'s' if len(topics) > 1 else ''} {','.join(topics)}")
    for topic in topics:
        changes = [Change(key, "", Operation.DELETE) for key in TOPIC_REPLICAS]
        alter_configs(cluster, (ResourceType.TOPIC, topic), changes)


def cancel(cluster: Cluster, plan: Plan, given: Given) -> int:
    active = sorted(set(plan) & set(list_reassignments(cluster)))
    if active:
        failed = alter_reassignments(cluster, dict.fromkeys(active))
        if failed:
            reasons = "\n".join(f"{topic}-{number}: {failed[topic, number]}" for topic, number in sorted(failed))
            raise UsageError(f"Error cancelling partition reassignment(s) for:\n{reasons}")
        print(f"Successfully cancelled partition reassignment{'s' if len(active) > 1 else ''} for: {_names(active)}")
    else:
        print("None of the specified partition reassignments are active.")
    moving = _find_moving_replicas(cluster, plan)
    if moving:
        _move_between_directories(cluster, moving, given)
    else:
        # Apache forgets to end this line.
        print("None of the specified partition moves are active.", end="")
    if not given.has("preserve-throttles"):
        _clear_throttles(cluster, plan)
    elif not moving:
        print()
    return 0


def _find_moving_replicas(cluster: Cluster, plan: Plan) -> Directories:
    """Return the replicas of the plan that are moving to another log directory, with their present one."""
    wanted = _directories_in(plan)
    if not wanted:
        return {}
    found = replica_directories(cluster, {broker for _, _, broker in wanted})
    return {key: now for key, (now, future) in found.items() if key in wanted and future is not None}


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _replicas(replicas: Iterable[Replica]) -> str:
    return ",".join(f"{topic}-{number}-{broker}" for topic, number, broker in sorted(replicas, key=_by_broker))


def _by_broker(replica: Replica) -> tuple[int, str, int]:
    topic, number, broker = replica
    return broker, topic, number


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(f"{topic}-{number}" for topic, number in sorted(partitions))
