"""Writes the source of encoders. `pessoa.wire.codec_compiler` describes their form.

The generated function appends to `out`. Where record data comes, it sets `out` aside, puts the data itself behind it
and goes on with a fresh bytearray: the caller gets a list of buffers in which the record data is the very object that
it passed in. A run ends with the byte that nearly always suffices (a short length, a zero count of tags); where it
does not, the byte is taken back and the longer form written.
"""

from __future__ import annotations

from pessoa.wire.codec_compiler import FIXED, Layout, Source, default_struct, encode_names, literal, packer
from pessoa.wire.primitives import MAX_TEXT_BYTES, ArrayPackers
from pessoa.wire.schema import Encoder, Field, Struct


class EncoderWriter:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.source = Source()
        self.source.names.update(encode_names())
        # The run of values that waits to be written: struct code and expression of each ("" for a zero byte). An array
        # of integers is in it as its length, then the code of an item and the items behind a star.
        self.run: list[tuple[str, str]] = []

    def write(self) -> Encoder:
        source, title = self.source, self.layout.title
        with source.block("def encode(s, out):"):
            source.add("parts = []")
            with source.block("try:"):
                self._write_struct(self.layout.message, "s")
                self._flush()
            source.add(
                "except (StructError, AttributeError, TypeError, UnicodeEncodeError) as error:",
                f'    raise EncodeError(f"{title} cannot carry this value: {{error}}") from error',
                "parts.append(out)",
                "return parts",
            )
        return source.build("encode", f"encode {title}")  # type: ignore[no-any-return]

    # A struct: its body, then its tagged fields.

    def _write_struct(self, struct: type[Struct], owner: str) -> None:
        for field in self.layout.absent(struct):
            if not field.ignorable:
                self._refuse_unless_default(field, f"{owner}.{field.name}")
        for field in self.layout.inline(struct):
            self._write_value(field, f"{owner}.{field.name}")
        if self.layout.is_flexible:
            self._write_tagged_fields(struct, owner)

    def _refuse_unless_default(self, field: Field, value: str) -> None:
        what = f"{self.layout.title} has no field {field.name}, and it is set"
        # Where a struct may be null, null is its default and nothing else is.
        is_set = (
            self._differs_from_default(field, value) if field.nullable != "none" else self._is_written(field, value)
        )
        self.source.add(f'if {is_set}: raise UnsupportedFieldError("{what}")')

    def _differs_from_default(self, field: Field, value: str) -> str:
        """Return an expression that is true when the value is not the default."""
        default = field.zero
        if default is None:
            return f"{value} is not None"
        if field.kind == "array":
            return f"{value} is None or len({value})" if field.nullable != "none" else f"len({value})"
        return f"{value} != {literal(self.source, field)}"

    def _write_tagged_fields(self, struct: type[Struct], owner: str) -> None:
        source, known = self.source, self.layout.tagged(struct)
        self.run.append(("x", ""))
        self._flush()
        conditions = [self._is_written(field, f"{owner}.{field.name}") for field in known]
        with source.block(f"if {' or '.join([*conditions, f'{owner}.unknown_tagged_fields'])}:"):
            tagged, body = source.variable("tagged"), source.variable("body")
            source.add("out.pop()", f"{tagged} = list({owner}.unknown_tagged_fields)", f"{body} = out")
            for field, condition in zip(known, conditions, strict=True):
                with source.block(f"if {condition}:"):
                    source.add("out = bytearray()")
                    self._write_value(field, f"{owner}.{field.name}")
                    self._flush()
                    source.add(f"{tagged}.append(({field.tag}, out))")
            source.add(f"out = {body}", f"write_tagged_fields(out, {tagged})")

    def _is_written(self, field: Field, value: str) -> str:
        if field.kind != "struct":
            return f"({self._differs_from_default(field, value)})"
        # None stands for the default struct, or for null where the field may be null; one that equals the default is
        # not written either.
        default = self.source.constant(f"default_{field.name}", default_struct(field))
        if self.layout.is_nullable(field):
            return f"({value} is None or {value} != {default})"
        return f"({value} is not None and {value} != {default})"

    # A value of any kind.

    def _write_value(self, field: Field, value: str) -> None:
        kind = field.kind
        if kind in FIXED:
            self.run.append((FIXED[kind], value))
        elif kind == "struct":
            self._write_nested(field, value)
        elif kind == "array":
            self._write_array(field, value)
        else:
            self._write_sized(field, kind, value)

    def _write_nested(self, field: Field, value: str) -> None:
        source = self.source
        assert field.struct is not None
        if not self.layout.is_nullable(field):
            owner = source.variable("s")
            source.add(f"{owner} = {value}")
            self._write_struct(field.struct, owner)
            return
        self._flush()
        owner = source.variable("s")
        # Null is -1 in the body, and in a tagged field a varint of 0.
        null = 0 if self.layout.is_tagged(field) else 255
        source.add(f"{owner} = {value}", f"if {owner} is None: out.append({null})")
        with source.block("else:"):
            self.run.append(("b", "1"))
            self._write_struct(field.struct, owner)
            self._flush()

    def _write_sized(self, field: Field, kind: str, value: str) -> None:
        source = self.source
        data, length = source.variable("b"), source.variable("n")
        compact = self.layout.is_compact(field)
        source.add(f"{data} = {value}")
        given = [f"{data} = {data}.encode()"] if kind == "string" else []
        given.append(f"{length} = len({data}){' + 1' if compact else ''}")
        if self.layout.is_nullable(field):
            source.add(f"if {data} is None:", f"    {data} = b''; {length} = {0 if compact else -1}", "else:")
            source.add(*(f"    {line}" for line in given))
        else:
            source.add(*given)
        if kind == "string":
            self._write_length(length, compact, "h", most=MAX_TEXT_BYTES + 1, name=field.name)
        else:
            self._write_length(length, compact, "i")
        if kind == "records":
            source.add(f"if {length} > {1 if compact else 0}:")
            source.add(f"    parts.append(out); parts.append({data}); out = bytearray()")
        else:
            source.add(f"out += {data}")

    def _write_array(self, field: Field, value: str) -> None:
        source = self.source
        items, count = source.variable("items"), source.variable("n")
        compact = self.layout.is_compact(field)
        source.add(f"{items} = {value}")
        if self.layout.is_nullable(field):
            source.add(f"if {items} is None:", f"    {items} = (); {count} = {0 if compact else -1}", "else:")
            source.add(f"    {count} = len({items}){' + 1' if compact else ''}")
        else:
            source.add(f"{count} = len({items}){' + 1' if compact else ''}")
        assert field.item is not None
        if field.item in FIXED and field.item not in ("uuid", "bool"):
            self.run.append(("B" if compact else "i", count))
            self.run.append((FIXED[field.item], f"*{items}"))
            return
        self._write_length(count, compact, "i")
        item = source.variable("s")
        with source.block(f"for {item} in {items}:"):
            if field.item == "struct":
                assert field.struct is not None
                self._write_struct(field.struct, item)
            else:
                element = Field(field.item, flexible=field.flexible)
                element.name = field.name
                self._write_value(element, item)
            self._flush()

    def _write_length(
        self, length: str, compact: bool, classic_code: str, most: int | None = None, name: str = ""
    ) -> None:
        """Write a length and with it the waiting run. Classic lengths bound themselves, compact ones by `most`."""
        if not compact:
            self.run.append((classic_code, length))
            self._flush()
            return
        refuse = f'raise EncodeError("{self.layout.title} cannot carry a {name} of more than {MAX_TEXT_BYTES} bytes")'
        bound = [] if most is None else [f"    if {length} > {most}: {refuse}"]
        if not self.run:
            self.source.add(
                f"if {length} < 128: out.append({length})", "else:", *bound, f"    out += uvarint({length})"
            )
            return
        self.run.append(("B", f"{length} if {length} < 128 else 0"))
        self._flush()
        self.source.add(f"if {length} > 127:", *bound, f"    out[-1:] = uvarint({length})")

    # Runs.

    def _flush(self) -> None:
        """Write the statement that writes the waiting run."""
        run, self.run = self.run, []
        if not run:
            return
        if any(value.startswith("*") for _, value in run):
            self._flush_with_arrays(run)
            return
        codes = "".join(code for code, _ in run)
        if codes == "x":
            self.source.add("out.append(0)")
            return
        self.source.add(f"out += {packer(self.source, codes)}({_arguments(run)})")

    def _flush_with_arrays(self, run: list[tuple[str, str]]) -> None:
        """Write a run with arrays of integers: in one `pack` if every length fits into a byte, as nearly always;
        else piece by piece."""
        arrays, lengths, before = [], [], ""
        for position, (code, value) in enumerate(run):
            if value.startswith("*"):
                arrays.append((before, code))
                lengths.append(run[position - 1][1])
                before = ""
            else:
                before += code
        compact = self.layout.is_flexible
        packers = self.source.constant("packers", ArrayPackers(tuple(arrays), before, extra=int(compact)))
        whole = f"out += {packers}[{', '.join(lengths)}]({_arguments(run)})"
        if not compact:
            self.source.add(whole)
            return
        with self.source.block(f"if {' and '.join(f'{length} < 128' for length in lengths)}:"):
            self.source.add(whole)
        with self.source.block("else:"):
            self._flush_piece_by_piece(run)

    def _flush_piece_by_piece(self, run: list[tuple[str, str]]) -> None:
        for position, (code, value) in enumerate(run):
            if value.startswith("*"):
                _, length = self.run.pop()
                self._flush()
                alone = self.source.constant("packers", ArrayPackers((("", code),), "", extra=1))
                self.source.add(f"out += uvarint({length}) + {alone}[{length}]({value})")
            else:
                self.run.append(run[position])
        self._flush()


def _arguments(run: list[tuple[str, str]]) -> str:
    return ", ".join(value for _, value in run if value)
