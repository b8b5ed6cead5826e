from __future__ import annotations

import pytest
from click.testing import CliRunner

from pessoa.cli.partitions import Measured, partitions, partitions_needed, report
from pessoa.cli.topics import main as kafka_topics
from pessoa.testing import Broker


@pytest.mark.parametrize(
    ("target", "producer", "consumer", "needed"),
    [(100, 10, 20, 10), (100, 20, 10, 10), (5, 10, 20, 1), (101, 10, 50, 11)],
)
def test_the_partition_count_is_that_of_the_slower_side_rounded_up(
    target: float, producer: float, consumer: float, needed: int
) -> None:
    assert partitions_needed(target, Measured(producer, consumer, 1)) == needed


def test_the_recommended_partition_count_is_shown_with_the_numbers_behind_it() -> None:
    text = "\n".join(report(100, Measured(30, 60, 1000)))
    assert "max(t/p, t/c) = max(3.33, 1.67), so 4 partitions." in text


def test_measuring_a_running_cluster_leaves_it_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        words = ["--bootstrap-server", broker.bootstrap_servers, "--target", "50", "--seconds", "0.2"]
        result = CliRunner().invoke(partitions, words)
        assert result.exit_code == 0, result.output
        assert "max(t/p, t/c) = max(" in result.output
        assert kafka_topics(["--bootstrap-server", broker.bootstrap_servers, "--list"]) == 0
    assert "pessoa-partitions" not in capsys.readouterr().out
