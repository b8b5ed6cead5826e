"""Entities of a server's answers as text: tables with a row of dashes, and the paragraphs of DESCRIBE.

Pure: entities in, lines out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Entity = dict[str, Any]


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], footer: str = "") -> list[str]:
    """Return a table: heads, dashes, rows, dashes."""
    cells = [[str("" if one is None else one) for one in row] for row in rows]
    split = [[cell.split("\n") for cell in row] for row in cells]
    widths = [
        max([len(head), *(len(part) for row in split for part in row[index])]) for index, head in enumerate(heads)
    ]

    def line(parts: Sequence[str]) -> str:
        return (" " + " | ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True))).rstrip() + " "

    dashes = "-" * (sum(widths) + 3 * (len(widths) - 1) + 2)
    lines = [line(heads), dashes]
    for row in split:
        height = max(len(parts) for parts in row)
        lines += [line([parts[at] if at < len(parts) else "" for parts in row]) for at in range(height)]
    lines.append(dashes)
    return [*lines, *([footer] if footer else [])]


def render(entity: Entity) -> list[str]:
    """Return an entity as lines, its warnings before it."""
    warnings = [f"WARNING: {one.get('message', '')}" for one in entity.get("warnings") or ()]
    show = _SHOWN.get(entity.get("@type", ""))
    return [*warnings, *(show(entity) if show is not None else table(["Message"], [[entity.get("@type", "")]]))]


def type_text(schema: dict[str, Any]) -> str:
    """Return a type as DESCRIBE shows it."""
    kind = schema.get("type", "")
    if kind == "ARRAY":
        return f"ARRAY<{type_text(schema['memberSchema'])}>"
    if kind == "MAP":
        return f"MAP<STRING, {type_text(schema['memberSchema'])}>"
    if kind == "STRUCT":
        return "STRUCT<" + ", ".join(f"{one['name']} {type_text(one['schema'])}" for one in schema["fields"]) + ">"
    if kind == "DECIMAL":
        sizes = schema.get("parameters") or {}
        return f"DECIMAL({sizes.get('precision')}, {sizes.get('scale')})"
    return "VARCHAR(STRING)" if kind == "STRING" else str(kind)


def _message(text: object) -> list[str]:
    return table(["Message"], [[str(text).split("\n")[0]]])


def _status(entity: Entity) -> list[str]:
    return _message(entity["commandStatus"]["message"])


def _sources(kind: str, key: str) -> Callable[[Entity], list[str]]:
    heads = [f"{kind} Name", "Kafka Topic", "Key Format", "Value Format", "Windowed"]

    def show(entity: Entity) -> list[str]:
        return table(heads, [
            [one["name"], one["topic"], one["keyFormat"], one["valueFormat"], str(one["isWindowed"]).lower()]
            for one in entity[key]
        ])  # fmt: skip

    return show


def _topics(entity: Entity) -> list[str]:
    extended = entity["@type"] == "kafka_topics_extended"
    heads = ["Kafka Topic", "Partitions", "Partition Replicas", *(["Consumers", "ConsumerGroups"] if extended else [])]
    rows = []
    for one in entity["topics"]:
        replicas = one["replicaInfo"]
        shown = str(replicas[0]) if len(set(replicas)) == 1 else ", ".join(map(str, replicas))
        more = [one["consumerCount"], one["consumerGroupCount"]] if extended else []
        rows.append([one["name"], len(replicas), shown, *more])
    return table(heads, rows)


def _queries(entity: Entity) -> list[str]:
    heads = ["Query ID", "Query Type", "Status", "Sink Name", "Sink Kafka Topic", "Query String"]
    rows = []
    for one in entity["queries"]:
        status = ", ".join(f"{state}:{count}" for state, count in one["statusCount"].items())
        text = " ".join(one["queryString"].split())
        rows.append(
            [one["id"], one["queryType"], status, ",".join(one["sinks"]), ",".join(one["sinkKafkaTopics"]), text]
        )
    return table(heads, rows, "For detailed information on a Query run: EXPLAIN <Query ID>;")


def _properties(entity: Entity) -> list[str]:
    own = set(entity.get("overwrittenProperties") or ())
    rows = []
    for one in entity["properties"]:
        short = one["name"].removeprefix("ksql.streams.")
        rows.append([one["name"], one["scope"], "SESSION" if short in own else "", one["value"]])
    return table(["Property", "Scope", "Default override", "Effective Value"], rows)


def _connectors(entity: Entity) -> list[str]:
    rows = [[one["name"], one["type"].upper(), one["className"], one["state"]] for one in entity["connectors"]]
    return table(["Connector Name", "Type", "Class", "Status"], rows)


def _connector(entity: Entity) -> list[str]:
    status = entity["status"]
    lines = [
        f"{'Name':<20} : {status.get('name', '')}",
        f"{'Class':<20} : {entity['connectorClass']}",
        f"{'Type':<20} : {status.get('type', '')}",
        f"{'State':<20} : {status.get('connector', {}).get('state', '')}",
        f"{'WorkerId':<20} : {status.get('connector', {}).get('worker_id', '')}",
        "",
    ]
    tasks = [[one["id"], one["state"], one.get("trace", "")] for one in status.get("tasks", ())]
    lines += table(["Task ID", "State", "Error Trace"], tasks)
    if entity["topics"]:
        lines += ["", *table(["Related Topics"], [[one] for one in entity["topics"]])]
    return lines


def _description_lines(source: dict[str, Any]) -> list[str]:
    lines = [f"{'Name':<20} : {source['name']}"]
    if source["extended"]:
        lines += _details(source)
    key = "(primary key)" if source["type"] == "TABLE" else "(key)"
    window = f" (Window type: {source['windowType']})" if source["windowType"] else ""
    roles = {"KEY": f" {key}{window}", "HEADER": " (header)"}
    rows = []
    for one in source["fields"]:
        role = roles.get(one.get("type") or "", "")
        if one.get("headerKey"):
            role = f" (header('{one['headerKey']}'))"
        rows.append([one["name"], f"{type_text(one['schema'])}{role}".ljust(16)])
    lines += ["", *table(["Field", "Type"], rows)]
    if not source["extended"]:
        return [*lines, "For runtime statistics and query details run: DESCRIBE <Stream,Table> EXTENDED;"]
    return lines + _usage(source)


def _details(source: dict[str, Any]) -> list[str]:
    place = f"(partitions: {source['partitions']}, replication: {source['replication']})"
    return [
        f"{'Type':<20} : {source['type']}",
        f"{'Timestamp field':<20} : {source['timestamp'] or 'Not set - using <ROWTIME>'}",
        f"{'Key format':<20} : {source['keyFormat']}",
        f"{'Value format':<20} : {source['valueFormat']}",
        f"{'Kafka topic':<20} : {source['topic']} {place}",
        f"{'Statement':<20} : {source['statement']}",
    ]


def _usage(source: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for title, key in (
        ("Queries that read from this", "readQueries"),
        ("Queries that write from this", "writeQueries"),
    ):
        if source[key]:
            lines += ["", f"{title} {source['type']}", "-" * 35]
            lines += [f"{one['id']} ({one['state']}) : {' '.join(one['queryString'].split())}" for one in source[key]]
            lines += ["", "For query topology and execution plan please run: EXPLAIN <QueryId>"]
    if source["sourceConstraints"]:
        lines += ["", "Sources that have a DROP constraint on this source", "-" * 50, *source["sourceConstraints"]]
    lines += ["", "Local runtime statistics", "-" * 24, source["statistics"] or "-"]
    lines.append(f"(Statistics of the local KSQL server interaction with the Kafka topic {source['topic']})")
    if source["queryOffsetSummaries"]:
        lines += ["", "Consumer Groups summary:"]
    for group in source["queryOffsetSummaries"]:
        lines += ["", f"{'Consumer Group':<20} : {group['groupId']}"]
        for topic in group["topicSummaries"]:
            lines += ["", f"{'Kafka topic':<20} : {topic['kafkaTopic']}"]
            lines += table(["Partition", "Lag"], [[one["partition"], one["lag"]] for one in topic["offsets"]])
    return lines


def _query(query: dict[str, Any]) -> list[str]:
    lines = [f"{'ID':<20} : {query['id']}"] if query["id"] else []
    lines += [f"{'Query Type':<20} : {query['queryType']}", f"{'SQL':<20} : {query['statementText']}"]
    if query["id"]:
        lines.append(f"{'Status':<20} : {query.get('state', '')}")
    for word in ("speed", "why"):
        if query.get(word):
            lines.append(f"{word.capitalize():<20} : {query[word]}")
    rows = [
        [one["name"], type_text(one["schema"]) + (" (key)" if one.get("type") == "KEY" else "")]
        for one in query["fields"]
    ]
    lines += ["", *table(["Field", "Type"], rows), "", "Sources that this query reads from:", "-" * 35]
    lines += query["sources"]
    if query["sinks"]:
        lines += ["", "Sinks that this query writes to:", "-" * 35, *query["sinks"]]
    lines += ["", "Execution plan", "-" * 14, query["executionPlan"]]
    if query["topology"]:
        lines += ["", "Processing topology", "-" * 19, query["topology"]]
    for one in query["queryErrors"]:
        lines += ["", f"Error: {one['errorMessage']}"]
    if query["overriddenProperties"]:
        lines += ["", "Overridden Properties", "-" * 21]
        lines += table(["Property", "Value"], list(query["overriddenProperties"].items()))
    return lines


def _function(entity: Entity) -> list[str]:
    lines = [f"{'Name':<12}: {entity['name']}"]
    for label, key in (("Author", "author"), ("Overview", "description"), ("Type", "type")):
        if entity.get(key):
            lines.append(f"{label:<12}: {entity[key]}")
    lines += ["Variations  : "]
    for one in entity["functions"]:
        lines += ["", f"\tVariation   : {one['signature']}"]
    return lines


def _render_each(show: Callable[[dict[str, Any]], list[str]], key: str) -> Callable[[Entity], list[str]]:
    return lambda entity: [line for one in entity[key] for line in [*show(one), ""]]


_SHOWN: dict[str, Callable[[Entity], list[str]]] = {
    "currentStatus": _status,
    "warning_entity": lambda entity: _message(entity["message"]),
    "streams": _sources("Stream", "streams"),
    "tables": _sources("Table", "tables"),
    "kafka_topics": _topics,
    "kafka_topics_extended": _topics,
    "queries": _queries,
    "properties": _properties,
    "function_names": lambda entity: table(
        ["Function Name", "Category"], [[one["name"], one["category"]] for one in entity["functions"]]
    ),
    "describe_function": _function,
    "type_list": lambda entity: table(
        ["Type Name", "Schema"], [[name, type_text(one)] for name, one in entity["types"].items()]
    ),
    "variables": lambda entity: table(
        ["Variable Name", "Value"], [[one["name"], one["value"]] for one in entity["variables"]]
    ),
    "connector_list": _connectors,
    "connector_description": _connector,
    "connector_info": lambda entity: _message(f"Created connector {entity['info']['name']}"),
    "drop_connector": lambda entity: _message(f'Dropped connector "{entity["connectorName"]}"'),
    "connector_plugins_list": lambda entity: table(
        ["Class", "Type", "Version"],
        [[one["class"], one["type"].upper(), one.get("version", "")] for one in entity["connectorsPlugins"]],
    ),
    "sourceDescription": lambda entity: _description_lines(entity["sourceDescription"]),
    "source_descriptions": _render_each(_description_lines, "sourceDescriptions"),
    "queryDescription": lambda entity: _query(entity["queryDescription"]),
    "query_descriptions": _render_each(_query, "queryDescriptions"),
    "assert_topic": lambda entity: _message(
        f"Topic {entity['topicName']} {'exists' if entity['exists'] else 'does not exist'}."
    ),
    "assert_schema": lambda entity: _message(
        f"Schema {entity['subject'] or entity['id']} {'exists' if entity['exists'] else 'does not exist'}."
    ),
}
