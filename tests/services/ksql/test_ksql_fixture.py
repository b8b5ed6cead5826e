"""`pessoa.testing.KsqlServer`, the ksql server for tests of users."""

from __future__ import annotations

import pytest

from pessoa.testing import Broker, KsqlServer


def test_the_ksql_server_of_pessoa_testing_runs_statements_and_returns_rows(broker: Broker) -> None:
    with KsqlServer(broker.bootstrap_servers, {"ksql.service.id": "fixture_"}) as ksql:
        ksql.run("CREATE STREAM F (ID INT KEY, V VARCHAR) WITH (KAFKA_TOPIC='f', VALUE_FORMAT='JSON', PARTITIONS=1);")
        ksql.run("INSERT INTO F VALUES (1, 'a');")
        assert ksql.rows("SELECT V, ID FROM F;") == [["a", 1]]
        assert ksql.rows("SELECT COUNT(*) FROM F GROUP BY V EMIT CHANGES LIMIT 1;") == [[1]]
        with pytest.raises(AssertionError, match="G does not exist"):
            ksql.rows("SELECT * FROM G;")
        with pytest.raises(AssertionError, match="Did you mean STREAMS"):
            ksql.run("SHOW STREEMS;")
