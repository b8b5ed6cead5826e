"""The registration, heartbeats, fencing and controlled shutdown of brokers.

    register ──▶ fenced ──heartbeat, caught up──▶ unfenced ──wants to stop──▶ controlled shutdown ──▶ may stop, fenced
                   ▲                                 │
                   └──── no heartbeat for a session ─┘

A registration has a broker epoch, the offset at which it was decided; a request with another epoch comes from an
earlier incarnation of the broker. A broker whose registration names the epoch of its last clean shutdown has lost
nothing (KIP-966); any other may have, so it leaves every ISR and every ELR with its new registration. That holds for
one that was unregistered as well: the image no longer says what it had.

While an incarnation of a broker has a session, no other process can register under its id. A registration alone begins
no session: only heartbeats do.

In a controlled shutdown others take over first: the broker leads nothing more, then every other broker that serves
knows that, and only then is it told to stop. One that leads nothing may stop at once.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from pessoa.controller.assignments import is_reserved
from pessoa.controller.decision import Decision
from pessoa.controller.elections import (
    after_arrival,
    after_departure,
    after_disk_failure,
    after_unclean_shutdown,
)
from pessoa.metadata.cluster_image import BEGIN_CONTROLLED_SHUTDOWN, FENCE, UNFENCE
from pessoa.metadata.supported_features import ELIGIBLE_LEADER_REPLICAS
from pessoa.metadata.table_images import KRAFT_VERSION, METADATA_VERSION
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from pessoa.wire.api.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from pessoa.wire.errors import ErrorCode, Refusal
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

if TYPE_CHECKING:
    from collections.abc import Collection

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
    # The same incarnation registers again, because a response was lost or its listeners changed: it keeps its epoch.
    is_same_incarnation = known is not None and known.incarnation_id == request.incarnation_id
    epoch = situation.next_offset
    fenced, in_controlled_shutdown = True, False
    if known is not None and is_same_incarnation:
        epoch, fenced, in_controlled_shutdown = known.epoch, known.fenced, known.in_controlled_shutdown
    records: list[Message] = []
    if not is_same_incarnation:
        if _stopped_in_order(situation, known, request):
            # It may be back before its session ended. What it led needs a new leader epoch all the same.
            records += after_departure(situation, request.broker_id)
        else:
            records += after_unclean_shutdown(situation, request.broker_id)
    # Last of all: if the batches before it stay alone, the broker registers again, and what they did stands.
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
    sessions, broker_id = situation.sessions, request.broker_id
    return Decision(records, response, None if is_same_incarnation else lambda: sessions.end(broker_id))


def _check_registration(situation: Situation, request: BrokerRegistrationRequest) -> None:
    if request.cluster_id != situation.cluster_id:
        raise Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID)
    known = situation.image.cluster.brokers.get(request.broker_id)
    if known is not None and known.incarnation_id != request.incarnation_id:
        # The last incarnation of this process's own broker is dead, even if its session has not ended.
        is_own = request.incarnation_id == situation.incarnation_id
        if not is_own and situation.sessions.is_alive(known.id, known.epoch, situation.now_ms):
            raise Refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    if request.is_migrating_zk_broker:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, "There is no ZooKeeper to migrate from.")
    _check_directories(situation, request)
    _check_features(situation, request)


def _check_directories(situation: Situation, request: BrokerRegistrationRequest) -> None:
    if not request.log_dirs or len(set(request.log_dirs)) != len(request.log_dirs):
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "A broker has log directories, and each is named once.")
    if any(is_reserved(directory) for directory in request.log_dirs):
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "A log directory has an id that no directory can have.")
    for other in situation.image.cluster.brokers.values():
        if other.id != request.broker_id and set(other.directories) & set(request.log_dirs):
            raise Refusal(ErrorCode.INVALID_REGISTRATION, f"A log directory is that of broker {other.id}.")


def _check_features(situation: Situation, request: BrokerRegistrationRequest) -> None:
    """Raise a Refusal unless the broker supports every feature at the level that the cluster has finalised, 0 if it has
    none."""
    features = situation.image.features
    levels = {**features.finalized, KRAFT_VERSION: features.kraft_version}
    supported = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    for name in (*supported, *(name for name in levels if name not in supported)):
        level, (low, high) = levels.get(name, 0), supported.get(name, (0, 0))
        if name == METADATA_VERSION and name not in supported:
            raise Refusal(ErrorCode.INVALID_REGISTRATION, f"The broker does not say which {name} it supports.")
        if not low <= level <= high:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"{name} is at {level}, and the broker supports {low}-{high}.")


def _stopped_in_order(situation: Situation, known: BrokerImage | None, request: BrokerRegistrationRequest) -> bool:
    if situation.image.features.level(ELIGIBLE_LEADER_REPLICAS) == 0:
        # Before ELR an unclean stop was not looked for.
        return True
    return known is not None and request.previous_broker_epoch == known.epoch


def register_controller(_situation: Situation, request: ControllerRegistrationRequest) -> Decision:
    """Return the record of a controller's listeners and features; it never supports the migration from ZooKeeper."""
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
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


class _State(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    SHUTTING_DOWN = "in controlled shutdown"
    MAY_STOP = "may stop"


def heartbeat(situation: Situation, request: BrokerHeartbeatRequest) -> Decision:
    broker = situation.image.cluster.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        response = BrokerHeartbeatResponse(
            throttle_time_ms=0, error_code=ErrorCode.STALE_BROKER_EPOCH, should_shut_down=False
        )
        return Decision([], response)
    # First the failed directories: this heartbeat must not make the broker the leader of what was in them.
    next_offset = situation.next_offset
    records = _after_disk_failures(situation, broker, request.offline_log_dirs)
    situation = situation.after(records)
    state = _next_state(situation, broker, request)
    records += _transition(situation, broker, state)
    cordoned = request.cordoned_log_dirs
    # Null until the broker has read its configuration.
    if cordoned is not None and not _is_same_set(cordoned, broker.cordoned_directories):
        records.append(_registration_change(broker, cordoned_log_dirs=list(cordoned)))
    response = BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        is_caught_up=_is_caught_up(broker, request),
        is_fenced=state in (_State.FENCED, _State.MAY_STOP),
        should_shut_down=state is _State.MAY_STOP,
    )
    last_offset = next_offset + len(records) - 1
    return Decision(records, response, lambda: _remember(situation, request, state, last_offset))


def _is_caught_up(broker: BrokerImage, request: BrokerHeartbeatRequest) -> bool:
    return request.current_metadata_offset >= broker.epoch


def _next_state(situation: Situation, broker: BrokerImage, request: BrokerHeartbeatRequest) -> _State:
    # A registration cannot say that no directory is left, so a broker without any is kept out as a whole.
    wants_fence = request.want_fence or set(broker.directories) <= set(request.offline_log_dirs)
    if broker.fenced:
        if request.want_shut_down:
            return _State.MAY_STOP
        # A broker in controlled shutdown serves again only as a new incarnation; a late heartbeat does not unfence it.
        is_ready = _is_caught_up(broker, request) and not broker.in_controlled_shutdown
        return _State.UNFENCED if is_ready and not wants_fence else _State.FENCED
    if wants_fence:
        return _State.MAY_STOP if request.want_shut_down else _State.FENCED
    if broker.in_controlled_shutdown:
        may_stop = not _leads(situation, broker) and situation.sessions.all_know_of_shutdown(situation.image, broker.id)
        return _State.MAY_STOP if may_stop else _State.SHUTTING_DOWN
    if request.want_shut_down:
        return _State.SHUTTING_DOWN if _leads(situation, broker) else _State.MAY_STOP
    return _State.UNFENCED


def _leads(situation: Situation, broker: BrokerImage) -> bool:
    return any(
        partition.leader == broker.id
        for topic in situation.image.topics.by_name.values()
        for partition in topic.partitions.values()
    )


def _transition(situation: Situation, broker: BrokerImage, state: _State) -> list[Message]:
    if state in (_State.FENCED, _State.MAY_STOP):
        return [] if broker.fenced else fence(situation, broker, stops=state is _State.MAY_STOP)
    if state is _State.SHUTTING_DOWN:
        if broker.in_controlled_shutdown:
            return []
        begin = _registration_change(broker, in_controlled_shutdown=BEGIN_CONTROLLED_SHUTDOWN)
        return [begin, *after_departure(situation, broker.id)]
    if broker.fenced:
        return [_registration_change(broker, fenced=UNFENCE), *after_arrival(situation, broker.id)]
    return []


def _after_disk_failures(situation: Situation, broker: BrokerImage, offline: list[Uuid]) -> list[Message]:
    """Return the records that remove the broker from the ISRs of the replicas in its failed log directories."""
    lost = [directory for directory in broker.directories if directory in offline]
    if not lost:
        return []
    online = [directory for directory in broker.directories if directory not in offline]
    records: list[Message] = list(after_disk_failure(situation, broker.id, lost))
    if online:
        records.append(_registration_change(broker, log_dirs=online))
    return records


def _is_same_set(directories: list[Uuid], known: tuple[Uuid, ...] | None) -> bool:
    return known is not None and set(directories) == set(known)


def _remember(situation: Situation, request: BrokerHeartbeatRequest, state: _State, last_offset: int) -> None:
    sessions = situation.sessions
    if state is _State.MAY_STOP:
        sessions.end(request.broker_id)
        return
    sessions.touch(request.broker_id, request.broker_epoch, request.current_metadata_offset, situation.now_ms)
    if state is _State.SHUTTING_DOWN:
        sessions.begin_shutdown(request.broker_id, last_offset)


def fence(
    situation: Situation, broker: BrokerImage, absent: Collection[int] = (), *, stops: bool = False
) -> list[Message]:
    """Return the records that fence a broker and elect other leaders, none of them in `absent`.

    With `stops` the broker is marked as shutting down, even if it led nothing and so had no controlled shutdown:
    Metadata goes on to list a broker that only fell silent.
    """
    changes = after_departure(situation, broker.id, absent=absent)
    begins_shutdown = stops and not broker.in_controlled_shutdown
    shutdown = BEGIN_CONTROLLED_SHUTDOWN if begins_shutdown else 0
    return [*changes, _registration_change(broker, fenced=FENCE, in_controlled_shutdown=shutdown)]


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
