"""The command lines of Kafka's tools, parsed as joptsimple does and with its error messages.

    --topic orders     --topic=orders     -topic orders        all the same
    --boot host:9092   the first letters are enough where no other option begins with them
    --state            an option whose value may be left out
    orders             a word that belongs to no option is kept aside and usually ignored, as in Kafka

Options are declared with their help, so that one table serves parsing, `--help` and completion in the shell:

    options = Options("kafka-topics", "Create, delete, describe, or change a topic.")
    options.flag("list", "list all topics")
    options.text("topic", "the topic", metavar="name")
    given = options.parse(words)
    given.has("list"), given.value("topic"), given.values("config")

A line that makes no sense is a `UsageError`. Kafka's tools differ in what they do then: most print the sentence and
their help on standard error, some only the sentence; all of them end with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

# What joptsimple's help has room for: 80 columns, one blank kept free at the end of each half.
_WIDTH = 80
_APACHE_VERSION = "4.3.1"

FLAG = "flag"
TEXT = "text"
INTEGER = "integer"
LONG = "long"

_BOUNDS = {INTEGER: (-(1 << 31), (1 << 31) - 1), LONG: (-(1 << 63), (1 << 63) - 1)}
_JAVA_TYPES = {TEXT: "String", INTEGER: "Integer", LONG: "Long"}


class UsageError(Exception):
    """The command line is invalid. With `with_help` the tool's help is printed after the sentence."""

    def __init__(self, message: str, *, with_help: bool = True) -> None:
        super().__init__(message)
        self.with_help = with_help


class WrongNumber(UsageError):
    """The value of an option that takes a number is not one."""


# No NamedTuple: making one takes as long as everything else in this file, and every tool makes this one.
class Option:
    __slots__ = (
        "aliases", "default", "help", "hidden", "kind", "metavar", "name", "optional_value", "required", "separator",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002
        kind: str,
        metavar: str,
        default: str | None,
        optional_value: bool,
        required: bool,
        separator: str | None,
        aliases: tuple[str, ...],
        hidden: bool,
    ) -> None:
        self.name = name
        self.help = help
        self.kind = kind
        self.metavar = metavar
        self.default = default
        self.optional_value = optional_value
        self.required = required
        self.separator = separator
        self.aliases = aliases
        self.hidden = hidden

    def __repr__(self) -> str:
        return f"<Option --{self.name}>"


class Given:
    """The parsed options of a command line."""

    def __init__(
        self, options: dict[str, Option], values: dict[str, list[str]], words: list[str], line: Sequence[str]
    ) -> None:
        self._options = options
        self._values = values
        # What belongs to no option, and the whole line.
        self.words = words
        self.line = line

    def __repr__(self) -> str:
        return f"<Given {self._values} and {self.words}>"

    def has(self, name: str) -> bool:
        assert name in self._options, name
        return name in self._values

    def has_any(self, *names: str) -> bool:
        return any(self.has(name) for name in names)

    def values(self, name: str) -> list[str]:
        found = self._values.get(name, [])
        if not found and (default := self._options[name].default) is not None:
            return [default]
        return found

    def maybe(self, name: str) -> str | None:
        """Return the one value of an option; None without it."""
        found = self.values(name)
        if len(found) > 1:
            raise UsageError(f"Found multiple arguments for option {name}, but you asked for only one", with_help=False)
        return found[0] if found else None

    def value(self, name: str) -> str:
        found = self.maybe(name)
        assert found is not None, f"--{name} has neither value nor default"
        return found

    def number(self, name: str) -> int:
        return self._as_number(name, self.value(name))

    def maybe_number(self, name: str) -> int | None:
        text = self.maybe(name)
        return None if text is None else self._as_number(name, text)

    def numbers(self, name: str) -> list[int]:
        return [self._as_number(name, text) for text in self.values(name)]

    def check_numbers(self) -> None:
        """Raise WrongNumber for number options whose values are not numbers, before the tool begins its work."""
        for name in self._values:
            if self._options[name].kind in _BOUNDS:
                try:
                    self.numbers(name)
                except WrongNumber as error:
                    raise WrongNumber(str(error), with_help=False) from None

    def _as_number(self, name: str, text: str) -> int:
        lowest, highest = _BOUNDS[self._options[name].kind]
        digits = text[1:] if text[:1] in "+-" else text
        if not (digits.isascii() and digits.isdigit()) or not lowest <= int(text) <= highest:
            raise WrongNumber(f"Cannot parse argument '{text}' of option {name}")
        return int(text)


class Options:
    """The options of one tool. `greeting` is printed for an empty command line, before the help."""

    def __init__(self, tool: str, purpose: str, greeting: str | None = None) -> None:
        self.tool = tool
        begins = purpose.startswith("This tool ")
        self.purpose = purpose if begins else f"This tool helps to {purpose[0].lower()}{purpose[1:]}"
        self.greeting = greeting or self.purpose
        self.table: dict[str, Option] = {}
        self._names: dict[str, str] = {}
        self.flag("help", "print this text")
        self.flag("version", "print the version of Kafka whose tools these are")

    def flag(self, name: str, help: str, *, aliases: Iterable[str] = (), hidden: bool = False) -> None:  # noqa: A002
        self._add(Option(name, help, FLAG, "", None, False, False, None, tuple(aliases), hidden))

    def text(
        self,
        name: str,
        help: str,  # noqa: A002
        *,
        metavar: str = "",
        default: str | None = None,
        kind: str = TEXT,
        optional_value: bool = False,
        required: bool = False,
        separator: str | None = None,
        aliases: Iterable[str] = (),
        hidden: bool = False,
    ) -> None:
        self._add(
            Option(name, help, kind, metavar, default, optional_value, required, separator, tuple(aliases), hidden)
        )

    def _add(self, option: Option) -> None:
        self.table[option.name] = option
        for name in (option.name, *option.aliases):
            self._names[name] = option.name

    def parse(self, words: Sequence[str]) -> Given:
        values: dict[str, list[str]] = {}
        rest: list[str] = []
        queue = list(words)
        while queue:
            word = queue.pop(0)
            if word == "--":
                rest += queue
                break
            if not word.startswith("-") or word == "-" or word[1:].isdigit():
                rest.append(word)
                continue
            self._take(word, queue, values)
        given = Given(self.table, values, rest, words)
        if not given.has("help") and not given.has("version"):
            self._check_required(values)
        return given

    def _take(self, word: str, queue: list[str], values: dict[str, list[str]]) -> None:
        name, equals, value = word.lstrip("-").partition("=")
        known = self._names.get(name) or self._find_abbreviated(name)
        if known is None:
            raise UsageError(f"{name} is not a recognized option{self._hint(name)}")
        option = self.table[known]
        found = values.setdefault(known, [])
        if option.kind == FLAG:
            # `--list=yes`: what follows is passed over, as joptsimple does.
            return
        if not equals:
            if option.optional_value:
                if not queue or queue[0].startswith("-"):
                    return
            elif not queue:
                raise UsageError(f"Option {self._all_names(option)} requires an argument")
            value = queue.pop(0)
        found += value.split(option.separator) if option.separator else [value]

    def _find_abbreviated(self, name: str) -> str | None:
        """Return the option that is the only one to begin with these letters."""
        matches = [known for known in self._names if known.startswith(name)] if name else []
        return self._names[matches[0]] if len(matches) == 1 else None

    def _hint(self, name: str) -> str:
        """Return the known option that is nearest to a mistyped one, as a question."""
        from difflib import get_close_matches

        shown = [known for known, option in self._names.items() if not self.table[option].hidden]
        near = get_close_matches(name, shown, 1)
        return f"\nDid you mean --{near[0]}?" if near else ""

    def _check_required(self, values: dict[str, list[str]]) -> None:
        missing = [option.name for option in self.table.values() if option.required and option.name not in values]
        if missing:
            raise UsageError(f"Missing required option(s) [{', '.join(missing)}]")

    @staticmethod
    def _all_names(option: Option) -> str:
        names = [option.name, *option.aliases]
        return names[0] if len(names) == 1 else str(names).replace("'", "")

    # Help.

    def print_help(self, stream: TextIO) -> None:
        import textwrap

        from pessoa.cli.examples import text_of

        rows = [
            (_left_half(option), _right_half(option))
            for option in sorted(self.table.values(), key=lambda option: option.name)
            if not option.hidden
        ]
        left = min(max(len("Option"), *(len(text) for text, _ in rows)), _WIDTH // 2)
        right = _WIDTH - left - 2
        stream.write(f"{'Option':<{left}} {'Description':<{right}}\n{'------':<{left}} {'-----------':<{right}}\n")
        for name, text in rows:
            names = textwrap.wrap(name, left, subsequent_indent="  ", break_long_words=False)
            lines = textwrap.wrap(text, right - 1, subsequent_indent="  ")
            for index in range(max(len(names), len(lines))):
                one = names[index] if index < len(names) else ""
                other = lines[index] if index < len(lines) else ""
                stream.write(f"{one:<{left}} {other:<{right}}".rstrip() + "\n")
        if examples := text_of(self.tool):
            stream.write(f"\n{examples}")


def _left_half(option: Option) -> str:
    names = ", ".join(f"--{name}" for name in (*option.aliases, option.name))
    if option.kind == FLAG:
        return names
    shown = f"{_JAVA_TYPES[option.kind]}: {option.metavar}" if option.metavar else _JAVA_TYPES[option.kind]
    return f"{names} [{shown}]" if option.optional_value else f"{names} <{shown}>"


def _right_half(option: Option) -> str:
    text = f"REQUIRED: {option.help}" if option.required else option.help
    return f"{text} (default: {option.default})" if option.default is not None else text


def begin(options: Options, words: Sequence[str]) -> Given:
    """Parse a command line and return its options; handle `--help`, `--version` and an empty line here, as Kafka's
    tools do."""
    if not words:
        raise UsageError(options.greeting)
    given = options.parse(words)
    if given.has("help"):
        print(options.purpose, file=sys.stderr)
        options.print_help(sys.stderr)
        raise SystemExit(1)
    if given.has("version"):
        print(_APACHE_VERSION)
        raise SystemExit(0)
    return given


def begin_tersely(options: Options, words: Sequence[str]) -> Given:
    """Parse as `begin` does, for the tools that print no help after a mistake in the options."""
    try:
        return begin(options, words)
    except UsageError as error:
        raise UsageError(str(error), with_help=not words) from None


# The rules between options that Kafka's tools share. Names in brackets, as joptsimple prints an option.


def require(given: Given, *names: str) -> None:
    for name in names:
        if not given.has(name):
            raise UsageError(f'Missing required argument "[{name}]"')


def refuse(given: Given, used: str, *others: str) -> None:
    """Raise UsageError if the option `used` is given together with one of `others`."""
    if given.has(used):
        for other in others:
            if given.has(other):
                raise UsageError(f'Option "[{used}]" can\'t be used with option "[{other}]"')
