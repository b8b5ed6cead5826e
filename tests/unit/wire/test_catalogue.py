"""The catalogue, compared with Kafka 4.3's table of APIs, which is copied here by hand."""

from __future__ import annotations

import pytest

from pessoa.wire.catalogue import ApiKey
from pessoa.wire.message_headers import RequestHeader, ResponseHeader
from pessoa.wire.schema import Message, Struct, has_records
from pessoa.wire.versions import Versions
from tests.support.declared_messages import all_messages

# API key, name, versions, flexible versions. A request and its response share them.
TABLE = """
0 Produce 3-13 9+
1 Fetch 4-18 12+
2 ListOffsets 1-11 6+
3 Metadata 0-13 9+
8 OffsetCommit 2-10 8+
9 OffsetFetch 1-10 6+
10 FindCoordinator 0-6 3+
11 JoinGroup 0-9 6+
12 Heartbeat 0-4 4+
13 LeaveGroup 0-5 4+
14 SyncGroup 0-5 4+
15 DescribeGroups 0-6 5+
16 ListGroups 0-5 3+
17 SaslHandshake 0-1 none
18 ApiVersions 0-4 3+
19 CreateTopics 2-7 5+
20 DeleteTopics 1-6 4+
21 DeleteRecords 0-2 2+
22 InitProducerId 0-6 2+
23 OffsetForLeaderEpoch 2-4 4+
24 AddPartitionsToTxn 0-5 3+
25 AddOffsetsToTxn 0-4 3+
26 EndTxn 0-5 3+
27 WriteTxnMarkers 1-2 1+
28 TxnOffsetCommit 0-5 3+
29 DescribeAcls 1-3 2+
30 CreateAcls 1-3 2+
31 DeleteAcls 1-3 2+
32 DescribeConfigs 1-4 4+
33 AlterConfigs 0-2 2+
34 AlterReplicaLogDirs 1-2 2+
35 DescribeLogDirs 1-5 2+
36 SaslAuthenticate 0-2 2+
37 CreatePartitions 0-3 2+
38 CreateDelegationToken 1-3 2+
39 RenewDelegationToken 1-2 2+
40 ExpireDelegationToken 1-2 2+
41 DescribeDelegationToken 1-3 2+
42 DeleteGroups 0-2 2+
43 ElectLeaders 0-2 2+
44 IncrementalAlterConfigs 0-1 1+
45 AlterPartitionReassignments 0-1 0+
46 ListPartitionReassignments 0 0+
47 OffsetDelete 0 none
48 DescribeClientQuotas 0-1 1+
49 AlterClientQuotas 0-1 1+
50 DescribeUserScramCredentials 0 0+
51 AlterUserScramCredentials 0 0+
52 Vote 0-2 0+
53 BeginQuorumEpoch 0-1 1+
54 EndQuorumEpoch 0-1 1+
55 DescribeQuorum 0-2 0+
56 AlterPartition 2-3 0+
57 UpdateFeatures 0-2 0+
58 Envelope 0 0+
59 FetchSnapshot 0-1 0+
60 DescribeCluster 0-2 0+
61 DescribeProducers 0 0+
62 BrokerRegistration 0-4 0+
63 BrokerHeartbeat 0-2 0+
64 UnregisterBroker 0 0+
65 DescribeTransactions 0 0+
66 ListTransactions 0-2 0+
67 AllocateProducerIds 0 0+
68 ConsumerGroupHeartbeat 0-1 0+
69 ConsumerGroupDescribe 0-1 0+
70 ControllerRegistration 0 0+
71 GetTelemetrySubscriptions 0 0+
72 PushTelemetry 0 0+
73 AssignReplicasToDirs 0 0+
74 ListConfigResources 0-1 0+
75 DescribeTopicPartitions 0 0+
76 ShareGroupHeartbeat 1 0+
77 ShareGroupDescribe 1 0+
78 ShareFetch 1-2 0+
79 ShareAcknowledge 1-2 0+
80 AddRaftVoter 0-1 0+
81 RemoveRaftVoter 0 0+
82 UpdateRaftVoter 0 0+
83 InitializeShareGroupState 0 0+
84 ReadShareGroupState 0 0+
85 WriteShareGroupState 0-1 0+
86 DeleteShareGroupState 0 0+
87 ReadShareGroupStateSummary 0-1 0+
88 StreamsGroupHeartbeat 0 0+
89 StreamsGroupDescribe 0 0+
90 DescribeShareGroupOffsets 0-1 0+
91 AlterShareGroupOffsets 0 0+
92 DeleteShareGroupOffsets 0 0+
"""

ROWS = [tuple(line.split()) for line in TABLE.strip().splitlines()]


def test_the_table_and_the_catalogue_have_the_same_apis() -> None:
    assert [(key.value, key.title) for key in ApiKey] == [(int(number), name) for number, name, _, _ in ROWS]


@pytest.mark.parametrize(("number", "name", "versions", "flexible"), ROWS)
def test_an_api_has_the_versions_of_the_table(number: str, name: str, versions: str, flexible: str) -> None:
    key = ApiKey(int(number))
    for message, suffix in ((key.request, "Request"), (key.response, "Response")):
        assert message.__name__ == name + suffix
        assert message.api_key == key
        assert message.versions == Versions.parse(versions)
        assert message.flexible == Versions.parse(flexible)


def test_every_message_is_listed_once() -> None:
    messages = list(all_messages())
    assert len(messages) == len(set(messages)) == 272
    assert len({message.__name__ for message in messages}) == len(messages)
    assert all(issubclass(message, Message) for message in messages)
    assert {RequestHeader, ResponseHeader} < set(messages)


@pytest.mark.parametrize("message", list(all_messages()), ids=lambda message: message.__name__)
def test_the_tags_of_a_struct_are_numbered_from_zero(message: type[Message]) -> None:
    def check(struct: type[Struct]) -> None:
        tags = sorted(field.tag for field in struct.fields if field.tag is not None)
        assert tags == list(range(len(tags))), struct
        for field in struct.fields:
            if field.struct is not None:
                check(field.struct)

    check(message)


def test_responses_with_record_data_are_those_of_the_three_fetching_apis() -> None:
    assert {key for key in ApiKey if has_records(key.response)} == {
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.SHARE_FETCH,
    }
    assert [key for key in ApiKey if has_records(key.request)] == [ApiKey.PRODUCE]
