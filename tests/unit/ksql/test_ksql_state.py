"""The state of a ksql server after commands, in any order that the command topic can have."""

from __future__ import annotations

import pytest

from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.server.commands import Command, CommandId, UnreadableCommand, decode_command, encode_command
from pessoa.ksql.server.ksql_state import Applied, KsqlState, apply_command

STREAM = "CREATE STREAM S (ID INT KEY, V VARCHAR) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"


def replay(*statements: str) -> Applied:
    state = KsqlState()
    found = None
    for offset, statement in enumerate(statements):
        found = apply_command(state, Command(statement, partitions=3, replicas=1), offset)
        state = found.state
    assert found is not None
    return found


def test_a_query_id_has_its_kind_its_sink_and_its_command_offset() -> None:
    stream = replay(STREAM, "CREATE STREAM B AS SELECT * FROM S EMIT CHANGES;")
    assert (stream.query_id, stream.message) == ("CSAS_B_1", "Created query with ID CSAS_B_1")
    assert replay(STREAM, "CREATE TABLE T AS SELECT V, COUNT(*) FROM S GROUP BY V;").query_id == "CTAS_T_1"
    inserted = replay(STREAM, STREAM.replace(" S ", " B "), "INSERT INTO B SELECT * FROM S;")
    assert inserted.query_id == "INSERTQUERY_2"
    named = replay(STREAM, STREAM.replace(" S ", " B "), "INSERT INTO B WITH (QUERY_ID='mine') SELECT * FROM S;")
    assert named.query_id == "MINE"


def test_the_partition_count_of_a_source_topic_is_that_of_the_command() -> None:
    source = replay(STREAM).source
    assert source is not None
    assert (source.partitions, source.replicas) == (3, 1)


def test_a_source_that_a_query_uses_cannot_be_dropped_until_the_query_ends() -> None:
    made = ("CREATE STREAM B AS SELECT * FROM S EMIT CHANGES;",)
    with pytest.raises(KsqlError, match="read from this source: \\[CSAS_B_1\\]"):
        replay(STREAM, *made, "DROP STREAM S;")
    with pytest.raises(KsqlError, match="You need to drop them"):
        replay(STREAM, *made, "TERMINATE CSAS_B_1;", "DROP STREAM S;")
    gone = replay(STREAM, *made, "DROP STREAM B;", "DROP STREAM S;")
    assert gone.message == "Source `S` (topic: s) was dropped."
    assert not gone.state.queries
    assert not gone.state.catalogue.sources


def test_pause_and_resume_apply_to_one_query_or_to_all() -> None:
    made = ("CREATE STREAM B AS SELECT * FROM S EMIT CHANGES;", "CREATE STREAM C AS SELECT * FROM S EMIT CHANGES;")
    assert replay(STREAM, *made, "PAUSE csas_b_1;").state.paused == {"CSAS_B_1"}
    assert replay(STREAM, *made, "PAUSE ALL;").state.paused == {"CSAS_B_1", "CSAS_C_2"}
    assert replay(STREAM, *made, "PAUSE ALL;", "RESUME CSAS_C_2;").state.paused == {"CSAS_B_1"}
    assert not replay(STREAM, *made, "TERMINATE ALL;").state.queries
    with pytest.raises(KsqlError, match="Unknown queryId: NOPE"):
        replay(STREAM, "TERMINATE NOPE;")


def test_or_replace_keeps_the_id_of_a_query_and_refuses_what_cannot_be_changed() -> None:
    made = (STREAM, "CREATE STREAM B AS SELECT * FROM S WHERE ID > 1 EMIT CHANGES;")
    changed = replay(*made, "CREATE OR REPLACE STREAM B AS SELECT *, UCASE(V) AS U FROM S EMIT CHANGES;")
    assert changed.query_id == "CSAS_B_1"
    assert "UCASE" in changed.state.queries["CSAS_B_1"].sql
    table = "CREATE TABLE T AS SELECT V, COUNT(*) AS C FROM S GROUP BY V;"
    with pytest.raises(KsqlError, match="Upgrades not yet supported for aggregations"):
        replay(STREAM, table, table.replace("CREATE", "CREATE OR REPLACE"))


def test_if_not_exists_changes_nothing() -> None:
    again = replay(STREAM, STREAM.replace("STREAM S", "STREAM IF NOT EXISTS S"))
    assert not again.changed
    assert "already exists" in again.message


def test_a_command_decodes_to_the_encoded_command() -> None:
    key, command = CommandId("stream", "S", "create"), Command(STREAM, {"auto.offset.reset": "earliest"}, 1, 3, 2)
    written = encode_command(key, command)
    assert written[0] == b'"stream/S/create"'
    assert decode_command(*written) == (key, command)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b'"stream/S/create"', None),
        (b'"short"', b'{"statement": "SHOW STREAMS;"}'),
        (b'"stream/S/create"', b'{"statement": "x", "version": 99}'),
        (b'"stream/S/create"', b"\xff"),
    ],
)
def test_a_command_topic_record_that_is_no_command_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnreadableCommand):
        decode_command(key, value)
