"""Replication flows in MirrorMaker 2's properties file."""

from __future__ import annotations

import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.connect.config_validation import validate
from pessoa.connect.mirror_flows import mirror_workers
from pessoa.connect.plugins import Plugins

FILE = {
    "clusters": "porto, aqui",
    "porto.bootstrap.servers": "kafka.porto:9092",
    "aqui.bootstrap.servers": "localhost:9092",
    "porto.security.protocol": "SSL",
    "porto->aqui.enabled": "true",
    "porto->aqui.topics": "pedidos.*",
    "replication.factor": "1",
    "pessoa.pace.ms": "200",
    "aqui->porto.enabled": "false",
}


def test_a_mirror_flow_has_three_connectors_on_a_worker_of_its_target_cluster() -> None:
    (worker,) = mirror_workers(FILE)
    assert worker.target == "aqui"
    assert worker.settings == {"bootstrap.servers": "localhost:9092", "pessoa.pace.ms": "200"}
    assert list(worker.connectors) == ["porto->aqui-source", "porto->aqui-checkpoint", "porto->aqui-heartbeat"]
    source = worker.connectors["porto->aqui-source"]
    assert source["topics"] == "pedidos.*"
    assert source["source.cluster.security.protocol"] == "SSL"
    assert source["replication.factor"] == "1"
    for name, settings in worker.connectors.items():
        verdict = validate(Plugins(), {"bootstrap.servers": "h:1"}, {"name": name, **settings})
        assert [each.errors for each in verdict.reports if each.errors] == []


def test_two_clusters_may_mirror_each_other_and_one_direction_may_be_run_alone() -> None:
    both = {**FILE, "aqui->porto.enabled": "true"}
    assert [each.target for each in mirror_workers(both)] == ["porto", "aqui"]
    assert [each.target for each in mirror_workers(both, ["aqui"])] == ["aqui"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"clusters": "porto"}, "two clusters"),
        ({"porto->aqui.enabled": "false"}, "nothing flows"),
        ({"clusters": "porto, aqui, faro"}, "where the cluster faro is"),
    ],
)
def test_settings_that_are_missing_in_the_mirror_file_are_named(change: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigProblem, match=why):
        mirror_workers({**FILE, **change})
