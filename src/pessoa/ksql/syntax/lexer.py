"""Text to tokens.

- Words are case-insensitive and upper-cased; `name` and "name" keep their case, a doubled quote inside is one quote.
- Words may contain `_` and `@`, and begin with a digit (`1E0` is a number, `1E0X` a name).
- `1` is an integer, `1.5` a decimal, `1e0` a double.
- `-- …` and `/* … */` are comments (so are directives, `--@ …`).
- `${v}` is replaced by the session's variable (`variables.py`), in strings, in quoted names and in the open.

Time and memory grow with the text, which is bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping

from pessoa.ksql.ksql_errors import Position, SyntaxFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax.sql_tokens import SYMBOLS, Token, TokenKind
from pessoa.ksql.syntax.variables import REFERENCE, fill_in

# A script of a thousand statements fits many times.
MOST_CHARACTERS = 500_000

_PATTERN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<open_comment>/\*)
    | (?P<string>'(?:[^']|'')*')
    | (?P<back>`(?:[^`]|``)*`)
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<open_quote>['"`])
    | (?P<word>(?:[A-Za-z0-9_@]|\$\{\w+\})*(?:\$\{\w+\}|[A-Za-z_])(?:[A-Za-z0-9_@]|\$\{\w+\})*)
    | (?P<digits>[0-9])
    | (?P<symbol>{symbols})
    """.replace("{symbols}", "|".join(re.escape(symbol) for symbol in SYMBOLS)),
    re.VERBOSE | re.DOTALL,
)
# Enough of the language to find where statements end; an open quote or comment reaches to the end of the text.
_PIECE = re.compile(r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'[^']*(?:'|\Z)|`[^`]*(?:`|\Z)|"[^"]*(?:"|\Z)|;""", re.DOTALL)
_NUMBER = re.compile(
    r"""
    (?P<float>(?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d+)(?![A-Za-z0-9_@])
    | (?P<decimal>\d+\.\d*|\.\d+)(?![A-Za-z0-9_@])
    | (?P<integer>\d+)(?![A-Za-z0-9_@])
    """,
    re.VERBOSE,
)
_NUMBERS = {"float": TokenKind.FLOAT, "decimal": TokenKind.DECIMAL, "integer": TokenKind.INTEGER}
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@]*[A-Za-z_][A-Za-z0-9_@]*")


class Lexer:
    """Splits a text, or the part from `start` to `end`, into tokens; positions are those in the whole text.
    `variables` replace `${…}`."""

    def __init__(
        self, text: str, variables: Mapping[str, str] | None = None, start: int = 0, end: int | None = None
    ) -> None:
        if len(text) > MOST_CHARACTERS:
            raise SyntaxFailure(
                f"the text has {len(text)} characters, and {MOST_CHARACTERS} are the most",
                hint="Send the statements in several requests.",
            )
        self._text = text
        self._start, self._end = start, len(text) if end is None else end
        self._variables = {name.upper(): value for name, value in (variables or {}).items()}
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def tokens(self) -> list[Token]:
        """Return all tokens; the last is END."""
        found: list[Token] = []
        position, end = self._start, self._end
        while position < end:
            token, position = self._next(position)
            if token is not None:
                found.append(token)
        found.append(Token(TokenKind.END, "", "", self.position(end), end, end))
        return found

    def statement_ends(self) -> list[int]:
        """Return the offsets behind every `;` that is neither in quotes nor in a comment."""
        pieces = _PIECE.finditer(self._text, self._start, self._end)
        return [match.end() for match in pieces if match.group() == ";"]

    def position(self, offset: int) -> Position:
        line = bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)

    def _next(self, start: int) -> tuple[Token | None, int]:
        text = self._text
        number = _NUMBER.match(text, start) if text[start].isdigit() or text[start] == "." else None
        if number is not None and number.lastgroup is not None:
            return self._token(_NUMBERS[number.lastgroup], number.group(), start, number.end()), number.end()
        match = _PATTERN.match(text, start)
        if match is None:
            raise self._error(
                f"unexpected character {text[start]!r}", start, "Put names with other characters into back-quotes: `…`."
            )
        end = match.end()
        match match.lastgroup:
            case "space" | "comment":
                return None, end
            case "open_comment":
                raise self._error("this comment is not closed", start, "End it with */.")
            case "open_quote":
                raise self._error("this quote is not closed", start, f"End it with {text[start]}.")
            case "string":
                value = fill_in(text[start + 1 : end - 1].replace("''", "'"), self._variables)
                return self._token(TokenKind.STRING, value, start, end), end
            case "back" | "quoted":
                return self._quoted_name(start, end), end
            case "word":
                return self._word(start, end), end
            case "symbol":
                return self._token(TokenKind.SYMBOL, match.group(), start, end), end
        raise self._error(f"unexpected {match.group()!r}", start)

    def _quoted_name(self, start: int, end: int) -> Token:
        quote = self._text[start]
        value = fill_in(self._text[start + 1 : end - 1].replace(quote * 2, quote), self._variables)
        if not value:
            raise self._error("a name cannot be empty", start)
        return self._token(TokenKind.QUOTED_NAME, value, start, end)

    def _word(self, start: int, end: int) -> Token:
        written = self._text[start:end]
        if "${" not in written:
            return self._token(TokenKind.NAME, written.upper(), start, end)
        for name in REFERENCE.findall(written):
            if name.upper() not in self._variables:
                raise self._error(
                    f"the variable {name} is not defined",
                    start,
                    did_you_mean(name, self._variables) or f"Define it with: DEFINE {name} = '…';",
                )
        return self._variable_token(fill_in(written, self._variables), start, end)

    def _variable_token(self, value: str, start: int, end: int) -> Token:
        """Return the single token that a variable's value is. More than one would allow a value to inject a
        statement."""
        if _PLAIN_WORD.fullmatch(value) and not _NUMBER.fullmatch(value):
            return self._token(TokenKind.NAME, value.upper(), start, end)
        if (number := _NUMBER.fullmatch(value)) is not None and number.lastgroup is not None:
            return self._token(_NUMBERS[number.lastgroup], value, start, end)
        match = _PATTERN.fullmatch(value)
        if match is not None and match.lastgroup == "string":
            return self._token(TokenKind.STRING, value[1:-1].replace("''", "'"), start, end)
        if match is not None and match.lastgroup in ("back", "quoted") and len(value) > 2:
            return self._token(TokenKind.QUOTED_NAME, value[1:-1].replace(value[0] * 2, value[0]), start, end)
        raise self._error(
            f"{self._text[start:end]} stands for {value!r}, which is neither one name nor one literal", start
        )

    def _token(self, kind: TokenKind, value: str, start: int, end: int) -> Token:
        return Token(kind, value, self._text[start:end], self.position(start), start, end)

    def _error(self, message: str, start: int, hint: str = "") -> SyntaxFailure:
        return SyntaxFailure(message, self.position(start), hint=hint, text=self._text)
