"""Which of several workers runs the connectors: the one that the group gives the config topic's only partition.

The other workers answer reads from the topics, and forward requests that change something. A worker that loses the
partition keeps it until its tasks have stopped (`client/group_leadership.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pessoa.client.group_leadership import GroupLeadership
from pessoa.connect.clients import client_settings
from pessoa.connect.worker_config import WorkerConfig

log = logging.getLogger("pessoa.connect")


def make_leadership(config: WorkerConfig, changed: Callable[[bool], None]) -> GroupLeadership:
    """Return the worker's membership in the group; `changed` is called with True when this worker becomes leader."""
    timing = {
        "session.timeout.ms": config.settings.get("session.timeout.ms", "10000"),
        "heartbeat.interval.ms": config.settings.get("heartbeat.interval.ms", "3000"),
    }
    settings = {**timing, **client_settings(config.settings, "consumer")}
    return GroupLeadership(settings, config.group_id, config.config_topic, changed, log)
