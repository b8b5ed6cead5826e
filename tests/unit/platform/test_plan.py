from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.platform.process_plan import CannotPlan, choose, installed, plan
from pessoa.platform.service_rows import Service

HOME = Path("/home/of/pessoa")


def settings_of(row: Service) -> dict[str, str]:
    words = row.command
    pairs = [words[index + 1].partition("=") for index, word in enumerate(words) if word == "--set"]
    return {key: value for key, _, value in pairs}


def test_three_brokers_and_every_service_have_their_usual_ports() -> None:
    rows = plan(HOME, "c", 3, installed())
    assert [(row.name, row.port) for row in rows[:5]] == [
        ("broker-1", 9092),
        ("broker-2", 29092),
        ("broker-3", 39092),
        ("schema-registry", 8081),
        ("kafka-rest", 8082),
    ]
    assert 19092 in rows[0].more_ports


def test_no_two_processes_get_the_same_port() -> None:
    rows = plan(HOME, "c", 5, installed())
    ports = [port for row in rows for port in (row.port, *row.more_ports)]
    assert len(ports) == len(set(ports))


def test_every_broker_advertises_the_usual_client_listener() -> None:
    for row in plan(HOME, "c", 3, []):
        assert "TUTORIAL://" in settings_of(row)["listeners"]
        assert f"TUTORIAL://127.0.0.1:{row.port}" in settings_of(row)["advertised.listeners"]


def test_all_brokers_have_the_same_voters_and_their_own_directories() -> None:
    rows = plan(HOME, "c", 3, [])
    assert len({settings_of(row)["controller.quorum.voters"] for row in rows}) == 1
    assert [settings_of(row)["log.dirs"] for row in rows] == [str(HOME / f"broker-{n}") for n in (1, 2, 3)]


@pytest.mark.parametrize(("brokers", "replicas"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_internal_topics_have_as_many_replicas_as_there_are_brokers_and_at_most_three(
    brokers: int, replicas: str
) -> None:
    for row in plan(HOME, "c", brokers, []):
        assert settings_of(row)["offsets.topic.replication.factor"] == replicas


def test_a_port_shift_moves_every_port() -> None:
    rows, moved = plan(HOME, "c", 3, installed()), plan(HOME, "c", 3, installed(), shift=100)
    assert [row.port + 100 for row in rows] == [row.port for row in moved]
    assert "127.0.0.1:9192" in " ".join(moved[-1].command)


@pytest.mark.parametrize("shift", [-1, 30_000])
def test_a_port_shift_beyond_65535_is_refused(shift: int) -> None:
    with pytest.raises(CannotPlan, match=f"Ports cannot be shifted by {shift}"):
        plan(HOME, "c", 3, [], shift)


def test_services_are_listed_in_start_order_and_accepted_by_either_name() -> None:
    assert choose(["rest-proxy", "schema-registry"]) == ["schema-registry", "kafka-rest"]
    assert choose([]) == []
    assert choose(None) == installed()


def test_an_unknown_service_is_refused_by_name() -> None:
    with pytest.raises(CannotPlan, match="There is no service called kafak-rest; this installation has schema-reg"):
        choose(["kafak-rest"])


def test_choosing_a_service_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pessoa.platform.process_plan.installed", lambda: ["schema-registry"])
    with pytest.raises(CannotPlan, match="This installation of Pessoa has no connect in it; it has schema-registry"):
        choose(["connect"])


def test_brokers_write_all_logs_but_the_access_log_to_their_own_directories() -> None:
    for number, row in enumerate(plan(HOME, "c", 2, []), start=1):
        assert settings_of(row)["pessoa.logs.dir"] == str(HOME / "logs" / f"broker-{number}")
        assert "access" not in settings_of(row)["pessoa.logs"].split(",")


def test_every_broker_has_a_metrics_port_that_is_shifted_with_the_others() -> None:
    rows = plan(HOME, "c", 3, [], shift=10)
    assert [settings_of(row)["pessoa.metrics.port"] for row in rows] == ["9414", "9415", "9416"]
    assert all(int(settings_of(row)["pessoa.metrics.port"]) in row.more_ports for row in rows)
