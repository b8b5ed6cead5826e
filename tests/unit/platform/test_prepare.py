"""A home folder is created at the first start, and checked before every later one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.platform.home import HomeProblem, Platform, prepare


def give_data(home: Path, node_id: int, cluster_id: str) -> Path:
    directory = home / f"broker-{node_id}"
    directory.mkdir(parents=True)
    (directory / "meta.properties").write_text(f"#\nversion=1\ncluster.id={cluster_id}\nnode.id={node_id}\n")
    return directory


def test_a_new_home_gets_a_cluster_id_and_keeps_it(tmp_path: Path) -> None:
    first = prepare(tmp_path / "new", None, 3)
    assert len(first.cluster_id) == 22
    assert first.brokers == 3
    give_data(tmp_path / "new", 1, first.cluster_id)
    assert prepare(tmp_path / "new", None, 1) == first


def test_the_number_of_brokers_of_a_home_without_data_can_be_changed(tmp_path: Path) -> None:
    prepare(tmp_path, 3, 3)
    assert prepare(tmp_path, 1, 3).brokers == 1


def test_data_that_a_single_broker_left_is_adopted(tmp_path: Path) -> None:
    give_data(tmp_path, 1, "the-cluster")
    assert prepare(tmp_path, 1, 3) == Platform("the-cluster", 1)


def test_the_number_of_brokers_of_a_home_with_data_cannot_be_changed(tmp_path: Path) -> None:
    give_data(tmp_path, 1, prepare(tmp_path, 3, 3).cluster_id)
    with pytest.raises(HomeProblem, match=r"has 3 brokers, not 1\. Start it without --brokers"):
        prepare(tmp_path, 1, 3)


def test_a_data_directory_of_another_cluster_gives_one_error_line(tmp_path: Path) -> None:
    give_data(tmp_path, 1, prepare(tmp_path, 3, 3).cluster_id)
    directory = give_data(tmp_path, 2, "elsewhere")
    with pytest.raises(HomeProblem, match=rf"{directory} belongs to another cluster \(elsewhere, and this one is"):
        prepare(tmp_path, None, 3)


def test_the_error_for_a_full_disk_names_the_free_and_the_needed_space(tmp_path: Path) -> None:
    with pytest.raises(HomeProblem, match=r"The disk is full: .* MB left, and Pessoa needs 1152921504606846976 MB"):
        prepare(tmp_path, None, 3, least_free_bytes=2**80)


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeProblem, match="cannot be used for data and logs: Not a directory"):
        prepare(tmp_path / "file", None, 3)


def test_a_damaged_platform_description_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "platform.properties").write_text("brokers=many\n")
    with pytest.raises(HomeProblem, match=r"platform.properties is damaged"):
        prepare(tmp_path, None, 3)
