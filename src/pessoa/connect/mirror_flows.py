"""The properties file of MirrorMaker 2 as workers and their connectors. Pure.

    clusters = porto, aqui
    porto.bootstrap.servers = kafka.porto:9092          a cluster's clients: porto.security.protocol, …
    aqui.bootstrap.servers = localhost:9092
    porto->aqui.enabled = true                          a flow, which is nothing without this
    porto->aqui.topics = pedidos.*                      a key of this flow; without a prefix it is one of all flows

Each cluster that something flows to has a worker, and each flow into it has three connectors: source, checkpoint,
heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pessoa.base.config_values import ConfigProblem, split_list
from pessoa.web.settings import settings_below

_PACKAGE = "org.apache.kafka.connect.mirror.Mirror"
KINDS = {"source": "SourceConnector", "checkpoint": "CheckpointConnector", "heartbeat": "HeartbeatConnector"}


@dataclass(frozen=True, slots=True)
class MirrorWorker:
    """A worker of the `target` cluster: its settings, and the connectors that mirror to this cluster."""

    target: str
    settings: Mapping[str, str]
    connectors: Mapping[str, Mapping[str, str]]


def mirror_workers(properties: Mapping[str, str], only: Collection[str] = ()) -> list[MirrorWorker]:
    """Return a worker for each target cluster, or only for the clusters in `only`. Raises ConfigProblem."""
    clusters = split_list(properties.get("clusters", ""))
    if len(clusters) < 2:
        raise ConfigProblem("clusters", properties.get("clusters"), "it names two clusters or more: clusters = a, b")
    for name in clusters:
        if f"{name}.bootstrap.servers" not in properties:
            raise ConfigProblem(f"{name}.bootstrap.servers", None, f"it says where the cluster {name} is")
    for name in only:
        if name not in clusters:
            raise ConfigProblem("clusters", properties["clusters"], f"it does not name {name}")
    prefixes = tuple(f"{name}{mark}" for name in clusters for mark in (".", "->"))
    shared = {name: text for name, text in properties.items() if not name.startswith(prefixes) and name != "clusters"}
    flows = [(source, target) for source in clusters for target in clusters if _is_enabled(properties, source, target)]
    if not flows:
        raise ConfigProblem(
            "clusters", properties["clusters"], f"nothing flows: write {clusters[0]}->{clusters[1]}.enabled = true"
        )
    return [
        _worker(properties, shared, target, [source for source, other in flows if other == target])
        for target in clusters
        if any(other == target for _, other in flows) and (not only or target in only)
    ]


def _is_enabled(properties: Mapping[str, str], source: str, target: str) -> bool:
    return source != target and properties.get(f"{source}->{target}.enabled", "false").strip().lower() == "true"


def _worker(properties: Mapping[str, str], shared: Mapping[str, str], target: str, sources: list[str]) -> MirrorWorker:
    connectors = {}
    for source in sources:
        flow = {
            **shared,
            **_cluster_settings(properties, source, "source.cluster."),
            **_cluster_settings(properties, target, "target.cluster."),
            **settings_below(properties, f"{source}->{target}."),
            "source.cluster.alias": source,
            "target.cluster.alias": target,
        }
        flow.pop("enabled", None)
        for kind, name in KINDS.items():
            connectors[f"{source}->{target}-{kind}"] = {**flow, "connector.class": f"{_PACKAGE}{name}"}
    settings = {name: text for name, text in shared.items() if name.startswith(("pessoa.", "listeners", "rest."))}
    return MirrorWorker(target, {**settings, **settings_below(properties, f"{target}.")}, connectors)


def _cluster_settings(properties: Mapping[str, str], cluster: str, prefix: str) -> dict[str, str]:
    return {prefix + name: text for name, text in settings_below(properties, f"{cluster}.").items()}
