"""Tokens and words of the language.

A word is a NAME token; whether it is a keyword depends on where it stands, so the parser asks (`TokenCursor.at_word`).
RESERVED words are never names unless quoted; every other word may also name a column or a source.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pessoa.ksql.ksql_errors import Position


class TokenKind(Enum):
    NAME = "name"
    QUOTED_NAME = "quoted name"
    STRING = "string"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    SYMBOL = "symbol"
    END = "end of the statement"


class Token(NamedTuple):
    kind: TokenKind
    # NAME: upper-cased; QUOTED_NAME and STRING: without quotes and doubled quotes; numbers and symbols: as written.
    value: str
    # As written, for messages.
    text: str
    at: Position
    # Where it begins and ends in the text.
    start: int
    end: int


# Longest first: `<>` before `<`.
SYMBOLS = ("<>", "!=", "<=", ">=", "=>", "->", ":=", "||", *"()[],.;=<>+-*/%")

RESERVED = frozenset(
    """
    ADVANCE AND AS BETWEEN BY CASE CAST CREATE DELETE DESCRIBE DISTINCT DROP ELSE END EXISTS FALSE FROM FULL GROUP
    HAVING IN INNER INSERT INTO IS JOIN LEFT LIKE LIMIT NOT NULL ON OR OUTER RIGHT SELECT THEN TRUE VALUES WHEN
    WHERE WITH WITHIN
    """.split()
)
KEYWORDS = RESERVED | frozenset(
    """
    ADD ALL ALTER ARRAY ASSERT AT BEGINNING CHANGES COLUMN CONNECTOR CONNECTORS DEFINE DATE DAY DAYS EMIT ESCAPE
    EXPLAIN EXTENDED FINAL FUNCTION FUNCTIONS GRACE HEADER HEADERS HOPPING HOUR HOURS ID IF INTERVAL KEY LIST MAP
    MILLISECOND MILLISECONDS MINUTE MINUTES PARTITION PAUSE PERIOD PLUGINS PRIMARY PRINT PROPERTIES QUERIES QUERY
    REPLACE RESUME RETENTION RUN SAMPLE SCHEMA SCRIPT SECOND SECONDS SESSION SET SHOW SINK SIZE SOURCE STREAM
    STREAMS STRUCT SUBJECT SYSTEM TABLE TABLES TERMINATE TIME TIMEOUT TIMESTAMP TOPIC TOPICS TUMBLING TYPE TYPES
    UNDEFINE UNSET VARIABLES WINDOW ZONE
    """.split()
)

# Singular, plural → the unit as the tree has it, and its milliseconds.
TIME_UNITS = {
    "DAY": ("DAYS", 86_400_000),
    "HOUR": ("HOURS", 3_600_000),
    "MINUTE": ("MINUTES", 60_000),
    "SECOND": ("SECONDS", 1_000),
    "MILLISECOND": ("MILLISECONDS", 1),
}
UNIT_WORDS = {word: plural for singular, (plural, _) in TIME_UNITS.items() for word in (singular, plural)}
UNIT_MS = dict(TIME_UNITS.values())
