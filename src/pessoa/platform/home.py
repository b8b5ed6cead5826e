"""Where the platform keeps its data and logs, in the home that base/home_folder.py names.

    platform.properties      the cluster's id and its number of brokers, written at the first `pessoa up`
    broker-<n>/              the data of a broker
    logs/<service>.log       what a service prints
    logs/broker-<n>/         the logs that a broker writes itself: access.log, error.log, …
    run.json, run.lock       the platform that is running (run_file.py)

The number of brokers stays what it was at first. The brokers vote about the cluster's metadata by majority: three where
there was one would let two empty ones outvote the one that knows.
"""

from __future__ import annotations

import os
import shutil
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from pessoa.base.properties import MalformedProperties, read_properties

# Less than that and the first segments and indexes of a few topics do not fit.
LEAST_FREE_BYTES = 64 * 1024 * 1024


class HomeProblem(Exception):
    """The home cannot be used; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True)
class Platform:
    cluster_id: str
    brokers: int


def log_path(home: Path, service: str) -> Path:
    return home / "logs" / f"{service}.log"


def prepare(
    home: Path, brokers: int | None, default_brokers: int, least_free_bytes: int = LEAST_FREE_BYTES
) -> Platform:
    """Return the platform of the home, which is created if it is missing. Raises `HomeProblem` if it cannot be used,
    or has another number of brokers."""
    try:
        (home / "logs").mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(home).free
        if free_bytes < least_free_bytes:
            raise HomeProblem(
                f"The disk is full: {home} has {free_bytes // 2**20} MB left, and Pessoa needs"
                f" {least_free_bytes // 2**20} MB to start. Free some space, or set PESSOA_HOME to another disk."
            )
        platform = _read_platform(home)
        if platform is None or not any(home.glob("broker-*/meta.properties")):
            # Before any broker has written, nothing binds: a first start may have failed for want of a port.
            platform = Platform(_find_cluster_id(home) or _new_cluster_id(), brokers or default_brokers)
            _write_platform(home, platform)
    except OSError as failure:
        raise HomeProblem(f"{home} cannot be used for data and logs: {failure.strerror}.") from failure
    if brokers is not None and brokers != platform.brokers:
        raise HomeProblem(
            f"The cluster in {home} has {platform.brokers} brokers, not {brokers}. Start it without --brokers, or set"
            " PESSOA_HOME to an empty directory for another cluster."
        )
    for node_id in range(1, platform.brokers + 1):
        _check_owner(home / f"broker-{node_id}", platform.cluster_id, node_id)
    return platform


def _read_platform(home: Path) -> Platform | None:
    path = home / "platform.properties"
    if not path.exists():
        return None
    found = _properties(path)
    try:
        return Platform(found["cluster.id"], int(found["brokers"]))
    except (KeyError, ValueError):
        raise HomeProblem(f"{path} is damaged: it must say cluster.id=… and brokers=….") from None


def _find_cluster_id(home: Path) -> str | None:
    """Return the cluster id of data that `pessoa broker` left in this home."""
    path = home / "broker-1" / "meta.properties"
    return _properties(path).get("cluster.id") if path.exists() else None


def _new_cluster_id() -> str:
    # Kafka's form of a random UUID: 22 characters of URL-safe base64. A leading dash would look like an option.
    while True:
        text = urlsafe_b64encode(UUID(bytes=os.urandom(16), version=4).bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _write_platform(home: Path, platform: Platform) -> None:
    path = home / "platform.properties"
    fresh = path.with_suffix(".new")
    fresh.write_text(f"cluster.id={platform.cluster_id}\nbrokers={platform.brokers}\n", encoding="utf-8")
    fresh.replace(path)


def _check_owner(directory: Path, cluster_id: str, node_id: int) -> None:
    path = directory / "meta.properties"
    if not path.exists():
        return
    found = _properties(path)
    if found.get("cluster.id") != cluster_id:
        raise HomeProblem(
            f"{directory} belongs to another cluster ({found.get('cluster.id')}, and this one is {cluster_id})."
            " Move that directory away, or set PESSOA_HOME to the home that it came from."
        )
    if found.get("node.id") != str(node_id):
        raise HomeProblem(f"{directory} belongs to broker {found.get('node.id')}, not to broker {node_id}.")


def _properties(path: Path) -> dict[str, str]:
    try:
        return read_properties(path)
    except MalformedProperties as problem:
        raise HomeProblem(f"{path} is damaged: {problem}.") from None
