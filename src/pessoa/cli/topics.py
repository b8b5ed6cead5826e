"""`kafka-topics`: list, create, describe, extend and delete topics.

Exactly one of --list, --describe, --create, --alter and --delete. `--topic` is a regular expression wherever topics
are looked for, and a name for --create. A refusal of the cluster is one line on standard output,
`Error while executing topic command : …`, and exit code 1; scripts rely on both.

From the days of ZooKeeper, `--zookeeper`, `--force` and `--disable-rack-aware` are understood: the first means the
default cluster, the others mean nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.cli import command_line as line
from pessoa.cli.command_line import INTEGER, Given, Options, UsageError
from pessoa.cli.tool_run import connect, tool, warn, zookeeper_era
from pessoa.client.client_errors import BadSettings, KafkaFailure, RequestFailed
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.topic_admin import Assignment, PartitionInfo, TopicInfo

# Others are refused before a request is sent, as Apache's tool does; and the shell completes these.
TOPIC_SETTINGS = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
    index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms
    max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms message.timestamp.before.max.ms
    message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
    remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
    segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable
""".split()
_ACTIONS = ("create", "alter", "describe", "list", "delete")
_FILTERS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "topics-with-overrides",
)
_COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


def make_options() -> Options:
    purpose = "Create, delete, describe, or change a topic."
    options = Options("kafka-topics", purpose, greeting=purpose)
    options.text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    options.text("command-config", "a properties file for the connection", metavar="command config property file")
    options.flag("list", "list the topics")
    options.flag("create", "create a topic")
    options.flag("delete", "delete topics")
    options.flag("alter", "change the number of partitions, or where their replicas are")
    options.flag("describe", "show the partitions and settings of topics")
    options.text("topic", "the topic; except for --create a regular expression, in quotes", metavar="topic")
    options.text("topic-id", "the id of the topic to describe", metavar="topic-id")
    options.text("config", "a setting of the topic being created, repeatable", metavar="name=value")
    options.text("partitions", "how many partitions", metavar="# of partitions", kind=INTEGER)
    options.text("replication-factor", "how many replicas", metavar="replication factor", kind=INTEGER)
    options.text(
        "replica-assignment",
        "which brokers hold each partition, the partitions with commas between them",
        metavar="broker_id_for_part1_replica1:broker_id_for_part1_replica2,...",
    )
    options.flag("under-replicated-partitions", "describe only partitions that lack replicas")
    options.flag("unavailable-partitions", "describe only partitions without a leader")
    options.flag("under-min-isr-partitions", "describe only partitions with fewer in-sync replicas than they need")
    options.flag("at-min-isr-partitions", "describe only partitions with just as many in-sync replicas as they need")
    options.flag("topics-with-overrides", "describe only topics with settings of their own")
    options.flag("if-exists", "do nothing if the topic does not exist")
    options.flag("if-not-exists", "do nothing if the topic exists")
    options.flag("exclude-internal", "leave out Kafka's own topics")
    options.text(
        "partition-size-limit-per-response",
        "how many partitions a page of the answer may have",
        metavar="maximum number of partitions per response",
        kind=INTEGER,
    )
    options.text("zookeeper", "from earlier days: means the default cluster", metavar="hosts", hidden=True)
    options.flag("force", "from earlier days", hidden=True)
    options.flag("disable-rack-aware", "from earlier days", hidden=True)
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    _check(given)
    try:
        cluster = connect(given, servers=zookeeper_era(given) or given.value("bootstrap-server"))
    except BadSettings as error:
        warn(f"Failed to create new KafkaAdminClient\n{error.java_text}")
        return 1
    try:
        with cluster:
            return _execute(cluster, given)
    except UsageError as error:
        print(f"Error while executing topic command : {error}")
    except KafkaFailure as failure:
        print(f"Error while executing topic command : {failure}")
        warn(f"ERROR {failure.java_text}")
    return 1


def _check(given: Given) -> None:
    chosen = [name for name in _ACTIONS if given.has(name)]
    if len(chosen) != 1:
        raise UsageError("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if not (given.has("bootstrap-server") or given.has("zookeeper")):
        raise UsageError("--bootstrap-server must be specified", with_help=False)
    if not given.has("list") and not given.has("describe"):
        line.require(given, "topic")
    if given.has("alter"):
        if given.has("config"):
            raise UsageError(
                'Option combination "[[config], [bootstrap-server]]" can\'t be used with option "[alter]" '
                "(To alter topic configurations, the kafka-configs tool can be used.)"
            )
        line.require(given, "partitions")
    _check_combinations(given, chosen[0])


def _check_combinations(given: Given, action: str) -> None:
    """Raise UsageError for options that do not go with the action, in the order in which Kafka checks them."""
    allowed = {
        "config": ("create",),
        "partitions": ("alter", "create"),
        "replication-factor": ("create",),
        "replica-assignment": ("create", "alter"),
    }
    for option, actions in allowed.items():
        if given.has(option) and action not in actions:
            raise UsageError(f'Option "[{option}]" can\'t be used with option "[{action}]"')
    if action == "create":
        line.refuse(given, "replica-assignment", "partitions", "replication-factor")
    for option in _FILTERS:
        others = [name for name in _FILTERS if name != option and option == "topics-with-overrides"]
        if given.has(option):
            if action != "describe":
                raise UsageError(f'Option "[{option}]" can\'t be used with option "[{action}]"')
            line.refuse(given, option, *others)
    for option, actions in (
        ("if-exists", ("alter", "delete", "describe")),
        ("if-not-exists", ("create",)),
        ("exclude-internal", ("list", "describe")),
    ):
        if given.has(option) and action not in actions:
            raise UsageError(f'Option "[{option}]" can\'t be used with option "[{action}]"')


def _execute(cluster: Cluster, given: Given) -> int:
    if given.has("create"):
        _create(cluster, given)
    elif given.has("alter"):
        _alter(cluster, given)
    elif given.has("list"):
        print("\n".join(_match_topics(cluster, given.maybe("topic"), given.has("exclude-internal"))))
    elif given.has("describe"):
        _describe(cluster, given)
    else:
        _delete(cluster, given)
    return 0


def _match_topics(cluster: Cluster, pattern: str | None, exclude_internal: bool = False) -> list[str]:
    """Return the names of the topics that match a pattern, sorted."""
    from pessoa.client.topic_admin import list_topics

    names = sorted(list_topics(cluster, internal=not exclude_internal))
    if pattern is None:
        return names
    # As Kafka's filter of topics: commas are alternatives, quotes around the whole are dropped.
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        expression = re.compile(text)
    except re.error as error:
        raise UsageError(f"{text} is an invalid regex.") from error
    return [name for name in names if expression.fullmatch(name)]


def _must_exist(names: list[str], wanted: str | None, required: bool) -> None:
    if wanted is not None and not names and required:
        raise UsageError(f"Topic '{wanted}' does not exist as expected")


def _create(cluster: Cluster, given: Given) -> None:
    from pessoa.client.topic_admin import NewTopic, create_topic

    name = given.value("topic")
    if "." in name or "_" in name:
        print(_COLLISION_WARNING)
    partitions, factor = given.maybe_number("partitions"), given.maybe_number("replication-factor")
    if factor is not None and not 1 <= factor <= 0x7FFF:
        raise UsageError("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise UsageError("The partitions must be greater than 0")
    assignment = _assignment(given.value("replica-assignment")) if given.has("replica-assignment") else None
    topic = NewTopic(name, partitions or -1, factor or -1, assignment, _settings(given.values("config")))
    if not name:
        raise UsageError("The given topic name '' cannot be represented in a request.")
    try:
        create_topic(cluster, topic)
    except RequestFailed as failure:
        if failure.code is ErrorCode.TOPIC_ALREADY_EXISTS and given.has("if-not-exists"):
            return
        raise
    print(f"Created topic {name}.")


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        # Java cuts at every sign, and forgets an empty end.
        if not equals or not value or "=" in value:
            raise UsageError(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        settings[key.strip()] = value.strip()
    for key in settings:
        if key not in TOPIC_SETTINGS:
            raise UsageError(f"Unknown topic config name: {key}")
    return settings


def _assignment(text: str) -> Assignment:
    """Return the replicas of `0:1,1:2`: partition 0 on the brokers 0 and 1, partition 1 on 1 and 2."""
    assignment: Assignment = []
    for part in text.split(","):
        try:
            brokers = [int(word) for word in part.split(":")]
        except ValueError:
            wrong_word = next(word for word in part.split(":") if not word.strip().lstrip("-").isdigit())
            raise UsageError(f'For input string: "{wrong_word}"') from None
        duplicates = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if duplicates:
            shown = ",".join(map(str, duplicates))
            raise UsageError(f"Partition replica lists may not contain duplicate entries: {shown}")
        if assignment and len(brokers) != len(assignment[0]):
            raise UsageError(f"Partition {len(assignment)} has different replication factor: {brokers}")
        assignment.append(brokers)
    return assignment


def _alter(cluster: Cluster, given: Given) -> None:
    from pessoa.client.topic_admin import create_partitions, describe_topics

    names = _match_topics(cluster, given.value("topic"))
    _must_exist(names, given.value("topic"), not given.has("if-exists"))
    if not names:
        return
    partitions = given.number("partitions")
    assignment = _assignment(given.value("replica-assignment")) if given.has("replica-assignment") else None
    totals: dict[str, tuple[int, Assignment | None]] = {}
    for topic in describe_topics(cluster, names):
        # What is given starts at partition 0, CreatePartitions starts at the first new one.
        totals[topic.name] = partitions, assignment[len(topic.partitions) :] if assignment else None
    create_partitions(cluster, totals)


def _delete(cluster: Cluster, given: Given) -> None:
    from pessoa.client.topic_admin import delete_topics

    names = _match_topics(cluster, given.value("topic"))
    _must_exist(names, given.value("topic"), not given.has("if-exists"))
    if names:
        delete_topics(cluster, names)


def _describe(cluster: Cluster, given: Given) -> None:
    from pessoa.client.topic_admin import describe_topics, topics_by_id

    required = not given.has("if-exists")
    if given.has("topic-id") and (topic_id := _uuid(given.value("topic-id"))) != ZERO_UUID:
        topics = topics_by_id(cluster, [topic_id])
        if not topics and required:
            raise UsageError(f"TopicId '{given.value('topic-id')}' does not exist as expected")
    else:
        wanted = given.maybe("topic") or _topic_without_option(given)
        names = _match_topics(cluster, wanted, given.has("exclude-internal"))
        _must_exist(names, wanted, required)
        topics = describe_topics(cluster, names, given.maybe_number("partition-size-limit-per-response") or 2000)
    _print_topics(cluster, given, topics)


def _topic_without_option(given: Given) -> str | None:
    """Return the words of `--describe orders` as the topic: tutorials write and mean it so, whereas Kafka ignores
    the word and shows all topics."""
    return ",".join(given.words) or None


def _uuid(text: str) -> Uuid:
    import base64

    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise UsageError(f"Illegal base64 character in `{text}`") from None
    if len(raw) != len(ZERO_UUID):
        raise UsageError(
            f"Input string `{text}` decoded as {len(raw)} bytes, which is not equal to the expected "
            "16 bytes of a base64-encoded UUID"
        )
    return Uuid(raw)


def _print_topics(cluster: Cluster, given: Given, topics: list[TopicInfo]) -> None:
    from pessoa.base.java_order import described_order, hash_order, string_hash
    from pessoa.client.config_admin import ResourceType, Source, describe_configs

    if not topics:
        return
    settings = describe_configs(cluster, [(ResourceType.TOPIC, topic.name) for topic in topics])
    reassigned = _reassignments(cluster)
    nodes = {node.node_id for node in cluster.nodes()}
    only_topics = given.has("topics-with-overrides")
    only_partitions = any(given.has(name) for name in _FILTERS if name != "topics-with-overrides")
    for topic in described_order(topics, lambda topic: string_hash(topic.name)):
        entries = settings[ResourceType.TOPIC, topic.name]
        own = [
            entry
            for entry in hash_order(entries, lambda entry: string_hash(entry.name))
            if entry.source is not Source.DEFAULT_CONFIG
        ]
        if not only_partitions and (own or not only_topics):
            print(_topic_line(topic, reassigned, ",".join(f"{entry.name}={entry.value}" for entry in own)))
        if only_topics:
            continue
        minimum = int(next((entry.value or "1" for entry in entries if entry.name == "min.insync.replicas"), "1"))
        for partition in topic.partitions:
            moving = reassigned.get((topic.name, partition.partition))
            if not only_partitions or _is_wanted(given, partition, moving, minimum, nodes):
                print(_partition_line(topic.name, partition, moving))


def _topic_line(topic: TopicInfo, reassigned: Moves, settings: str) -> str:
    first = topic.partitions[0] if topic.partitions else None
    factor = 0
    if first is not None:
        moving = reassigned.get((topic.name, first.partition))
        factor = len(first.replicas) - (len(moving[0]) if moving else 0)
    topic_id = "" if topic.topic_id == ZERO_UUID else f"\tTopicId: {topic.topic_id}"
    return (
        f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}\t"
        f"ReplicationFactor: {factor}\tConfigs: {settings}"
    )


# Of each partition under reassignment, the replicas being added and those being removed.
Moves = dict[tuple[str, int], tuple[list[int], list[int]]]


def _reassignments(cluster: Cluster) -> Moves:
    from pessoa.wire.api.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )

    answer = cluster.ask(
        ListPartitionReassignmentsRequest(timeout_ms=cluster.api_timeout_ms, topics=None),
        ListPartitionReassignmentsResponse,
        name="listPartitionReassignments",
    )
    # A user who may not see the reassignments still gets the rest.
    return {
        (topic.name, part.partition_index): (part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    }


def _is_wanted(
    given: Given, partition: PartitionInfo, moving: tuple[list[int], list[int]] | None, minimum: int, nodes: set[int]
) -> bool:
    target = len(partition.replicas) - (len(moving[0]) if moving else 0)
    has_leader = partition.leader in nodes
    return (
        (given.has("under-replicated-partitions") and target - len(partition.isr) > 0)
        or (given.has("unavailable-partitions") and not has_leader)
        or (given.has("under-min-isr-partitions") and (not has_leader or len(partition.isr) < minimum))
        or (given.has("at-min-isr-partitions") and has_leader and len(partition.isr) == minimum)
    )


def _partition_line(topic: str, partition: PartitionInfo, moving: tuple[list[int], list[int]] | None) -> str:
    leader = "none" if partition.leader < 0 else str(partition.leader)
    text = (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
    )
    if moving is not None:
        text += f"\tAdding Replicas: {_ids(moving[0])}\tRemoving Replicas: {_ids(moving[1])}"
    eligible, last_known = _ids_or_unknown(partition.eligible_leaders), _ids_or_unknown(partition.last_known_eligible)
    return f"{text}\tElr: {eligible}\tLastKnownElr: {last_known}"


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))


def _ids_or_unknown(ids: list[int] | None) -> str:
    return "N/A" if ids is None else _ids(ids)
