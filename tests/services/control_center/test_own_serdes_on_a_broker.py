"""Custom serdes in a Python file, on a real broker: messages are shown, searched, filtered and produced with them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pessoa.control_center.center import Center
from pessoa.control_center.center_app import api_app
from pessoa.control_center.filter_expressions import compile_filter
from pessoa.control_center.message_reading import MessageQuery
from pessoa.testing import Broker
from tests.services.control_center.test_center import ADMIN, find_messages, produce, with_center

# Values are JSON in base64, so that a search of the bytes does not find the text.
FILE = """
import base64
import json


class Hidden:
    name = "hidden"

    def can_read(self, topic, part):
        return topic == "secrets" and part == "value"

    def decode(self, data):
        return json.loads(base64.b64decode(data, validate=True))

    def encode(self, value):
        return base64.b64encode(json.dumps(value).encode())


SERDES = [Hidden()]
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def test_messages_of_a_custom_serde_are_searched_filtered_and_produced_like_built_in_formats(
    broker: Broker, tmp_path: Path
) -> None:
    place = tmp_path / "hidden.py"
    place.write_text(FILE)

    async def act(center: Center) -> None:
        for topic in ("secrets", "plain"):
            await center.create_topic(ADMIN, topic, 1, 1, {})
        values = [base64.b64encode(f'{{"n": {number}, "city": "Porto"}}'.encode()).decode() for number in range(20)]
        for topic in ("secrets", "plain"):
            produce(broker, topic, [*values, "this is not base64"])
        shown = await find_messages(center, MessageQuery("secrets", "earliest"))
        assert [one.value for one in shown[:2]] == [{"n": 0, "city": "Porto"}, {"n": 1, "city": "Porto"}]
        assert {one.value_format for one in shown[:20]} == {"hidden"}
        assert (shown[20].value, shown[20].value_format) == ("this is not base64", "text")
        assert "The serde hidden says" in str(shown[20].trouble)
        assert [one.offset for one in await find_messages(center, MessageQuery("secrets", search='"n":17'))] == [17]
        passes = compile_filter("value.n > 17")
        assert [one.offset for one in await find_messages(center, MessageQuery("secrets", passes=passes))] == [18, 19]
        assert await find_messages(center, MessageQuery("plain", search="porto")) == []
        named = MessageQuery("plain", search="porto", value_format="hidden")
        assert len(await find_messages(center, named)) == 20

        transport = httpx.ASGITransport(app=api_app(center))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            body = {"value": '{"n": 99}', "value_format": "hidden"}
            (await http.post("/api/v1/topics/secrets/messages", json=body)).raise_for_status()
            found = (await http.get("/api/v1/topics/secrets/messages?limit=1")).json()
            assert (found["messages"][0]["value"], found["messages"][0]["value_format"]) == ({"n": 99}, "hidden")
            wrong = await http.post("/api/v1/topics/secrets/messages", json={"value": "1", "value_format": "os.system"})
            assert wrong.status_code == 400
            assert "there are hidden" in wrong.text
            unknown = await http.get("/api/v1/topics/secrets/messages?value_format=os.system")
            assert unknown.status_code == 400

    with_center(broker, act, pessoa_control_center_serdes=str(place))
