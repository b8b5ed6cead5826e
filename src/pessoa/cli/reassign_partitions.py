"""`kafka-reassign-partitions`: move partitions to other brokers, with a plan in JSON.

    --generate   a plan for topics and brokers, beside the assignment of today
    --execute    start moving; prints today's assignment first, which is the way back
    --verify     how far each partition is; when all are done, throttles are taken off again
    --cancel     stop what is under way;  --list   what is under way

A plan is `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}`. The
throttle of a move is a setting of brokers (a rate) and of topics (the replicas to which it applies).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pessoa.cli import command_line as line
from pessoa.cli.command_line import LONG, Given, Options, UsageError
from pessoa.cli.tool_run import read_properties, tool
from pessoa.client.client_errors import KafkaFailure, RequestFailed
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition

_ACTIONS = ("generate", "execute", "verify", "cancel", "list")
_ALLOWED = {
    "generate": ("broker-list", "topics-to-move-json-file", "disable-rack-aware"),
    "execute": (
        "reassignment-json-file",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "additional",
        "disallow-replication-factor-change",
    ),
    "verify": ("reassignment-json-file", "preserve-throttles"),
    "cancel": ("reassignment-json-file", "preserve-throttles", "timeout"),
    "list": (),
}
_REQUIRED = {
    "generate": ("broker-list", "topics-to-move-json-file"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
TOPIC_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create "
    "a new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
ANY = "any"


class Move(NamedTuple):
    replicas: list[int]
    log_dirs: list[str]


class Refused(Exception):
    """A refusal whose message is printed without the word Error."""


Plan = dict["TopicPartition", Move]


def make_options() -> Options:
    options = Options("kafka-reassign-partitions", "Move topic partitions between replicas.")
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="Server(s) to use for bootstrapping")
    text("bootstrap-controller", "the controllers to begin with", metavar="bootstrap controller to connect to")
    text("command-config", "a properties file for the connection", metavar="Admin client property file")
    flag("generate", "make a plan")
    flag("execute", "begin a plan")
    flag("verify", "see how far a plan is")
    flag("cancel", "stop a plan")
    flag("list", "list what is being moved")
    text("reassignment-json-file", "the plan", metavar="manual assignment json file path")
    text("topics-to-move-json-file", "the topics to make a plan for", metavar="topics to reassign json file path")
    text("broker-list", "the brokers to move to, with commas", metavar="brokerlist")
    flag("disable-rack-aware", "do not look at racks")
    text("throttle", "bytes a second between brokers", metavar="throttle", default="-1", kind=LONG)
    text("replica-alter-log-dirs-throttle", "the same within a broker", metavar="throttle", default="-1", kind=LONG)
    text("timeout", "how long directories may take to be moved", metavar="timeout", default="10000", kind=LONG)
    flag("additional", "begin although something is being moved")
    flag("preserve-throttles", "leave throttles as they are")
    flag("disallow-replication-factor-change", "refuse a plan that changes the number of replicas")
    text("zookeeper", "from earlier days: means the default cluster", metavar="hosts", hidden=True)
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    action = _check(given)
    try:
        with _connect(given) as cluster:
            return _act(cluster, given, action)
    except Refused as refusal:
        print(refusal)
    except UsageError as error:
        print(f"Error: {error}")
    except KafkaFailure as failure:
        print(f"Error: {failure.java_text}")
    return 1


def _check(given: Given) -> str:
    from pessoa.cli.tool_run import zookeeper_era

    chosen = [name for name in _ACTIONS if given.has(name)]
    if len(chosen) != 1:
        raise UsageError(f"Command must include exactly one action: {', '.join(f'--{name}' for name in _ACTIONS)}")
    if not given.has_any("bootstrap-server", "bootstrap-controller") and not zookeeper_era(given):
        raise UsageError("Please specify either --bootstrap-server or --bootstrap-controller")
    action = chosen[0]
    line.require(given, *_REQUIRED[action])
    for option in {name for names in _ALLOWED.values() for name in names}:
        if given.has(option) and option not in _ALLOWED[action]:
            raise UsageError(f'Option "[{option}]" can\'t be used with action "[{action}]"')
    return action


def _connect(given: Given) -> Cluster:
    from pessoa.cli.tool_run import default_cluster, reach

    settings = read_properties(given.value("command-config")) if given.has("command-config") else {}
    if given.has("bootstrap-controller"):
        return reach(given.value("bootstrap-controller"), settings, controllers=True)
    return reach(given.maybe("bootstrap-server") or default_cluster(), settings)


def _act(cluster: Cluster, given: Given, action: str) -> int:
    from pessoa.cli import reassign_steps as steps

    if action == "list":
        return steps.list_ongoing(cluster)
    if action == "generate":
        topics = _topics(given.value("topics-to-move-json-file"))
        brokers = [int(part) for part in given.value("broker-list").split(",")]
        return steps.generate(cluster, topics, brokers)
    plan = _plan(given.value("reassignment-json-file"))
    if action == "execute":
        return steps.execute(cluster, plan, given)
    if action == "verify":
        return steps.verify(cluster, plan, given.has("preserve-throttles"))
    return steps.cancel(cluster, plan, given)


def existing_reassignment() -> Refused:
    return Refused(_EXISTING)


# Files.


def _json(path: str) -> dict[str, object]:
    from pathlib import Path

    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(f"Unable to read file {path}") from None
    except ValueError as error:
        raise UsageError(f"Failed to parse {path}: {error}") from None
    if not isinstance(content, dict):
        raise UsageError("Unexpected content")
    if content.get("version", 1) != 1:
        raise UsageError(f"Not supported version field value {content['version']}")
    return content


def _topics(path: str) -> list[str]:
    topics = _json(path).get("topics")
    assert isinstance(topics, list) or topics is None
    names = [str(one["topic"]) for one in topics or ()]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise UsageError(f"List of topics to reassign contains duplicate entries: {duplicates}")
    return names


def _plan(path: str) -> Plan:
    parts = _json(path).get("partitions")
    assert isinstance(parts, list) or parts is None
    plan: Plan = {}
    for one in parts or ():
        replicas = [int(broker) for broker in one["replicas"]]
        log_dirs = [str(path) for path in one.get("log_dirs") or [ANY] * len(replicas)]
        key = str(one["topic"]), int(one["partition"])
        if len(log_dirs) != len(replicas):
            raise UsageError(f"Size of replicas list {replicas} is different from size of log dirs list {log_dirs} for "
                             f"partition {key[0]}-{key[1]}")  # fmt: skip
        if key in plan:
            raise UsageError(f"Partition reassignment contains duplicate topic partitions: {key[0]}-{key[1]}")
        if len(set(replicas)) != len(replicas):
            raise UsageError(f"Partition replica lists may not contain duplicate entries: {key[0]}-{key[1]} contains "
                             "multiple entries for " + ",".join(map(str, replicas)))  # fmt: skip
        plan[key] = Move(replicas, log_dirs)
    if not plan:
        raise UsageError("Partition reassignment list cannot be empty")
    return plan


def topic_not_found(name: str) -> RequestFailed:
    return RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found.")
