"""What must hold between the keys of a broker. What each key allows by itself stands in its table.

The rules are Kafka's. A broker that breaks one does not start; a change at run time that breaks one has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.config_table import int_value
from pessoa.base.config_values import ConfigProblem, render
from pessoa.broker.protection import check_protection
from pessoa.broker.sasl_settings import check_sasl
from pessoa.log.topic_config import default_value

if TYPE_CHECKING:
    from pessoa.broker.config import BrokerConfig

# The first must not be more than the second.
_ORDERED = [
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    *(
        pair
        for what in (
            "consumer.session.timeout.ms",
            "consumer.heartbeat.interval.ms",
            "consumer.assignment.interval.ms",
            "share.session.timeout.ms",
            "share.heartbeat.interval.ms",
            "share.assignment.interval.ms",
            "share.record.lock.duration.ms",
            "share.delivery.count.limit",
            "share.partition.max.record.locks",
            "streams.session.timeout.ms",
            "streams.heartbeat.interval.ms",
            "streams.assignment.interval.ms",
        )
        for kind, _, rest in (what.partition("."),)
        for pair in (
            (f"group.{kind}.min.{rest}", f"group.{what}"),
            (f"group.{what}", f"group.{kind}.max.{rest}"),
        )
    ),
]

# Kafka's own, so that one lost heartbeat does not fence a broker.
_HEARTBEATS_PER_SESSION = 2
_WITHOUT_END = -1
_AS_FOR_EVERYTHING = -2
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104


def check(config: BrokerConfig) -> None:
    """Raise a `ConfigProblem` about the first rule that is broken."""
    if config.value("broker.id") != config.node_id:
        raise _problem(config, "broker.id", f"it is the old name of node.id, which is {config.node_id}")
    check_protection(config)
    _check_listeners(config)
    check_sasl(config)
    _check_quorum(config)
    for lower, upper in _ORDERED:
        most = int_value(config, upper)
        if int_value(config, lower) > most:
            raise _problem(config, lower, f"it must not be more than {upper}, which is {most}")
    if config.broker_heartbeat_interval_ms * _HEARTBEATS_PER_SESSION > config.broker_session_timeout_ms:
        allowed = f"half of broker.session.timeout.ms, which is {config.broker_session_timeout_ms}"
        raise _problem(config, "broker.heartbeat.interval.ms", f"it must not be more than {allowed}")
    if config.max_connections_per_ip == 0 and not config.value("max.connections.per.ip.overrides"):
        raise _problem(config, "max.connections.per.ip", "with 0 only max.connections.per.ip.overrides lets anybody in")
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        least = f"socket.request.max.bytes, which is {config.socket_request_max_bytes}"
        raise _problem(config, "queued.max.request.bytes", f"it must not be less than {least}")
    if "classic" not in config.group_coordinator_rebalance_protocols:
        raise _problem(config, "group.coordinator.rebalance.protocols", "classic groups cannot be switched off")
    _check_log_times(config)


def check_at_run_time(config: BrokerConfig) -> None:
    """Check, as `check` does, what Kafka checks only when a setting changes while a broker runs."""
    for unit in ("ms", "bytes"):
        everything, local = default_value(f"retention.{unit}", config), int_value(config, f"log.local.retention.{unit}")
        assert isinstance(everything, int)
        if local == _AS_FOR_EVERYTHING or everything == _WITHOUT_END:
            continue
        if local == _WITHOUT_END or local > everything:
            why = f"what is local cannot be kept for longer than everything, which is {everything}"
            raise _problem(config, f"log.local.retention.{unit}", why)


def _check_log_times(config: BrokerConfig) -> None:
    """Check segment.ms, its jitter and retention.ms, which may have been set in hours or minutes."""
    for name, key, least in (
        ("segment.ms", "log.roll.ms", 1),
        ("segment.jitter.ms", "log.roll.jitter.ms", 0),
    ):
        value = default_value(name, config)
        assert isinstance(value, int)
        if value < least:
            raise ConfigProblem(key, str(value), f"it must be at least {least}")
    if default_value("retention.ms", config) == 0:
        raise ConfigProblem("log.retention.ms", "0", "it must be at least 1, or -1")


def _check_listeners(config: BrokerConfig) -> None:
    names = [one.name for one in config.listeners]
    controllers = [name.upper() for name in config.controller_listener_names]
    ports = [(one.host, one.port) for one in config.listeners if one.port]
    if len(set(ports)) != len(ports):
        raise _problem(config, "listeners", "two listeners have the same address")
    if config.is_controller:
        for name in controllers:
            if name not in names:
                why = f"a controller listens there, so {name} must be among the listeners"
                raise _problem(config, "controller.listener.names", why)
    elif set(names) & set(controllers):
        raise _problem(config, "listeners", "only a controller has the controller's listener")
    if not config.is_broker:
        strange = [name for name in names if name not in controllers]
        if strange:
            why = f"a node that is no broker listens for controllers alone, and {strange[0]} is no listener of theirs"
            raise _problem(config, "listeners", why)
        return
    if config.inter_broker_listener_name in controllers:
        raise _problem(config, "controller.listener.names", "brokers reach each other through another listener")
    advertised = [one for one in config.advertised_listeners if one.name not in controllers]
    if not advertised:
        raise _problem(config, "listeners", "a broker needs a listener beside the controller's")
    if config.inter_broker_listener_name not in [one.name for one in advertised]:
        why = f"brokers reach each other through {config.inter_broker_listener_name}, which must be among them"
        raise _problem(config, "advertised.listeners", why, ",".join(map(str, advertised)))
    for one in advertised:
        if one.name not in names:
            raise _problem(config, "advertised.listeners", f"{one.name} is not among the listeners")
        if one.host in _EVERY_ADDRESS:
            raise _problem(config, "advertised.listeners", "clients need an address that they can reach", str(one))
    if config.value("inter.broker.listener.name") is not None and "security.inter.broker.protocol" in config.static:
        raise _problem(config, "security.inter.broker.protocol", "inter.broker.listener.name is set, and says it all")


def _check_quorum(config: BrokerConfig) -> None:
    voters = [int(voter.partition("@")[0]) for voter in config.controller_quorum_voters]
    if not voters:
        if not config.controller_quorum_bootstrap_servers:
            why = "it, or controller.quorum.voters, must name the controllers"
            raise _problem(config, "controller.quorum.bootstrap.servers", why)
        return
    if config.is_controller and config.node_id not in voters:
        raise _problem(config, "controller.quorum.voters", f"this controller, {config.node_id}, is not among them")
    if not config.is_controller and config.node_id in voters:
        raise _problem(config, "controller.quorum.voters", f"node {config.node_id} is no controller")


def _problem(config: BrokerConfig, name: str, why: str, shown: str | None = None) -> ConfigProblem:
    return ConfigProblem(name, shown if shown is not None else render(config.value(name)), why)
