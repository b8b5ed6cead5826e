"""Brokers come, say that they live, shut down, and go: registration, heartbeats, fencing.

    register ──▶ fenced ──heartbeat, caught up──▶ unfenced ──wants to stop──▶ controlled shutdown ──▶ may stop, fenced
                   ▲                                 │
                   └──── no heartbeat for a session ─┘

A registration has an epoch, the offset at which it was decided; whatever names another epoch comes from an earlier
life of the broker. A broker that names the epoch it had when it stopped in order has lost nothing (KIP-966); any other
may have, so it leaves every ISR and every ELR with its new registration.

In a controlled shutdown others take over first: the broker leads nothing more, then every other broker knows that, and
only then is it told to stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.controller.decision import Decision, Refusal
from pessoa.controller.elections import (
    after_arrival,
    after_departure,
    after_disk_failure,
    after_unclean_shutdown,
)
from pessoa.metadata.cluster import BEGIN_CONTROLLED_SHUTDOWN, FENCE, UNFENCE
from pessoa.metadata.features import ELIGIBLE_LEADER_REPLICAS
from pessoa.metadata.settings import KRAFT_VERSION
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from pessoa.wire.api.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.controller.decision import Situation
    from pessoa.metadata.image import BrokerImage
    from pessoa.wire.schema import Message


# ---- Registration ----


def register_broker(situation: Situation, request: BrokerRegistrationRequest) -> Decision:
    try:
        _check_registration(situation, request)
    except Refusal as refusal:
        return Decision([], BrokerRegistrationResponse(throttle_time_ms=0, error_code=refusal.code))
    known = situation.image.cluster.brokers.get(request.broker_id)
    # The same process asks again, because an answer was lost or its listeners changed: its life goes on.
    is_same_life = known is not None and known.incarnation_id == request.incarnation_id
    epoch = situation.next_offset
    fenced, in_controlled_shutdown = True, False
    if known is not None and is_same_life:
        epoch, fenced, in_controlled_shutdown = known.epoch, known.fenced, known.in_controlled_shutdown
    records: list[Message] = []
    if known is not None and not is_same_life:
        if not _stopped_in_order(situation, known, request):
            records += after_unclean_shutdown(situation, known.id)
        elif not known.fenced:
            # It is back before anybody missed it. What it led needs a new leader epoch all the same.
            records += after_departure(situation, known.id)
    records.append(
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=one.name,
                    min_supported_version=one.min_supported_version,
                    max_supported_version=one.max_supported_version,
                )
                for one in request.features
            ],
            rack=request.rack,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
            log_dirs=list(request.log_dirs),
        )
    )
    response = BrokerRegistrationResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, broker_epoch=epoch)
    sessions, broker_id, now_ms = situation.sessions, request.broker_id, situation.now_ms
    return Decision(records, response, lambda: sessions.touch(broker_id, epoch, -1, now_ms))


def _check_registration(situation: Situation, request: BrokerRegistrationRequest) -> None:
    if request.cluster_id != situation.cluster_id:
        raise Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID)
    known = situation.image.cluster.brokers.get(request.broker_id)
    is_new_life = known is not None and known.incarnation_id != request.incarnation_id
    if known is not None and is_new_life and situation.sessions.is_alive(known.id, known.epoch, situation.now_ms):
        raise Refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    if request.is_migrating_zk_broker:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, "There is no ZooKeeper to migrate from.")
    if not request.log_dirs or len(set(request.log_dirs)) != len(request.log_dirs):
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "A broker has log directories, and each is named once.")
    for other in situation.image.cluster.brokers.values():
        if other.id != request.broker_id and set(other.directories) & set(request.log_dirs):
            raise Refusal(ErrorCode.INVALID_REGISTRATION, f"A log directory is that of broker {other.id}.")
    supported = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    levels = {**situation.image.features.finalized, KRAFT_VERSION: situation.image.features.kraft_version}
    for name, level in levels.items():
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"{name} is at {level}, and the broker supports {low}-{high}.")


def _stopped_in_order(situation: Situation, known: BrokerImage, request: BrokerRegistrationRequest) -> bool:
    if situation.image.features.level(ELIGIBLE_LEADER_REPLICAS) == 0:
        # Before ELR an unclean stop was not looked for.
        return True
    return request.previous_broker_epoch == known.epoch


def register_controller(_situation: Situation, request: ControllerRegistrationRequest) -> Decision:
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in request.listeners
        ],
        features=[
            ControllerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ],
    )
    response = ControllerRegistrationResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None)
    return Decision([record], response)


def unregister_broker(situation: Situation, request: UnregisterBrokerRequest) -> Decision:
    broker = situation.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        return Decision(
            [],
            UnregisterBrokerResponse(
                throttle_time_ms=0,
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker {request.broker_id} is not registered.",
            ),
        )
    records: list[Message] = list(after_departure(situation, broker.id))
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    response = UnregisterBrokerResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None)
    sessions, broker_id = situation.sessions, broker.id
    return Decision(records, response, lambda: sessions.end(broker_id))


# ---- Heartbeats ----


def heartbeat(situation: Situation, request: BrokerHeartbeatRequest) -> Decision:
    broker = situation.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        return _not_counted(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != request.broker_epoch:
        return _not_counted(ErrorCode.STALE_BROKER_EPOCH)
    is_caught_up = request.current_metadata_offset >= broker.epoch
    records: list[Message] = []
    cordoned = request.cordoned_log_dirs
    if cordoned is not None and tuple(cordoned) != broker.cordoned_directories:
        records.append(_registration_change(broker, cordoned_log_dirs=list(cordoned)))
    records += _after_disk_failures(situation, broker, request.offline_log_dirs)
    fenced, should_shut_down = broker.fenced, False
    if request.want_shut_down:
        if broker.fenced or request.want_fence or _may_stop(situation, broker):
            should_shut_down = True
            fenced = True
        elif not broker.in_controlled_shutdown:
            records.append(_registration_change(broker, in_controlled_shutdown=BEGIN_CONTROLLED_SHUTDOWN))
            records += after_departure(situation, broker.id)
    elif request.want_fence:
        fenced = True
    elif is_caught_up:
        fenced = False
    if fenced and not broker.fenced:
        records += fence(situation, broker)
    elif broker.fenced and not fenced:
        records.append(_registration_change(broker, fenced=UNFENCE))
        records += after_arrival(situation, broker.id)
    response = BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        is_caught_up=is_caught_up,
        is_fenced=fenced,
        should_shut_down=should_shut_down,
    )
    return Decision(records, response, lambda: _remember(situation, request, fenced, len(records)))


def _after_disk_failures(situation: Situation, broker: BrokerImage, offline: list[Uuid]) -> list[Message]:
    """The broker lost log directories: the replicas on them are out of sync."""
    lost = [directory for directory in broker.directories if directory in offline]
    if not lost:
        return []
    online = [directory for directory in broker.directories if directory not in offline]
    records: list[Message] = [_registration_change(broker, log_dirs=online)]
    records += after_disk_failure(situation, broker.id, lost)
    return records


def _remember(situation: Situation, request: BrokerHeartbeatRequest, fenced: bool, record_count: int) -> None:
    sessions = situation.sessions
    if fenced and request.want_shut_down:
        sessions.end(request.broker_id)
        return
    sessions.touch(request.broker_id, request.broker_epoch, request.current_metadata_offset, situation.now_ms)
    if request.want_shut_down:
        sessions.begin_shutdown(request.broker_id, situation.next_offset + record_count - 1)


def _may_stop(situation: Situation, broker: BrokerImage) -> bool:
    """Whether the broker leads nothing, and everybody else knows."""
    leads = any(
        partition.leader == broker.id
        for topic in situation.image.topics.by_name.values()
        for partition in topic.partitions.values()
    )
    if leads:
        return False
    return not broker.in_controlled_shutdown or situation.sessions.everybody_saw(situation.image, broker.id)


def fence(situation: Situation, broker: BrokerImage) -> list[Message]:
    """What it takes to do without a broker."""
    return [*after_departure(situation, broker.id), _registration_change(broker, fenced=FENCE)]


def _registration_change(
    broker: BrokerImage,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: list[Uuid] | None = None,
    cordoned_log_dirs: list[Uuid] | None = None,
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=log_dirs or [],
        cordoned_log_dirs=cordoned_log_dirs,
    )


def _not_counted(code: ErrorCode) -> Decision:
    return Decision([], BrokerHeartbeatResponse(throttle_time_ms=0, error_code=code, should_shut_down=False))
