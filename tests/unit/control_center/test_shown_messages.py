"""Messages as pages get them: their size is bounded, whatever a record contains."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pessoa.control_center.accounts import Person
from pessoa.control_center.message_decoding import Decoder
from pessoa.control_center.message_reading import SHOWN_BYTES, Message, MessageQuery, Scan
from pessoa.control_center.texts import Text
from pessoa.web.problems import HttpProblem
from tests.unit.control_center.test_masked_messages import FakeRecord

pytest.importorskip("nicegui")

from nicegui.elements.upload_files import SmallFileUpload

from pessoa.control_center.pages import topic_messages

VISIT: Any = SimpleNamespace(t=Text())


class ReadRecord(FakeRecord):
    def __len__(self) -> int:
        return len(self.value())


def examined(data: bytes) -> Message:
    """Return the message that a scan makes of a record."""

    async def scan() -> Message:
        one = Scan(MessageQuery("t"), {}, lambda: pytest.fail("there is nothing to read"), Decoder(None))
        record: Any = ReadRecord(data, [("deep", data[:500])])
        found: list[Message | None] = []
        # As in a scan: with the stack of a thread.
        thread = threading.Thread(target=lambda: found.append(one._examine(record)))
        thread.start()
        thread.join()
        assert found[0] is not None
        return found[0]

    return asyncio.run(scan())


@pytest.mark.parametrize("depth", [10, 60, 64, 65, 900, 1500])
def test_a_deeply_nested_record_is_shown_in_a_bounded_text(depth: int) -> None:
    one = b"[" * depth + b"1" + b"]" * depth
    data = b"[" + b",".join([one] * (SHOWN_BYTES // len(one))) + b"]"
    shown = examined(data)
    assert len(topic_messages.draw_message(VISIT, shown)) < 6 * SHOWN_BYTES
    assert msgspec.json.encode(shown)


def test_a_small_value_is_shown_once_and_over_several_lines() -> None:
    drawn = topic_messages.draw_message(VISIT, examined(b'{"name": "once", "more": [1]}'))
    assert "<pre>{\n  &#34;name&#34;" in drawn
    # The key, in the head; the value in the preview and in the text; the header.
    assert drawn.count("once") == 4


def test_a_value_that_is_sent_again_is_not_truncated() -> None:
    value: Any = [[[[[[index]]]]] for index in range(9000)]
    assert msgspec.json.decode(topic_messages.pretty(value)) == value
    assert len(topic_messages.pretty(value, SHOWN_BYTES)) == SHOWN_BYTES


def test_a_reader_cannot_open_the_dialog_that_sends_a_message_again() -> None:
    handlers: dict[str, Any] = {}
    visit: Any = SimpleNamespace(person=Person("rui", "reader"), on=handlers.__setitem__)
    topic_messages._serve_events(visit, "t", SimpleNamespace(kept=[]))  # type: ignore[arg-type]
    with pytest.raises(HttpProblem) as refused:
        asyncio.run(handlers["resend"](SimpleNamespace(args={"p": 0, "o": 0})))
    assert refused.value.status == 403


def test_an_uploaded_file_of_more_than_the_bound_is_refused_before_it_is_read() -> None:
    class Endless(SmallFileUpload):
        def size(self) -> int:
            return topic_messages.MAX_UPLOAD + 1

        async def read(self) -> bytes:
            pytest.fail("the file was read")

    with pytest.raises(HttpProblem) as refused:
        asyncio.run(topic_messages.lines_of(Endless("f", "text/plain", b""), Text()))
    assert refused.value.status == 413
    small = SmallFileUpload("f", "text/plain", b"a\n\nb\n")
    assert asyncio.run(topic_messages.lines_of(small, Text())) == [b"a", b"b"]
