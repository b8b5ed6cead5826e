"""What one run of `ksql` does with a text: local commands, properties and variables, and statements for the server.

text → statements (split at their semicolons) → local: SET, UNSET, DEFINE, UNDEFINE, SHOW VARIABLES, RUN SCRIPT
                                              → rows:  SELECT, PRINT        (until the end, or Ctrl-C)
                                              → the rest: POST /ksql        (its entities as tables, or JSON)
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from pessoa.cli.ksql.entity_tables import render, table
from pessoa.cli.ksql.row_boxes import RowBox, printable
from pessoa.cli.ksql.server_client import KsqlClient, Rows, ServerRefused, ServerUnreachable

JSON, TABULAR = "JSON", "TABULAR"
# Statements whose rows come in time.
_ROWS = ("SELECT", "PRINT")
_MOST_SCRIPT_DEPTH = 20

HELP = """\
ksql statements end with a semicolon. These commands need none:

  clear                          clear the screen
  exit, quit                     leave (also Ctrl-D)
  help                           this text
  history                        what was typed
  output [JSON|TABULAR]          show or set the form of answers
  request-pipelining [ON|OFF]    show or set whether statements wait for those before them
  run script 'FILE'              run the statements of a file
  server [URL]                   show or change the server
  set cli PROPERTY VALUE         WRAP ON|OFF: whether long values go on in the next line
  spool 'FILE' | OFF             write what is shown to a file as well
  version                        the version of this command

  SHOW STREAMS;  SHOW TABLES;  SHOW QUERIES;  SHOW TOPICS;  SHOW FUNCTIONS;
  DESCRIBE name;  EXPLAIN query_id;  PRINT topic FROM BEGINNING;
  SET 'auto.offset.reset'='earliest';  UNSET 'auto.offset.reset';"""


class Leave(Exception):
    """The user has asked to end the session."""


class KsqlSession:
    def __init__(
        self, client: KsqlClient, output: str = TABULAR, *, row_limit: int | None = None,
        variables: dict[str, str] | None = None, width: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.client = client
        self.output = output
        self.properties: dict[str, str] = {}
        self.variables = {name.upper(): value for name, value in (variables or {}).items()}
        self.history: Callable[[], list[str]] = list
        self._row_limit = row_limit
        self._wrap = True
        self._pipelining = False
        self._spool: IO[str] | None = None
        self._depth = 0
        self._width = width or (lambda: shutil.get_terminal_size((120, 40)).columns)
        # Other servers with the same login: `server URL`.
        self.make_client: Callable[[str], KsqlClient] = KsqlClient

    # Output.

    def write(self, text: str) -> None:
        """Print a text with its control characters escaped: in JSON that is the same text."""
        text = printable(text)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        if self._spool is not None:
            self._spool.write(text + "\n")
            self._spool.flush()

    def fail(self, text: str) -> None:
        self.write(text)

    # Input.

    def run_line(self, line: str) -> bool:
        """Run a local command; return False if the line is not one."""
        words = line.strip().rstrip(";").split()
        if not words:
            return False
        first = words[0].lower()
        if first == "run" and len(words) > 1 and words[1].lower() == "script":
            self.run_script(" ".join(words[2:]).strip("'\""))
            return True
        if first == "set" and len(words) == 4 and words[1].lower() == "cli":
            self._set_cli(words[2], words[3])
            return True
        command = _LOCAL.get(first)
        if command is None or (len(words) > 2 and first != "spool"):
            return False
        command(self, " ".join(words[1:]))
        return True

    def run(self, text: str) -> bool:
        """Run all statements of a text; return False if one failed, and those after it were not run."""
        from pessoa.ksql.ksql_errors import KsqlError
        from pessoa.ksql.syntax.lexer import Lexer

        try:
            ends = Lexer(text).statement_ends()
        except KsqlError as wrong:
            self.fail(str(wrong))
            return False
        start = 0
        pending = ""
        for end in [*ends, len(text)]:
            statement, start = text[start:end].strip(), end
            if not statement:
                continue
            word = _first_word(statement)
            if word in _ROWS or word in _HERE or self._is_local_show(statement) or _is_script(statement):
                if pending and not self._send(pending):
                    return False
                pending = ""
                if not self._run_here(word, statement):
                    return False
            else:
                pending = f"{pending}\n{statement}" if pending else statement
        return self._send(pending) if pending else True

    def _is_local_show(self, statement: str) -> bool:
        return statement.rstrip(";").upper().split()[:2] in (["SHOW", "VARIABLES"], ["LIST", "VARIABLES"])

    def _run_here(self, word: str, statement: str) -> bool:
        try:
            if word in _ROWS:
                return self._stream(statement, word)
            if self._is_local_show(statement):
                self._show_variables()
            elif _is_script(statement):
                self.run_script(statement.rstrip(";").split(None, 2)[2].strip("'\""))
            else:
                self._set(statement)
        except (ServerRefused, ServerUnreachable) as problem:
            self.fail(str(problem))
            return False
        return True

    # Statements for the server.

    def _send(self, text: str) -> bool:
        try:
            entities = self.client.statements(text, self.properties, self.variables)
        except ServerRefused as refused:
            self._show(refused.entities)
            self.fail(str(refused))
            return False
        except ServerUnreachable as problem:
            self.fail(str(problem))
            return False
        self._show(entities)
        return True

    def _show(self, entities: list[dict[str, Any]]) -> None:
        if not entities:
            return
        if self.output == JSON:
            self.write(json.dumps(entities, indent=2, ensure_ascii=False))
            return
        for one in entities:
            self.write("\n" + "\n".join(render(one)))

    def _stream(self, statement: str, word: str) -> bool:
        """Print the rows of a query until its end or Ctrl-C; return False if it failed."""
        ended = "Topic printing ceased" if word == "PRINT" else "Query terminated"
        rows: Rows | None = None
        try:
            rows = self.client.rows(statement, self.properties, self.variables)
            if word == "PRINT":
                for line in rows:
                    self.write(line.decode("utf-8", "replace").rstrip("\n"))
                return True
            return self._show_rows(rows, statement)
        except KeyboardInterrupt:
            self.write(ended)
            return True
        finally:
            if rows is not None:
                rows.close()

    def _show_rows(self, rows: Rows, statement: str) -> bool:
        box: RowBox | None = None
        shown = 0
        for line in rows:
            value = json.loads(line)
            if isinstance(value, dict) and "columnNames" in value:
                box = RowBox(value["columnNames"], self._width(), wrap=self._wrap)
                self.write(json.dumps(value) if self.output == JSON else "\n".join(box.head()))
            elif isinstance(value, dict):
                self.fail(str(value.get("message", value)))
                return False
            else:
                assert box is not None
                self.write(json.dumps(value, ensure_ascii=False) if self.output == JSON else "\n".join(box.row(value)))
                shown += 1
                if self._row_limit is not None and shown >= self._row_limit:
                    break
        is_push = " EMIT " in f" {' '.join(statement.upper().split())} "
        self.write("Limit Reached" if is_push else "Query Completed")
        return True

    # Properties and variables.

    def _set(self, statement: str) -> None:
        from pessoa.ksql.ksql_errors import KsqlError
        from pessoa.ksql.syntax import statement_nodes as nodes
        from pessoa.ksql.syntax.parser import parse_statement

        try:
            parsed = parse_statement(statement, self.variables).statement
        except KsqlError as wrong:
            raise ServerRefused(str(wrong)) from None
        match parsed:
            case nodes.SetProperty(name, value):
                self.client.statements(statement, {}, self.variables)
                old = self.properties.get(name)
                self.properties[name] = value
                old_text = f" from '{old}'" if old is not None else ""
                self.write(
                    f"Successfully changed local property '{name}'{old_text} to '{value}'."
                    + ("" if old is not None else " Use the UNSET command to revert your change.")
                )
            case nodes.UnsetProperty(name):
                if name not in self.properties:
                    raise ServerRefused(f"Cannot unset local property '{name}' which was never set in the first place")
                self.write(f"Successfully unset local property '{name}' (value was '{self.properties.pop(name)}').")
            case nodes.DefineVariable(name, value):
                self.variables[name.upper()] = value
            case nodes.UndefineVariable(name):
                self.variables.pop(name.upper(), None)

    def _show_variables(self) -> None:
        rows = sorted(self.variables.items())
        self.write("\n" + "\n".join(table(["Variable Name", "Value"], rows)))

    def _set_cli(self, name: str, value: str) -> None:
        if name.upper() != "WRAP" or value.upper() not in ("ON", "OFF"):
            self.fail(f"There is no setting {name} {value}: write SET CLI WRAP ON or OFF")
            return
        self._wrap = value.upper() == "ON"
        self.write(f"WRAP is {value.upper()}")

    # Local commands.

    def run_script(self, name: str) -> bool:
        if self._depth >= _MOST_SCRIPT_DEPTH:
            self.fail(f"{name}: scripts that run scripts go {_MOST_SCRIPT_DEPTH} deep at most")
            return False
        try:
            text = Path(name).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            self.fail(f"Failed to read {name}: {problem}")
            return False
        self._depth += 1
        try:
            return self.run(text)
        finally:
            self._depth -= 1

    def _spool_to(self, name: str) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None
        if name.upper() != "OFF":
            path = name.strip("'\"")
            try:
                self._spool = Path(path).expanduser().open("w", encoding="utf-8")
            except OSError as problem:
                self.fail(f"Cannot SPOOL to {path}: {problem.strerror}")
                return
            self.write(f"Session will be spooled to {path}\nEnter SPOOL OFF to disable")

    def _set_output(self, name: str) -> None:
        if name.upper() in (JSON, TABULAR):
            self.output = name.upper()
            self.write(f"Output format set to {self.output}")
        elif name:
            self.fail(f"Invalid output format: '{name}' (valid formats: 'JSON', 'TABULAR')")
        else:
            self.write(f"Current output format: {self.output}")

    def _set_server(self, url: str) -> None:
        if url:
            try:
                client = self.make_client(url)
                client.info()
            except (ServerUnreachable, ServerRefused) as problem:
                self.fail(str(problem))
                return
            self.client = client
        self.write(self.client.url if not url else f"Server now: {self.client.url}")

    def _set_pipelining(self, word: str) -> None:
        if word.upper() in ("ON", "OFF"):
            self._pipelining = word.upper() == "ON"
        self.write(f"Current request-pipelining configuration: {'ON' if self._pipelining else 'OFF'}")

    def _show_history(self, _: str) -> None:
        for number, line in enumerate(self.history()):
            self.write(f"{number:4d}: {line}")

    def _show_version(self, _: str) -> None:
        from pessoa import __version__

        self.write(f"Version: {__version__}")

    def _clear(self, _: str) -> None:
        sys.stdout.write("\x1b[2J\x1b[H\n")
        sys.stdout.flush()

    def _show_help(self, _: str) -> None:
        self.write(HELP)

    def _leave(self, _: str) -> None:
        raise Leave


_HERE = ("SET", "UNSET", "DEFINE", "UNDEFINE")
_LOCAL: dict[str, Callable[[KsqlSession, str], None]] = {
    "clear": KsqlSession._clear,
    "exit": KsqlSession._leave,
    "quit": KsqlSession._leave,
    "help": KsqlSession._show_help,
    "history": KsqlSession._show_history,
    "output": KsqlSession._set_output,
    "request-pipelining": KsqlSession._set_pipelining,
    "server": KsqlSession._set_server,
    "spool": KsqlSession._spool_to,
    "version": KsqlSession._show_version,
}


def _first_word(statement: str) -> str:
    from pessoa.ksql.syntax.lexer import Lexer

    # Behind comments.
    return str(Lexer(statement).tokens()[0].value).upper()


def _is_script(statement: str) -> bool:
    return statement.upper().split()[:2] == ["RUN", "SCRIPT"]
