"""The brokers and controllers that have registered with the cluster.

A broker registers when it starts, and gets an epoch: the offset of its registration. It is fenced (no leader, not in
Metadata responses) until its heartbeats show that it has caught up, and again when they stop; a record that names
another epoch than the registered one was decided about an earlier incarnation of the broker, and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.ids import Uuid
    from pessoa.wire.stored.metadata_records import (
        BrokerEndpoint,
        BrokerFeature,
        BrokerRegistrationChangeRecord,
        ControllerEndpoint,
        ControllerFeature,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        UnregisterBrokerRecord,
    )

# In a BrokerRegistrationChangeRecord.
FENCE = 1
UNFENCE = -1
BEGIN_CONTROLLED_SHUTDOWN = 1


class Endpoint(NamedTuple):
    host: str
    port: int
    security_protocol: int


class SupportedVersions(NamedTuple):
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    id: int
    epoch: int
    incarnation_id: Uuid
    listeners: Mapping[str, Endpoint]
    supported_features: Mapping[str, SupportedVersions]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    # None if no registration record of the broker had this field.
    cordoned_directories: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True)
class ControllerImage:
    id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: Mapping[str, Endpoint]
    supported_features: Mapping[str, SupportedVersions]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    brokers: Mapping[int, BrokerImage]
    controllers: Mapping[int, ControllerImage]


NO_CLUSTER = ClusterImage({}, {})


class ClusterDelta:
    """The changes of brokers and controllers since an image; None stands for a broker that was unregistered."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.changed_brokers: dict[int, BrokerImage | None] = {}
        self.changed_controllers: dict[int, ControllerImage] = {}

    def replay_register(self, record: RegisterBrokerRecord) -> None:
        cordoned = record.cordoned_log_dirs
        self.changed_brokers[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners=_listeners(record.end_points),
            supported_features=_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=None if cordoned is None else tuple(cordoned),
        )

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        self._registered_broker(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = None

    def replay_fence(self, broker_id: int, broker_epoch: int, fenced: bool) -> None:
        broker = self._registered_broker(broker_id, broker_epoch)
        self.changed_brokers[broker_id] = replace(broker, fenced=fenced)

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered_broker(record.broker_id, record.broker_epoch)
        if record.fenced in (FENCE, UNFENCE):
            broker = replace(broker, fenced=record.fenced == FENCE)
        if record.in_controlled_shutdown == BEGIN_CONTROLLED_SHUTDOWN:
            broker = replace(broker, in_controlled_shutdown=True)
        if record.log_dirs:
            broker = replace(broker, directories=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = replace(broker, cordoned_directories=tuple(record.cordoned_log_dirs))
        self.changed_brokers[record.broker_id] = broker

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = ControllerImage(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            listeners=_listeners(record.end_points),
            supported_features=_features(record.features),
        )

    def finish(self) -> ClusterImage:
        if not self.changed_brokers and not self.changed_controllers:
            return self.image
        brokers = dict(self.image.brokers)
        for broker_id, broker in self.changed_brokers.items():
            if broker is None:
                brokers.pop(broker_id, None)
            else:
                brokers[broker_id] = broker
        controllers = {**self.image.controllers, **self.changed_controllers}
        return ClusterImage(dict(sorted(brokers.items())), dict(sorted(controllers.items())))

    def _registered_broker(self, broker_id: int, epoch: int) -> BrokerImage:
        if broker_id in self.changed_brokers:
            broker = self.changed_brokers[broker_id]
        else:
            broker = self.image.brokers.get(broker_id)
        assert broker is not None, f"broker {broker_id} is not registered"
        assert broker.epoch == epoch, f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}"
        return broker


def _listeners(endpoints: list[BrokerEndpoint] | list[ControllerEndpoint]) -> dict[str, Endpoint]:
    return {one.name: Endpoint(one.host, one.port, one.security_protocol) for one in endpoints}


def _features(features: list[BrokerFeature] | list[ControllerFeature]) -> dict[str, SupportedVersions]:
    return {one.name: SupportedVersions(one.min_supported_version, one.max_supported_version) for one in features}
