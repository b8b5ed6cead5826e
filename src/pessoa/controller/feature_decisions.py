"""UpdateFeatures: raising and lowering what the cluster agrees on (KIP-584).

All updates of a request are done, or none. A level must be one that every registered node supports, and what it builds
upon must be there, or come with the same request. Going down has to be asked for as such. `metadata.version` goes down
only to a level that has a place for every record which may be in the log; to lose some, which an unsafe downgrade would
allow, is not offered by Apache Kafka either. `kraft.version` never goes down: it belongs to the quorum, which writes it
down together with its voters.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from pessoa.controller.config_decisions import CLUSTER_DEFAULT, config_record
from pessoa.controller.decision import Decision
from pessoa.controller.partition_change import MIN_INSYNC_REPLICAS
from pessoa.metadata.image import ConfigResource
from pessoa.metadata.supported_features import BY_NAME, DEPENDENCIES, ELIGIBLE_LEADER_REPLICAS, LEVELS_WITH_NEW_RECORDS
from pessoa.metadata.table_images import KRAFT_VERSION, METADATA_VERSION
from pessoa.wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import ClearElrRecord, FeatureLevelRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.controller.decision import Situation
    from pessoa.wire.schema import Message


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(situation: Situation, request: UpdateFeaturesRequest) -> Decision:
    records: list[Message] = []
    names = [update.feature for update in request.feature_updates]
    try:
        if len(set(names)) != len(names):
            return _error_decision(Refusal(ErrorCode.INVALID_REQUEST, "A feature is named more than once."))
        for update in request.feature_updates:
            records += _update(situation, update)
        _check_dependencies(situation, request.feature_updates)
    except Refusal as refusal:
        return _error_decision(refusal)
    results = [UpdatableFeatureResult(feature=name, error_code=ErrorCode.NONE, error_message=None) for name in names]
    response = UpdateFeaturesResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, results=results
    )
    if request.validate_only:
        return Decision([], response)
    raised = (one.max_version_level for one in request.feature_updates if one.feature == KRAFT_VERSION)
    kraft_version = next((level for level in raised if level > situation.image.features.kraft_version), None)
    return Decision(records, response, kraft_version=kraft_version)


def _error_decision(refusal: Refusal) -> Decision:
    response = UpdateFeaturesResponse(throttle_time_ms=0, error_code=refusal.code, error_message=refusal.text)
    return Decision([], response)


def _update(situation: Situation, update: FeatureUpdateKey) -> list[Message]:
    name, level = update.feature, update.max_version_level
    upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if upgrade_type not in UpgradeType._value2member_map_:
        raise _update_refusal(update, f"there is no kind of upgrade {upgrade_type}")
    features = situation.image.features
    present = features.kraft_version if name == KRAFT_VERSION else features.level(name)
    _check_supported(situation, update)
    if level < present and upgrade_type == UpgradeType.UPGRADE:
        raise _update_refusal(update, f"it is at {present}, and to lower it has to be asked for as a downgrade")
    if level > present and upgrade_type != UpgradeType.UPGRADE:
        raise _update_refusal(update, f"it is at {present}, so this is no downgrade")
    if name == METADATA_VERSION and LEVELS_WITH_NEW_RECORDS.intersection(range(level + 1, present + 1)):
        raise _update_refusal(update, "older levels have no place for all that may be in the metadata log")
    if name == KRAFT_VERSION:
        if level < present:
            raise _update_refusal(update, "no node would know the voters any more")
        problem = situation.kraft_version_problem() if level > present else None
        if problem is not None:
            raise _update_refusal(update, problem)
        return []
    records: list[Message] = [FeatureLevelRecord(name=name, feature_level=level)]
    if name == ELIGIBLE_LEADER_REPLICAS and level > present:
        records += _elr_safety(situation)
    return records


def _check_supported(situation: Situation, update: FeatureUpdateKey) -> None:
    name, level = update.feature, update.max_version_level
    if level < 0:
        raise _update_refusal(update, "a level is not negative")
    own = BY_NAME.get(name)
    if own is None:
        raise _update_refusal(update, "this controller does not know the feature")
    if not own.min_level <= level <= own.max_level:
        raise _update_refusal(update, f"this controller supports {own.min_level}-{own.max_level}")
    for broker in situation.image.cluster.brokers.values():
        low, high = broker.supported_features.get(name, (0, 0))
        if not low <= level <= high:
            raise _update_refusal(update, f"broker {broker.id} supports {low}-{high}")
    for controller in situation.image.cluster.controllers.values():
        low, high = controller.supported_features.get(name, (0, 0))
        if not low <= level <= high:
            raise _update_refusal(update, f"controller {controller.id} supports {low}-{high}")


def _check_dependencies(situation: Situation, updates: Sequence[FeatureUpdateKey]) -> None:
    proposed = {**situation.image.features.finalized} | {one.feature: one.max_version_level for one in updates}
    for update in updates:
        name, least = DEPENDENCIES.get((update.feature, update.max_version_level), (update.feature, 0))
        if proposed.get(name, 0) < least:
            raise _update_refusal(update, f"it needs {name} at {least}, which is at {proposed.get(name, 0)}")


def _elr_safety(situation: Situation) -> list[Message]:
    """Return the records that make min.insync.replicas one value for the cluster, which ELR needs: the values of single
    brokers are removed (KIP-966)."""
    configs = situation.image.configs
    records: list[Message] = [
        config_record(ConfigResource.BROKER, broker, MIN_INSYNC_REPLICAS, None)
        for broker in configs.names(ConfigResource.BROKER)
        if broker != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in configs.of(ConfigResource.BROKER, broker)
    ]
    if MIN_INSYNC_REPLICAS not in configs.of(ConfigResource.BROKER, CLUSTER_DEFAULT):
        value = situation.config.broker_value(MIN_INSYNC_REPLICAS)
        records.append(config_record(ConfigResource.BROKER, CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS, value))
        records.append(ClearElrRecord(topic_name=""))
    return records


def _update_refusal(update: FeatureUpdateKey, why: str) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_UPDATE_VERSION, f"{update.feature} cannot be set to {update.max_version_level}: {why}."
    )
