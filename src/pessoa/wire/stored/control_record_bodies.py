"""The bodies of control records: transaction markers, and what the metadata quorum writes about itself."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.schema import Message, Struct, array, int16, int32, int64, string, struct, uint16, uuid


class EndTxnMarker(Message, versions="0", flexible="none"):
    coordinator_epoch: int = int32()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+", default=ZERO_UUID)


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    kraft_version: int = int16()


class Endpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


class ControlRecordTypeSchema(Message, versions="0", flexible="none"):
    type: int = int16()
