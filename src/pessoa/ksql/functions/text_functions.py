"""Text: cases, pieces, padding, search, encodings."""

from __future__ import annotations

import hashlib
import re
import uuid
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable
from typing import TypeVar

from pessoa.ksql.functions.function_rows import EvaluationContext, Function, function, variant
from pessoa.ksql.types.sql_types import EvaluationFailure

_CATEGORY = "STRING"
# What a padding may grow to.
_LONGEST = 10_000_000
# The characters that Java's trim takes away: everything up to the blank.
_BLANK = "".join(map(chr, range(33)))
_ESCAPES = re.compile(r"\\u([0-9A-Fa-f]{4})")
# Only 0x may have an odd number of digits.
_HEX = re.compile(r"0[xX](?P<any>[0-9A-Fa-f]*)|(?P<bare>(?:[0-9A-Fa-f]{2})*)|[xX]'(?P<quoted>(?:[0-9A-Fa-f]{2})*)'")

Chain = TypeVar("Chain", str, bytes)


def _character(code: int | str) -> str:
    if isinstance(code, int):
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise EvaluationFailure(f"{code} is no Unicode code point")
        return chr(code)
    units = "".join(_ESCAPES.findall(code))
    if not units or len(units) * 6 != len(code) * 4:
        raise EvaluationFailure(f"{code} is no Unicode escape")
    return bytes.fromhex(units).decode("utf-16-be", "replace")


def _concat(*parts: str | None) -> str:
    return "".join(part for part in parts if part is not None)


def _concat_bytes(*parts: bytes | None) -> bytes:
    return b"".join(part for part in parts if part is not None)


def _concat_ws(separator: str | None, *parts: str | None) -> str | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def _concat_ws_bytes(separator: bytes | None, *parts: bytes | None) -> bytes | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def decode(text: str, encoding: str) -> bytes:
    """Return the bytes that a text in hex, utf8, ascii or base64 stands for."""
    try:
        match encoding.lower():
            case "hex":
                found = _HEX.fullmatch(text)
                if found is None:
                    raise EvaluationFailure(f"{text} is not hexadecimal")
                digits = found["any"] or found["bare"] or found["quoted"] or ""
                return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
            case "utf8":
                return text.encode()
            case "ascii":
                return text.encode("ascii", "replace")
            case "base64":
                return b64decode(text, validate=True)
    except (BadBase64, ValueError):
        raise EvaluationFailure(f"{text} is not {encoding}") from None
    raise EvaluationFailure(f"Unsupported encoding {encoding}. Supported: hex, utf8, ascii, base64")


def encode(data: bytes, encoding: str) -> str:
    """Return bytes as text in hex, utf8, ascii or base64."""
    match encoding.lower():
        case "hex":
            return data.hex()
        case "utf8":
            return data.decode("utf-8", "replace")
        case "ascii":
            return data.decode("ascii", "replace")
        case "base64":
            return b64encode(data).decode()
    raise EvaluationFailure(f"Unsupported encoding {encoding}. Supported: hex, utf8, ascii, base64")


def _from_bytes(data: bytes, encoding: str) -> str:
    # ENCODE writes hex in small letters, FROM_BYTES in capitals.
    return data.hex().upper() if encoding.lower() == "hex" else encode(data, encoding)


def _initcap(text: str) -> str:
    return re.sub(r"\S+", lambda word: word[0][:1].upper() + word[0][1:].lower(), text)


def instr(text: str | None, part: str | None, position: int | None = 1, occurrence: int | None = 1) -> int:
    """Return where the part begins, from 1; 0 if nowhere. A negative position searches backwards from the end."""
    if text is None or part is None or not position or occurrence is None or occurrence < 1:
        return 0
    if position > 0:
        found = position - 2
        for _ in range(occurrence):
            found = text.find(part, found + 1)
            if found < 0:
                return 0
        return found + 1
    start = len(text) + position
    for _ in range(occurrence):
        # The part may begin at `start` at the latest.
        found = text.rfind(part, 0, start + len(part)) if start >= 0 else -1
        if found < 0:
            return 0
        start = found - 1
    return found + 1


def _pad(left: bool) -> Callable[[Chain, int, Chain], Chain | None]:
    def padded(value: Chain, length: int, padding: Chain) -> Chain | None:
        if length < 0 or not padding:
            return None
        if length > _LONGEST:
            raise EvaluationFailure(f"a padding to {length} is too long")
        missing = length - len(value)
        if missing <= 0:
            return value[:length]
        fill = (padding * (missing // len(padding) + 1))[:missing]
        return fill + value if left else value + fill

    return padded


def substring(value: Chain, position: int, length: int | None = None) -> Chain:
    """Return the part from a position, 1-based; 0 is the beginning too, a negative one counts from the end."""
    size = len(value)
    start = position - 1 if position > 0 else 0 if position == 0 else max(0, size + position)
    start = min(start, size)
    return value[start:] if length is None else value[start : start + max(0, length)]


def _split(text: str, delimiter: str) -> list[str]:
    return list(text) if not delimiter else text.split(delimiter)


def _split_bytes(data: bytes, delimiter: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))] if not delimiter else data.split(delimiter)


def _split_to_map(text: str, entries: str, pair: str) -> dict[str, str] | None:
    if not entries or not pair:
        return None
    found: dict[str, str] = {}
    for entry in text.split(entries):
        key, sign, value = entry.partition(pair)
        if sign:
            found[key] = value
    return found


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(errors="replace"), usedforsecurity=False).hexdigest()


def _uuid(around: EvaluationContext) -> str:
    return str(uuid.UUID(bytes=around.octets(16), version=4))


def _uuid_of(data: bytes) -> str | None:
    return str(uuid.UUID(bytes=data)) if len(data) == 16 else None


def _elt(position: int | None, *values: str | None) -> str | None:
    return values[position - 1] if position is not None and 1 <= position <= len(values) else None


def _field(wanted: str | None, *values: str | None) -> int:
    return 0 if wanted is None or wanted not in values else values.index(wanted) + 1


ROWS: list[Function] = [
    function(
        "CHR",
        _CATEGORY,
        "The character of a code point, or of a Unicode escape.",
        ["CHR(75) = 'K'", r"CHR('\u004b') = 'K'"],
        variant("(INTEGER) STRING", _character),
        variant("(STRING) STRING", _character),
    ),
    function(
        "CONCAT",
        _CATEGORY,
        "The arguments one behind the other; nulls are skipped.",
        ["CONCAT('a', NULL, 'b') = 'ab'", "CONCAT(NULL, NULL) = ''"],
        variant("(STRING...) STRING", _concat, sees_null=True),
        variant("(BYTES...) BYTES", _concat_bytes, sees_null=True),
    ),
    function(
        "CONCAT_WS",
        _CATEGORY,
        "The arguments with a separator between them; nulls are skipped.",
        ["CONCAT_WS('-', 'a', NULL, 'b') = 'a-b'"],
        variant("(STRING, STRING...) STRING", _concat_ws, sees_null=True),
        variant("(BYTES, BYTES...) BYTES", _concat_ws_bytes, sees_null=True),
    ),
    function(
        "ENCODE",
        _CATEGORY,
        "Text from one of hex, utf8, ascii, base64 into another.",
        ["ENCODE('4578616d706c65', 'hex', 'ascii') = 'Example'", "ENCODE('abc', 'utf8', 'base64') = 'YWJj'"],
        variant("(STRING, STRING, STRING) STRING", lambda text, source, target: encode(decode(text, source), target)),
    ),
    function(
        "TO_BYTES",
        _CATEGORY,
        "The bytes that a text in hex, utf8, ascii or base64 stands for.",
        ["LEN(TO_BYTES('00ff', 'hex')) = 2"],
        variant("(STRING, STRING) BYTES", decode),
    ),
    function(
        "FROM_BYTES",
        _CATEGORY,
        "Bytes as text in hex, utf8, ascii or base64.",
        ["FROM_BYTES(TO_BYTES('1aB2', 'hex'), 'hex') = '1AB2'"],
        variant("(BYTES, STRING) STRING", _from_bytes),
    ),
    function(
        "INITCAP",
        _CATEGORY,
        "Every word with a capital at its beginning.",
        ["INITCAP('the QUICK fox') = 'The Quick Fox'"],
        variant("(STRING) STRING", _initcap),
    ),
    function(
        "INSTR",
        _CATEGORY,
        "Where a part begins, from 1; 0 if nowhere. Optional: from where, and the n-th time.",
        [
            "INSTR('CORPORATE FLOOR', 'OR') = 2",
            "INSTR('CORPORATE FLOOR', 'OR', 3, 2) = 14",
            "INSTR('CORPORATE FLOOR', 'OR', -3) = 5",
            "INSTR(CAST(NULL AS STRING), 'a') = 0",
        ],
        variant("(STRING, STRING) INTEGER", instr, sees_null=True),
        variant("(STRING, STRING, INTEGER) INTEGER", instr, sees_null=True),
        variant("(STRING, STRING, INTEGER, INTEGER) INTEGER", instr, sees_null=True),
    ),
    function("LCASE", _CATEGORY, "In small letters.", ["LCASE('AbC') = 'abc'"], variant("(STRING) STRING", str.lower)),
    function("UCASE", _CATEGORY, "In capitals.", ["UCASE('AbC') = 'ABC'"], variant("(STRING) STRING", str.upper)),
    function(
        "LEN",
        _CATEGORY,
        "The number of characters, or of bytes.",
        ["LEN('abc') = 3"],
        variant("(STRING) INTEGER", len),
        variant("(BYTES) INTEGER", len),
    ),
    function(
        "LPAD",
        _CATEGORY,
        "Filled up to a length on the left; cut if longer.",
        ["LPAD('7', 3, '0') = '007'", "LPAD('abcd', 2, 'x') = 'ab'", "LPAD('a', 2, '') IS NULL"],
        variant("(STRING, INTEGER, STRING) STRING", _pad(left=True)),
        variant("(BYTES, INTEGER, BYTES) BYTES", _pad(left=True)),
    ),
    function(
        "RPAD",
        _CATEGORY,
        "Filled up to a length on the right; cut if longer.",
        ["RPAD('ab', 5, 'xy') = 'abxyx'"],
        variant("(STRING, INTEGER, STRING) STRING", _pad(left=False)),
        variant("(BYTES, INTEGER, BYTES) BYTES", _pad(left=False)),
    ),
    function(
        "MD5",
        _CATEGORY,
        "The MD5 digest of a text, in hex.",
        ["MD5('') = 'd41d8cd98f00b204e9800998ecf8427e'"],
        variant("(STRING) STRING", _md5),
    ),
    function(
        "REPLACE",
        _CATEGORY,
        "Every occurrence of a part replaced.",
        ["REPLACE('banana', 'an', 'o') = 'booa'"],
        variant("(STRING, STRING, STRING) STRING", lambda text, old, new: text.replace(old, new)),
    ),
    function(
        "SPLIT",
        _CATEGORY,
        "The pieces between a delimiter (no pattern); '' splits into characters.",
        ["SPLIT('a.b.', '.') = ARRAY['a', 'b', '']", "SPLIT('ab', '') = ARRAY['a', 'b']"],
        variant("(STRING, STRING) ARRAY<STRING>", _split),
        variant("(BYTES, BYTES) ARRAY<BYTES>", _split_bytes),
    ),
    function(
        "SPLIT_TO_MAP",
        _CATEGORY,
        "Pairs of key and value, given what stands between pairs and in them.",
        ["SPLIT_TO_MAP('a=1;b=2', ';', '=') = MAP('a' := '1', 'b' := '2')"],
        variant("(STRING, STRING, STRING) MAP<STRING, STRING>", _split_to_map),
    ),
    function(
        "SUBSTRING",
        _CATEGORY,
        "The part from a position, 1-based, negative from the end; optionally so long.",
        [
            "SUBSTRING('stream', 2) = 'tream'",
            "SUBSTRING('stream', 2, 3) = 'tre'",
            "SUBSTRING('stream', -2) = 'am'",
            "SUBSTRING('stream', 0, 1) = 's'",
            "SUBSTRING('ab', -5) = 'ab'",
        ],
        variant("(STRING, INTEGER) STRING", substring),
        variant("(STRING, INTEGER, INTEGER) STRING", substring),
        variant("(BYTES, INTEGER) BYTES", substring),
        variant("(BYTES, INTEGER, INTEGER) BYTES", substring),
    ),
    function(
        "TRIM",
        _CATEGORY,
        "Without blanks at both ends.",
        ["TRIM('  a b ') = 'a b'"],
        variant("(STRING) STRING", lambda text: text.strip(_BLANK)),
    ),
    function(
        "UUID",
        _CATEGORY,
        "A new random UUID, or the one that 16 bytes are.",
        [
            "LEN(UUID()) = 36",
            "UUID(TO_BYTES('00112233445566778899aabbccddeeff', 'hex')) = '00112233-4455-6677-8899-aabbccddeeff'",
        ],
        variant("() STRING", _uuid, takes_context=True),
        variant("(BYTES) STRING", _uuid_of),
    ),
    function(
        "ELT",
        _CATEGORY,
        "The n-th of the texts, from 1; null beyond them.",
        ["ELT(2, 'a', 'b') = 'b'", "ELT(0, 'a') IS NULL"],
        variant("(INTEGER, STRING...) STRING", _elt, sees_null=True),
    ),
    function(
        "FIELD",
        _CATEGORY,
        "The position of the first text among the others, from 1; 0 if it is not there.",
        ["FIELD('b', 'a', 'b') = 2", "FIELD('x', 'a') = 0"],
        variant("(STRING, STRING...) INTEGER", _field, sees_null=True),
    ),
]
