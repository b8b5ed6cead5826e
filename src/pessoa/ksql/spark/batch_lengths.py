"""How long the batches of real-time queries are: from 30 to 60 s, by the name of the query.

Between two batches Spark writes the offsets down and plans the next batch, which takes tenths of a second of a core.
Many queries share a Spark. If all batches were of one length, queries that end together would begin the next batch
together, or one right after the other, and end like that for ever: with thirty of them all cores planned for seconds,
every 30 s, while records waited. With lengths of their own they part.

Longer batches would end less often as well. But a query writes its last batch again after a crash or a stop, the
offsets of its group and its lag are those of the last end, and windows are forgotten there.
"""

from __future__ import annotations

import zlib

from pessoa.pipelines.launching import REAL_TIME_BATCH_MS


def batch_ms(query_id: str) -> int:
    """Return the length for a query, which is the same after a restart."""
    return REAL_TIME_BATCH_MS + zlib.crc32(query_id.encode()) % REAL_TIME_BATCH_MS
