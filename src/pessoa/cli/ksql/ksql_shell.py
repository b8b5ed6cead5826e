"""The prompt of `ksql`: lines until a semicolon, history, completion, colours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.lexers import Lexer as PromptLexer
from prompt_toolkit.patch_stdout import patch_stdout

from pessoa.cli.ksql.interrupts import Interrupts, take_typed_ahead
from pessoa.cli.ksql.ksql_session import KsqlSession, Leave
from pessoa.cli.ksql.server_client import ServerRefused, ServerUnreachable
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.syntax.lexer import Lexer
from pessoa.ksql.syntax.sql_tokens import TokenKind

KEYWORDS = """
    SELECT FROM WHERE GROUP BY PARTITION HAVING EMIT CHANGES FINAL LIMIT CREATE OR REPLACE STREAM TABLE SOURCE
    SINK AS WITH INSERT INTO VALUES DROP DELETE TOPIC ALTER ADD COLUMN TYPE CONNECTOR SHOW LIST STREAMS TABLES
    TOPICS QUERIES FUNCTIONS PROPERTIES VARIABLES TYPES CONNECTORS DESCRIBE EXTENDED EXPLAIN PRINT BEGINNING
    INTERVAL TERMINATE PAUSE RESUME ALL SET UNSET DEFINE UNDEFINE ASSERT SCHEMA RUN SCRIPT JOIN INNER LEFT RIGHT
    FULL OUTER ON WITHIN GRACE PERIOD WINDOW TUMBLING HOPPING SESSION SIZE ADVANCE RETENTION SECONDS MINUTES
    HOURS DAYS MILLISECONDS AND OR NOT BETWEEN IN LIKE IS NULL TRUE FALSE CASE WHEN THEN ELSE END CAST KEY
    PRIMARY HEADERS IF EXISTS BOOLEAN INTEGER INT BIGINT DOUBLE DECIMAL VARCHAR STRING BYTES DATE TIME TIMESTAMP
    ARRAY MAP STRUCT KAFKA_TOPIC VALUE_FORMAT KEY_FORMAT PARTITIONS ROWTIME WINDOWSTART WINDOWEND
""".split()
_KEYWORDS = frozenset(KEYWORDS)
_NUMBERS = (TokenKind.INTEGER, TokenKind.DECIMAL, TokenKind.FLOAT)
_STYLES = {TokenKind.STRING: "ansigreen", **dict.fromkeys(_NUMBERS, "ansicyan")}


class KsqlCompleter(Completer):
    """A completer of keywords, functions, and the names that the server has."""

    def __init__(self, session: KsqlSession) -> None:
        self._session = session
        self._names: list[str] = []
        self._functions: list[str] = []

    def refresh(self) -> None:
        """Fetch the names from the server; if it does not answer, the old ones stay."""
        try:
            found = self._session.client.statements("SHOW STREAMS; SHOW TABLES; SHOW QUERIES;", {}, {})
        except (ServerRefused, ServerUnreachable):
            return
        self._names = [
            one["name"] for entity in found for one in (*entity.get("streams", ()), *entity.get("tables", ()))
        ]
        self._names += [one["id"] for entity in found for one in entity.get("queries", ())]

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word = document.get_word_before_cursor(WORD=False)
        if not word:
            return
        if not self._functions:
            from pessoa.ksql.functions.function_table import known_names

            self._functions = known_names()
        yield from self._complete(word, self._names, "name")
        yield from self._complete(word, KEYWORDS, "keyword")
        yield from self._complete(word, self._functions, "function")

    def _complete(self, word: str, known: Iterable[str], kind: str) -> Iterator[Completion]:
        lower = word.islower()
        for one in known:
            if one.upper().startswith(word.upper()) and one.upper() != word.upper():
                shown = one.lower() if lower and kind != "name" else one
                yield Completion(shown, start_position=-len(word), display_meta=kind)


class KsqlHighlighter(PromptLexer):
    def lex_document(self, document: Document):  # type: ignore[no-untyped-def]
        coloured = [self._line(line) for line in document.lines]
        return lambda number: coloured[number] if number < len(coloured) else []

    def _line(self, line: str) -> StyleAndTextTuples:
        try:
            tokens = Lexer(line).tokens()
        except KsqlError:
            return [("", line)]
        parts: StyleAndTextTuples = []
        position = 0
        for token in tokens:
            if token.kind is TokenKind.END:
                break
            parts.append(("", line[position : token.start]))
            text = line[token.start : token.end]
            style = "ansiblue bold" if text.upper() in _KEYWORDS else _STYLES.get(token.kind, "")
            parts.append((style, text))
            position = token.end
        parts.append(("", line[position:]))
        return parts


def is_whole(text: str) -> bool:
    """Whether a text ends with a semicolon that ends a statement."""
    try:
        ends = Lexer(text).statement_ends()
    except KsqlError:
        # An open quote: the next line may close it.
        return False
    return bool(ends) and not text[ends[-1] :].strip()


class Shell:
    """The loop that reads and runs statements until the user leaves."""

    def __init__(self, session: KsqlSession, history: Path) -> None:
        self._session = session
        self._completer = KsqlCompleter(session)
        self._prompt: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)), completer=self._completer, complete_while_typing=False,
            lexer=KsqlHighlighter(),
        )  # fmt: skip
        session.history = lambda: list(self._prompt.history.get_strings())
        # The lines of a statement that has no semicolon.
        self._pending = ""

    def __repr__(self) -> str:
        return f"<Shell at {self._session.client.url}, pending {self._pending!r}>"

    def run(self) -> None:
        with Interrupts() as interrupts:
            interrupts.run(self._completer.refresh)
            while (line := self._read()) is not None:
                try:
                    if take_typed_ahead(self._prompt.input) or not interrupts.run(partial(self._take, line)):
                        self._pending = ""
                        self._session.write("Interrupted")
                except Leave:
                    break
            self._session.write("Exiting ksqlDB.")

    def _read(self) -> str | None:
        """Return the next line, None at the end of input; Ctrl-C drops the typed text."""
        while True:
            try:
                with patch_stdout(raw=True):
                    return self._prompt.prompt("ksql> " if not self._pending else "> ")
            except KeyboardInterrupt:
                self._pending = ""
            except EOFError:
                return None

    def _take(self, line: str) -> None:
        if not self._pending and self._session.run_line(line):
            return
        self._pending = f"{self._pending}\n{line}" if self._pending else line
        if not self._pending.strip():
            self._pending = ""
        elif is_whole(self._pending):
            text, self._pending = self._pending, ""
            self._session.run(text)
            self._completer.refresh()
