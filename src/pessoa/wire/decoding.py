"""Writes the source of decoders. `pessoa.wire.codec_compiler` describes their form and what they guarantee.

The generated function keeps to a few names: `data`, `pos` and `end`, the struct at hand `s1`, `s2`, …, lengths
`n1`, `n2`, …, and in requests how many elements may still come, `left`. A struct's fixed fields are stored into its
slots straight from the run that reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from struct import calcsize

from pessoa.wire.codec_compiler import (
    FIXED,
    Layout,
    Source,
    array_unpackers,
    decode_names,
    default_struct,
    literal,
    unpacker,
)
from pessoa.wire.primitives import MAX_REQUEST_ITEMS, MAX_TEXT_BYTES, UNBOUNDED_ITEMS
from pessoa.wire.schema import Decoder, Field, Struct, has_records


class DecoderWriter:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.source = Source()
        self.source.names.update(decode_names())
        # Only requests: a response may be as long as its request allows.
        self.is_bounded = layout.is_request
        # The run of fixed-size values that waits to be read: struct code and target of each.
        self.run: list[tuple[str, str]] = []

    def write(self) -> Decoder:
        source = self.source
        title = source.names["title"] = self.layout.title
        with source.block("def decode(data, pos, end):"):
            if has_records(self.layout.message):
                source.add("view = memoryview(data)")
            if self.is_bounded:
                source.add(f"left = {MAX_REQUEST_ITEMS}")
            with source.block("try:"):
                root = self._write_struct(self.layout.message)
            source.add(
                "except (StructError, IndexError) as error:",
                f'    raise Violation("{title} ends too early") from error',
                f"if pos > end: {self._violation('ends too early')}",
                f"return {root}, pos",
            )
        return source.build("decode", f"decode {title}")  # type: ignore[no-any-return]

    # A struct: its body, then its tagged fields.

    def _write_struct(self, struct: type[Struct]) -> str:
        owner = self.source.variable("s")
        self.source.add(f"{owner} = new({self.source.constant(struct.__name__, struct)})")
        for field in self.layout.absent(struct):
            self.source.add(f"{owner}.{field.name} = {literal(self.source, field)}")
        for field in self.layout.inline(struct):
            self._write_value(field, f"{owner}.{field.name}")
        if self.layout.is_flexible:
            self._write_tagged_fields(struct, owner)
        else:
            self._flush()
            self.source.add(f"{owner}.unknown_tagged_fields = ()")
        return owner

    def _write_tagged_fields(self, struct: type[Struct], owner: str) -> None:
        source, known = self.source, self.layout.tagged(struct)
        count = source.variable("n")
        self._add_to_run("B", count)
        self._flush()
        source.add(f"{owner}.unknown_tagged_fields = ()")
        if not known:
            # Most structs are so, and nearly all messages have none: a call keeps the source, and its compiling, short.
            left = "left" if self.is_bounded else str(UNBOUNDED_ITEMS)
            target = f"{owner}.unknown_tagged_fields, pos, {'left' if self.is_bounded else '_'}"
            source.add(f"if {count}: {target} = read_tagged_fields(data, pos, end, {count}, {left}, title)")
            return
        for field in known:
            source.add(f"{owner}.{field.name} = {self._absent_value(field)}")
        with source.block(f"if {count}:"):
            self._finish_uvarint(count)
            claim = self._violation("claims more tagged fields than there are bytes")
            source.add(f"if {count} > (end - pos) >> 1: {claim}")
            self._write_item_limit(count)
            unknown = source.variable("unknown")
            source.add(f"{unknown} = []")
            with source.block(f"for _ in range({count}):"):
                self._write_tagged_field(known, owner, unknown)
            source.add(f"if {unknown}: {owner}.unknown_tagged_fields = tuple({unknown})")

    def _absent_value(self, field: Field) -> str:
        """Return the expression for an absent tagged field: its default. For a struct it is None, unless None means
        null."""
        if field.kind != "struct":
            return literal(self.source, field)
        if not self.layout.is_nullable(field):
            return "None"
        return f"{self.source.constant('make', partial(default_struct, field))}()"

    def _write_tagged_field(self, known: list[Field], owner: str, unknown: str) -> None:
        source, stop = self.source, self.source.variable("stop")
        source.add(
            "tag, pos = read_uvarint(data, pos)",
            "size, pos = read_uvarint(data, pos)",
            f"{stop} = pos + size",
            f"if {stop} > end: {self._violation('has a tagged field past its end')}",
        )
        test = "if"
        for field in known:
            with source.block(f"{test} tag == {field.tag}:"):
                self._write_value(field, f"{owner}.{field.name}")
                self._flush()
                wrong = self._violation(f"has a {field.name} of another size than its tag says")
                source.add(f"if pos != {stop}: {wrong}")
            test = "elif"
        with source.block("else:"):
            source.add(f"{unknown}.append((tag, bytes(data[pos:{stop}])))", f"pos = {stop}")

    # A value of any kind, into `target`.

    def _write_value(self, field: Field, target: str) -> None:
        kind = field.kind
        if kind in FIXED:
            self._write_fixed(kind, target)
        elif kind == "struct":
            self._write_nested(field, target)
        elif kind == "array":
            self._write_array(field, target)
        else:
            self._write_sized(field, kind, target)

    def _write_fixed(self, kind: str, target: str) -> None:
        self._add_to_run(FIXED[kind], target)
        if kind == "uuid":
            self._flush()
            self.source.add(f"{target} = new_bytes(Uuid, {target})")

    def _write_nested(self, field: Field, target: str) -> None:
        source = self.source
        assert field.struct is not None
        if not self.layout.is_nullable(field):
            nested = self._write_struct(field.struct)
            source.add(f"{target} = {nested}")
            return
        # One byte says whether the struct is there: negative for null in the body, 0 in a tagged field.
        marker = source.variable("n")
        self._add_to_run("b", marker)
        self._flush()
        is_null = "<= 0" if self.layout.is_tagged(field) else "< 0"
        source.add(f"if {marker} {is_null}: {target} = None")
        with source.block("else:"):
            nested = self._write_struct(field.struct)
            source.add(f"{target} = {nested}")

    def _write_sized(self, field: Field, kind: str, target: str) -> None:
        """Write the code that reads a string, bytes or records: a length, then that many bytes."""
        source = self.source
        length = self._write_length(field, "h" if kind == "string" else "i")
        text = {
            "string": 'data[pos:stop].decode("utf-8", "replace")',
            "bytes": "bytes(data[pos:stop])",
            "records": "view[pos:stop]",
        }[kind]
        with self._unless_null(field, length, target):
            source.add(f"stop = pos + {length}", f"{target} = {text}", "pos = stop")

    def _write_array(self, field: Field, target: str) -> None:
        source = self.source
        count = self._write_length(field, "i")
        smallest = self.layout.smallest_item(field)
        room = "end - pos" if smallest == 1 else f"(end - pos) // {smallest}"
        with self._unless_null(field, count, target):
            source.add(f"if {count} > {room}: {self._violation(f'claims more {field.name} than there are bytes')}")
            self._write_item_limit(count)
            assert field.item is not None
            if field.item in FIXED and field.item not in ("uuid", "bool"):
                read = array_unpackers(source, FIXED[field.item])
                source.add(f"{target} = list({read}[{count}](data, pos))", f"pos += {count} * {smallest}")
            else:
                self._write_items(field, count, target)

    def _write_item_limit(self, count: str) -> None:
        if self.is_bounded:
            many = self._violation(f"has more than {MAX_REQUEST_ITEMS} elements")
            self.source.add(f"left -= {count}", f"if left < 0: {many}")

    def _write_items(self, field: Field, count: str, target: str) -> None:
        source = self.source
        items = source.variable("items")
        source.add(f"{items} = []")
        with source.block(f"for _ in range({count}):"):
            if field.item == "struct":
                assert field.struct is not None
                item = self._write_struct(field.struct)
            else:
                assert field.item is not None
                item = source.variable("item")
                element = Field(field.item, flexible=field.flexible)
                element.name = field.name
                self._write_value(element, item)
                self._flush()
            source.add(f"{items}.append({item})")
        source.add(f"{target} = {items}")

    # Lengths. After `_write_length`, the variable holds the length, or -1 for null.

    def _write_length(self, field: Field, classic_code: str) -> str:
        length = self.source.variable("n")
        if self.layout.is_compact(field):
            self._add_to_run("B", length)
            self._flush()
            self._finish_uvarint(length, most=MAX_TEXT_BYTES + 1 if field.kind == "string" else None, name=field.name)
            self.source.add(f"{length} -= 1")
        else:
            self._add_to_run(classic_code, length)
            self._flush()
        return length

    def _finish_uvarint(self, variable: str, most: int | None = None, name: str = "") -> None:
        """Write the code that reads the varint again from its first byte, which the run has read, if more bytes
        follow."""
        with self.source.block(f"if {variable} > 127:"):
            self.source.add(f"{variable}, pos = read_uvarint(data, pos - 1)")
            if most is not None:
                self.source.add(
                    f"if {variable} > {most}: {self._violation(f'has a {name} of more than {most - 1} bytes')}"
                )

    @contextmanager
    def _unless_null(self, field: Field, length: str, target: str) -> Iterator[None]:
        """Write the code that sets a null or refuses it; the lines added inside the `with` block read a value that
        is not null."""
        source = self.source
        if not self.layout.is_nullable(field):
            source.add(f"if {length} < 0: {self._violation(f'has a null or negative {field.name}')}")
            yield
            return
        if not self.layout.is_compact(field):
            source.add(f"if {length} < -1: {self._violation(f'has a negative {field.name}')}")
        source.add(f"if {length} < 0: {target} = None")
        with source.block("else:"):
            yield

    # Runs.

    def _add_to_run(self, code: str, target: str) -> None:
        self.run.append((code, target))

    def _flush(self) -> None:
        """Write the statement that reads the waiting run."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        self.run = []
        if codes == "B":
            self.source.add(f"{targets} = data[pos]", "pos += 1")
            return
        read = unpacker(self.source, codes)
        self.source.add(f"{targets}, = {read}(data, pos)", f"pos += {calcsize('>' + codes)}")

    def _violation(self, what: str) -> str:
        return f'raise Violation("{self.layout.title} {what}")'
