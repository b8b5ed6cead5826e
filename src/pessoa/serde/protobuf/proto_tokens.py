"""The tokens of a .proto file.

Comments and blanks are dropped. Strings are unescaped here, and neighbouring ones are left apart: the parser joins them
where the grammar lets it. Every token knows its line and column, so that each complaint can say where.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pessoa.serde.schema_problems import SchemaProblem

IDENTIFIER = "identifier"
INTEGER = "integer"
FLOAT = "float"
STRING = "string"
SYMBOL = "symbol"
END = "end"

_TOKEN = re.compile(
    r"""
      (?P<blank>[\s\ufeff]+ | //[^\n]* | /\*.*?\*/)
    | (?P<float>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+)
    | (?P<integer>0[xX][0-9a-fA-F]+ | [0-9]+)
    | (?P<identifier>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<symbol>[;,.{}()\[\]<>=:/+-])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class Token(NamedTuple):
    kind: str
    text: str
    line: int
    column: int

    def shown(self) -> str:
        return "the end of the file" if self.kind == END else f"'{self.text}'"


def tokenize(text: str) -> list[Token]:
    tokens = []
    position, line, line_start = 0, 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        column = position - line_start + 1
        if match is None:
            what = "a string that does not end" if text[position] in "\"'" else f"'{text[position]}'"
            raise SchemaProblem(f"unexpected {what}", line, column)
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            word = match.group()
            tokens.append(Token(kind, unescape(word[1:-1]) if kind == STRING else word, line, column))
        newlines = match.group().count("\n")
        if newlines:
            line += newlines
            line_start = position + match.group().rindex("\n") + 1
        position = match.end()
    tokens.append(Token(END, "", line, position - line_start + 1))
    return tokens


def unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        hexadecimal, octal, short, long, simple = match.groups()
        if hexadecimal or octal:
            return chr(int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF)
        if short or long:
            code = int(short or long, 16)
            return chr(code) if code <= 0x10FFFF else "\ufffd"
        return _SIMPLE.get(simple, simple)

    return _ESCAPE.sub(replaced, text)


def escape(text: str) -> str:
    """Return the text as a string literal, with its quotes."""
    out = []
    for character in text:
        if character in '"\\':
            out.append("\\" + character)
        elif character == "\n":
            out.append("\\n")
        elif character < " ":
            out.append(f"\\{ord(character):03o}")
        else:
            out.append(character)
    return '"' + "".join(out) + '"'
