"""The same bytes as kio, in both directions, for every message and version that both have.

Messages that only one of the two has are in a table here, so none is left out without notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from kio.schema.errors import ErrorCode as KioErrorCode

from pessoa.wire.codec_compiler import Layout
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.support import kio_oracle
from tests.support.wire_strategies import message_versions, title

THEIRS = kio_oracle.entities()
OURS = message_versions()
SHARED = [(kind, version) for kind, version in OURS if (kind.__name__, version) in THEIRS]
SEEDS = range(max(6, settings().max_examples // 100))

every_shared_message = pytest.mark.parametrize(("kind", "version"), SHARED, ids=title)

# kio has the messages that travel between clients and brokers, and the control records. It leaves out what a broker
# writes for itself: the metadata log, the coordinators' logs, the tiered-storage log, and files.
ONLY_OURS = {
    "pessoa.wire.stored.group_records": 28,
    "pessoa.wire.stored.share_group_records": 12,
    "pessoa.wire.stored.streams_group_records": 12,
    "pessoa.wire.stored.metadata_records": 37,
    "pessoa.wire.stored.producer_entries": 1,
    "pessoa.wire.stored.quorum_state": 2,
    "pessoa.wire.unserved.remote_log_records": 4,
    "pessoa.wire.stored.share_state_records": 4,
    "pessoa.wire.stored.transaction_records": 3,
}


@every_shared_message
def test_kio_decodes_our_messages_and_encodes_the_same_bytes(kind: type[Message], version: int) -> None:
    entity_class = THEIRS[kind.__name__, version]
    for seed in SEEDS:
        message = kio_oracle.ours_within_kio(kind, version, entity_class, Random(seed))
        encoded = message.encode(version)
        entity = kio_oracle.read(entity_class, encoded)
        assert kio_oracle.as_ours(Layout(kind, version), kind, entity) == message, f"seed {seed}"
        assert kio_oracle.written(entity) == encoded, f"seed {seed}"


@every_shared_message
def test_we_decode_kios_messages_and_encode_the_same_bytes(kind: type[Message], version: int) -> None:
    entity_class = THEIRS[kind.__name__, version]
    for seed in SEEDS:
        entity = kio_oracle.entity(entity_class, Random(seed))
        encoded = kio_oracle.written(entity)
        message = kind.decode(encoded, version)
        assert message == kio_oracle.as_ours(Layout(kind, version), kind, entity), f"seed {seed}"
        assert message.encode(version) == encoded, f"seed {seed}"


def test_differences_from_kio_are_those_of_the_table(record_property: Callable[[str, object], None]) -> None:
    ours = {(kind.__name__, version) for kind, version in OURS}
    only_ours = Counter(kind.__module__ for kind, version in OURS if (kind.__name__, version) not in THEIRS)
    # The closing lines of the test run show it.
    record_property(
        "summary",
        f"wire: {len(SHARED)} of {len(OURS)} pairs of message and version were compared with kio in both directions, "
        f"{len(SEEDS)} values each way; kio does not know the other {only_ours.total()}: "
        + ", ".join(f"{module.rpartition('.')[2]} {count}" for module, count in sorted(only_ours.items())),
    )
    assert sorted(THEIRS.keys() - ours) == []
    assert only_ours == ONLY_OURS
    assert len(SHARED) == 625
    assert len(SHARED) + only_ours.total() == len(OURS)


def test_the_error_table_has_kios_names_codes_and_retriability() -> None:
    theirs = {code.name.upper(): (code.value, code.retriable) for code in KioErrorCode}
    assert {code.name: (code.value, code.retriable) for code in ErrorCode} == theirs
