"""A session with the ksqlDB client of PyPI: `python pypi_client_session.py URL STREAM`, with the client on PYTHONPATH.

The package is of 2020, and it and its HTTP library import names that Python has removed since; these are restored
first. The client itself is unchanged. What it returns is printed as JSON.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import sys
import types

for name in ("Iterable", "Mapping", "MutableMapping", "MutableSet"):
    setattr(collections, name, getattr(collections.abc, name))
if sys.version_info >= (3, 13):
    sys.modules["telnetlib"] = types.ModuleType("telnetlib")

from ksql import KSQLAPI  # type: ignore[import-not-found]  # noqa: E402
from ksql.errors import KSQLError  # type: ignore[import-not-found]  # noqa: E402
from ksql.utils import drop_stream, get_all_streams  # type: ignore[import-not-found]  # noqa: E402


def main(url: str, stream: str) -> None:
    client = KSQLAPI(url)
    said: dict[str, object] = {"version": client.get_ksql_version()}
    said["properties"] = sorted(one["name"] for one in client.get_properties())
    client.ksql(f"CREATE STREAM {stream} (V VARCHAR, N INT) WITH (KAFKA_TOPIC='{stream}', VALUE_FORMAT='JSON', "
                "PARTITIONS=1);")  # fmt: skip
    said["created"] = client.create_stream(f"{stream}_TOO", ["v varchar", "n int"], stream, "JSON")
    said["inserted"] = client.inserts_stream(stream, [{"V": "a", "N": 1}, {"V": "b", "N": 2}])
    said["derived"] = client.create_stream_as(
        f"{stream}_UPPER", ["UCASE(v) AS v", "n"], stream, f"{stream}_UPPER", "JSON", conditions="n > 1"
    )
    earliest = {"ksql.streams.auto.offset.reset": "earliest"}
    query = f"SELECT V, N FROM {stream} EMIT CHANGES LIMIT 2"
    pieces: list[str] = []
    for piece in client.query(query, stream_properties=earliest):
        pieces.append(piece)
        if "finalMessage" in piece:
            # After the final message the client would read a header of the ended query, and fail.
            break
    said["text"] = "".join(pieces)
    said["objects"] = list(client.query(query, stream_properties=earliest, return_objects=True))
    # The client's HTTP library offers HTTP/2, and speaks HTTP/1.1 with a server that does not take it.
    said["http2"] = "".join(client.query(query, stream_properties={"auto.offset.reset": "earliest"}, use_http2=True))
    said["closed"] = client.close_query("no-such-query")
    said["streams"] = get_all_streams(client, prefix=stream)
    try:
        client.ksql("SELECT nonsense")
    except KSQLError as refused:
        said["refused"] = str(refused)
    drop_stream(client, f"{stream}_UPPER")
    said["left"] = get_all_streams(client, prefix=stream)
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
