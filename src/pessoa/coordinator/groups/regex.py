"""Regular expressions of subscriptions, in the syntax of RE2, matched in time linear in the length of the name.

A consumer may subscribe by an expression that the coordinator matches against every topic name (KIP-848). Python's
`re` goes back on its steps and can be made to take for ever by a few characters, so it is not for strangers'
expressions. Kafka uses RE2/J; this is the part of its syntax that can make a difference for topic names, whose
characters are letters, digits, dot, dash and underscore. All is ASCII, hence a set of characters is an int with a bit
for each of the 128.

    parse     text → a tree of literals, sequences, choices and repetitions, `_Parser`
    compile   tree → a graph of states, each with a set of characters or an empty step (Thompson), `_Builder`
    match     follow all paths at once, a set of states per character; sets are numbered and remembered with where a
              character leads from them, so it is a deterministic machine that is built where it is walked

What RE2 lacks is an error: back references and looking ahead or behind. Repetitions are bounded as in RE2 (1000), and
so is the size of the graph, since `((a{99}){99}){99}` is short.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

_ALL = (1 << 128) - 1
_NEWLINE = 1 << ord("\n")
_REPEAT_LIMIT = 1000
_STATE_LIMIT = 20_000
_DEPTH_LIMIT = 100
# So many sets of states are remembered; beyond, the machine forgets and begins anew.
_MEMORY_LIMIT = 1_000


class InvalidRegex(Exception):
    """The expression cannot be read; the message says why."""


def _chars(text: str) -> int:
    mask = 0
    for char in text:
        mask |= 1 << ord(char)
    return mask


def _span(first: str, last: str) -> int:
    return _chars("".join(map(chr, range(ord(first), ord(last) + 1))))


_DIGIT, _LOWER, _UPPER = _span("0", "9"), _span("a", "z"), _span("A", "Z")
_ALPHA = _LOWER | _UPPER
_WORD = _ALPHA | _DIGIT | _chars("_")
_SPACE = _chars("\t\n\f\r ")
_PUNCT = _span("!", "/") | _span(":", "@") | _span("[", "`") | _span("{", "~")
_GRAPH = _span("!", "~")

_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX = {
    "alnum": _ALPHA | _DIGIT,
    "alpha": _ALPHA,
    "ascii": _ALL,
    "blank": _chars("\t "),
    "cntrl": _span("\0", "\x1f") | 1 << 127,
    "digit": _DIGIT,
    "graph": _GRAPH,
    "lower": _LOWER,
    "print": _GRAPH | _chars(" "),
    "punct": _PUNCT,
    "space": _SPACE | _chars("\v"),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _DIGIT | _span("a", "f") | _span("A", "F"),
}
# Of the scripts only these have characters in ASCII; of the others, those that RE2 users are likeliest to name.
_SCRIPTS = {
    "Any": _ALL,
    "Latin": _ALPHA,
    "Common": _ALL & ~_ALPHA,
    **dict.fromkeys("Arabic Armenian Cyrillic Greek Han Hangul Hebrew Hiragana Katakana Thai".split(), 0),
}
_CATEGORIES = frozenset(
    "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs Co".split()
)

_NAME = re.compile(r"\w+", re.ASCII)
_FLAGS = re.compile(r"([imsU]*)(?:-([imsU]+))?([:)])")
_HEX = re.compile(r"\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2})")
_OCTAL = re.compile(r"[0-7]{0,2}")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_BOUNDS = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")

_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


def _unicode_class(name: str) -> int:
    """What a general category or a script of Unicode has in ASCII."""
    if name in _SCRIPTS:
        return _SCRIPTS[name]
    if name not in _CATEGORIES:
        raise InvalidRegex(f"no character class is called {name}")
    return _chars("".join(char for char in map(chr, range(128)) if unicodedata.category(char).startswith(name)))


# ── the tree ──


class _Set(NamedTuple):
    mask: int


class _Sequence(NamedTuple):
    parts: list[_Node]


class _Choice(NamedTuple):
    parts: list[_Node]


class _Repeat(NamedTuple):
    part: _Node
    least: int
    # None: without end.
    most: int | None


class _Assert(NamedTuple):
    """Holds between two characters; None stands for the text's end on that side."""

    holds: Callable[[str | None, str | None], bool]


_Node = _Set | _Sequence | _Choice | _Repeat | _Assert


def _at_start(before: str | None, _: str | None) -> bool:
    return before is None


def _at_end(_: str | None, after: str | None) -> bool:
    return after is None


def _at_line_start(before: str | None, _: str | None) -> bool:
    return before is None or before == "\n"


def _at_line_end(_: str | None, after: str | None) -> bool:
    return after is None or after == "\n"


def _is_word(char: str | None) -> bool:
    return char is not None and bool(_WORD >> ord(char) & 1)


def _at_boundary(before: str | None, after: str | None) -> bool:
    return _is_word(before) != _is_word(after)


def _not_at_boundary(before: str | None, after: str | None) -> bool:
    return _is_word(before) == _is_word(after)


_ASSERTIONS = {"A": _at_start, "z": _at_end, "b": _at_boundary, "B": _not_at_boundary}


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._flags: frozenset[str] = frozenset()
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice()
        if self._peek():
            raise InvalidRegex("there is a closing parenthesis without an opening one")
        return node

    def _peek(self, count: int = 1) -> str:
        return self._text[self._position : self._position + count]

    def _take(self, count: int = 1) -> str:
        taken = self._peek(count)
        self._position += count
        return taken

    def _took(self, text: str) -> bool:
        if self._text.startswith(text, self._position):
            self._position += len(text)
            return True
        return False

    def _choice(self) -> _Node:
        parts = [self._sequence()]
        while self._took("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(parts)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while (char := self._peek()) and char not in "|)":
            if self._took("\\Q"):
                quoted, _, _ = self._text[self._position :].partition("\\E")
                self._position += len(quoted)
                self._took("\\E")
                literals = [self._literal(each) for each in quoted]
                parts += literals[:-1]
                parts += map(self._repetitions, literals[-1:])
                continue
            part = self._atom()
            if part is not None:
                parts.append(self._repetitions(part))
        return parts[0] if len(parts) == 1 else _Sequence(parts)

    def _atom(self) -> _Node | None:
        """One thing that can be repeated; None for flags, which are nothing."""
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return _Set(self._class())
        if char == ".":
            return _Set(_ALL if "s" in self._flags else _ALL & ~_NEWLINE)
        if char == "^":
            return _Assert(_at_line_start if "m" in self._flags else _at_start)
        if char == "$":
            return _Assert(_at_line_end if "m" in self._flags else _at_end)
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise InvalidRegex(f"there is nothing for {char} to repeat")
        return self._literal(char)

    def _literal(self, char: str) -> _Node:
        return _Set(self._folded(1 << ord(char) if char.isascii() else 0))

    def _folded(self, mask: int) -> int:
        """With the other case of each letter, where case does not matter."""
        if "i" not in self._flags:
            return mask
        return mask | (mask & _LOWER) >> 32 | (mask & _UPPER) << 32

    def _group(self) -> _Node | None:
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise InvalidRegex("it is nested too deeply")
        flags = self._flags
        if self._took("?"):
            if self._took("P<") or (self._peek() == "<" and self._peek(2) not in ("<=", "<!") and self._took("<")):
                name, bracket, _ = self._text[self._position :].partition(">")
                if not bracket or not _NAME.fullmatch(name):
                    raise InvalidRegex("a group has no valid name")
                self._position += len(name) + 1
            elif not self._set_flags():
                self._depth -= 1
                return None
        node = self._choice()
        if not self._took(")"):
            raise InvalidRegex("a parenthesis is not closed")
        self._flags = flags
        self._depth -= 1
        return node

    def _set_flags(self) -> bool:
        """Read `i-s:` or `i-s)`. True if a group follows, for which alone they count."""
        found = _FLAGS.match(self._text, self._position)
        if found is None or (found[3] == ")" and not found[1] and not found[2]):
            raise InvalidRegex("that kind of group is not supported")
        self._position = found.end()
        self._flags = (self._flags | set(found[1])) - set(found[2] or "")
        return found[3] == ":"

    def _escape(self) -> _Node:
        char = self._take()
        if not char:
            raise InvalidRegex("it ends in a backslash")
        if char in _ASSERTIONS:
            return _Assert(_ASSERTIONS[char])
        if char == "C":
            return _Set(_ALL)
        known = self._escaped_class(char)
        return _Set(self._folded(1 << self._escaped_char(char) if known is None else known) & _ALL)

    def _escaped_class(self, char: str) -> int | None:
        if char.lower() in _PERL:
            mask = _PERL[char.lower()]
            return mask if char.islower() else _ALL & ~mask
        if char not in "pP":
            return None
        if self._took("{"):
            name, brace, _ = self._text[self._position :].partition("}")
            if not brace:
                raise InvalidRegex("a character class is not closed")
            self._position += len(name) + 1
        else:
            name = self._take()
        negated = (char == "P") != name.startswith("^")
        found = _unicode_class(name.removeprefix("^"))
        return _ALL & ~found if negated else found

    def _escaped_char(self, char: str) -> int:
        """The number of an escaped character, 128 for any beyond ASCII."""
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "x":
            found = _HEX.match(self._text, self._position)
            if found is None:
                raise InvalidRegex("a character's number cannot be read")
            self._position = found.end()
            return min(int(found[1] or found[2], 16), 128)
        if char in "01234567":
            found = _OCTAL.match(self._text, self._position)
            assert found is not None
            # \1 to \7 alone would be references to groups, which no machine without memory can follow.
            if char != "0" and not found[0]:
                raise InvalidRegex(f"the escape \\{char} is not supported")
            self._position = found.end()
            return min(int(char + found[0], 8), 128)
        if char.isascii() and not char.isalnum():
            return ord(char)
        raise InvalidRegex(f"the escape \\{char} is not supported")

    # ── classes in brackets ──

    def _class(self) -> int:
        negated = self._took("^")
        mask = 0
        is_first = True
        while is_first or self._peek() != "]":
            if not self._peek():
                raise InvalidRegex("a bracket is not closed")
            is_first = False
            mask |= self._class_item()
        self._take()
        mask = self._folded(mask)
        return _ALL & ~mask if negated else mask

    def _class_item(self) -> int:
        if self._peek(2) == "[:":
            found = _POSIX_CLASS.match(self._text, self._position)
            if found is not None:
                if found[2] not in _POSIX:
                    raise InvalidRegex(f"no character class is called {found[2]}")
                self._position = found.end()
                return _ALL & ~_POSIX[found[2]] if found[1] else _POSIX[found[2]]
        if self._peek() == "\\" and (known := self._class_in_class()) is not None:
            return known
        first = self._class_char()
        if self._peek() != "-" or self._peek(2) in ("-", "-]"):
            return 1 << first & _ALL
        self._take()
        last = self._class_char()
        if last < first:
            raise InvalidRegex("a range of characters runs backwards")
        return ((1 << last + 1) - (1 << first)) & _ALL

    def _class_in_class(self) -> int | None:
        position = self._position
        self._take()
        known = self._escaped_class(self._take() or "\\")
        if known is None:
            self._position = position
        return known

    def _class_char(self) -> int:
        char = self._take()
        if char == "\\":
            return self._escaped_char(self._take() or "z")
        if not char:
            raise InvalidRegex("a bracket is not closed")
        return min(ord(char), 128)

    # ── repetitions ──

    def _repetitions(self, part: _Node) -> _Node:
        has_one = False
        while (bounds := self._bounds()) is not None:
            if has_one:
                raise InvalidRegex("a repetition is repeated")
            has_one = True
            # How much is taken first makes no difference to whether all of a name matches.
            self._took("?")
            part = _Repeat(part, *bounds)
        return part

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._took(sign):
                return bounds
        found = _BOUNDS.match(self._text, self._position)
        if found is None:
            return None  # a brace that does not look like bounds is a brace
        self._position = found.end()
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if least > _REPEAT_LIMIT or (most is not None and not least <= most <= _REPEAT_LIMIT):
            raise InvalidRegex(f"{found[0]} is not a valid number of repetitions")
        return least, most


# ── the graph ──


class _State:
    """Reads a character of `mask` and goes to `next`; or, with mask 0, goes there without reading if `holds`."""

    __slots__ = ("holds", "mask", "next")

    def __init__(
        self, mask: int, following: tuple[int, ...], holds: Callable[[str | None, str | None], bool] | None = None
    ) -> None:
        self.mask = mask
        self.next = following
        self.holds = holds


class _Builder:
    """Builds from the end to the beginning: every node is told which state follows it."""

    def __init__(self) -> None:
        self.states: list[_State] = [_State(0, ())]

    def _add(self, state: _State) -> int:
        if len(self.states) >= _STATE_LIMIT:
            raise InvalidRegex("it is too large")
        self.states.append(state)
        return len(self.states) - 1

    def build(self, node: _Node, end: int) -> int:
        """The state to begin at for matching `node` and then going on at `end`."""
        if isinstance(node, _Set):
            return self._add(_State(node.mask, (end,) if node.mask else ()))
        if isinstance(node, _Assert):
            return self._add(_State(0, (end,), node.holds))
        if isinstance(node, _Sequence):
            for part in reversed(node.parts):
                end = self.build(part, end)
            return end
        if isinstance(node, _Choice):
            return self._add(_State(0, tuple(self.build(part, end) for part in node.parts)))
        return self._repeat(node, end)

    def _repeat(self, node: _Repeat, end: int) -> int:
        if node.most is None:
            loop = self._add(_State(0, ()))
            self.states[loop].next = (self.build(node.part, loop), end)
            end = loop
        else:
            last = end
            for _ in range(node.most - node.least):
                end = self._add(_State(0, (self.build(node.part, end), last)))
        for _ in range(node.least):
            end = self.build(node.part, end)
        return end


_END = 0

# The states that may be before the next character is read, and what the last character was as far as an assertion asks:
# None at the start, or one of its kind.
_Place = tuple[frozenset[int], str | None]


def _kind(char: str) -> str:
    return "a" if _is_word(char) else "\n" if char == "\n" else "-"


class Regex:
    """A compiled expression. Matches a name as a whole, not a part of it."""

    def __init__(self, text: str) -> None:
        """Raises InvalidRegex."""
        self.text = text
        builder = _Builder()
        self._start = builder.build(_Parser(text).parse(), _END)
        self._states = builder.states
        self._forget()

    def __repr__(self) -> str:
        return f"<Regex {self.text!r}, {len(self._states)} states>"

    def _forget(self) -> None:
        # The deterministic machine, as far as it has been walked: its places by number, and from each where a character
        # leads. Place 0 is the start.
        self._places: list[_Place] = [(frozenset((self._start,)), None)]
        self._numbers: dict[_Place, int] = {self._places[0]: 0}
        self._moves: list[dict[str, int]] = [{}]

    def matches(self, name: str) -> bool:
        if not name.isascii():
            return False
        number = 0
        for char in name:
            following = self._moves[number].get(char)
            if following is None:
                following = self._move(number, char)
            if following == _NOWHERE:
                return False
            number = following
        states, before = self._places[number]
        return _END in self._closure(states, before, None)

    def _move(self, number: int, char: str) -> int:
        """Where `char` leads from a place, remembered for the next time."""
        if len(self._places) >= _MEMORY_LIMIT:
            place = self._places[number]
            self._forget()
            number = self._number(place)
        states, before = self._places[number]
        bit = 1 << ord(char)
        reached = frozenset(
            following
            for index in self._closure(states, before, char)
            if (state := self._states[index]).mask & bit
            for following in state.next
        )
        to = self._number((reached, _kind(char))) if reached else _NOWHERE
        self._moves[number][char] = to
        return to

    def _number(self, place: _Place) -> int:
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self._places)
            self._places.append(place)
            self._moves.append({})
        return number

    def _closure(self, states: frozenset[int], before: str | None, after: str | None) -> set[int]:
        """These states and all that are reached from them without reading."""
        reached: set[int] = set()
        waiting = list(states)
        while waiting:
            index = waiting.pop()
            if index in reached:
                continue
            reached.add(index)
            state = self._states[index]
            if not state.mask and (state.holds is None or state.holds(before, after)):
                waiting += state.next
        return reached


_NOWHERE = -1
