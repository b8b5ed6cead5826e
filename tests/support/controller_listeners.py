"""Where the controller of a node that runs in the test's process listens."""

from __future__ import annotations

from pessoa.broker.lifecycle import Broker


def bootstrap_controllers(broker: Broker) -> str:
    """Return the addresses of the controller's listeners, as --bootstrap-controller takes them."""
    names = {name.upper() for name in broker.config.controller_listener_names}
    return ",".join(one.listener.address for one in broker.listeners if one.endpoint.name in names)
