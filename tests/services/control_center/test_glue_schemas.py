"""Records with the header of AWS Glue's schema registry; an HTTP server replaces Glue and checks each signature."""

from __future__ import annotations

import io
import json
import re
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID

import pytest
from fastavro import parse_schema, schemaless_writer

from pessoa.base.config_values import ConfigProblem
from pessoa.control_center.aws_signature import AwsKeys, signed_headers
from pessoa.control_center.center_config import from_properties, glue_schemas
from pessoa.control_center.glue_schemas import GlueSchemas, message_paths, unframe
from pessoa.control_center.message_decoding import Decoder
from pessoa.serde.schema_problems import DataProblem

KEYS = AwsKeys("AKIDEXAMPLE", "secret", "t0ken")
AVRO, JSON, PROTOBUF, UNKNOWN, BROKEN = (UUID(int=number) for number in range(1, 6))
PAYMENT = {"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "string"}]}
# From the example in Glue's MessageIndexFinder: the indexes are B = 0, B.A = 1, B.A.D = 2, B.C = 3.
PROTO = """
syntax = "proto3";
message B {
  string name = 1;
  message C { int32 n = 1; }
  message A { message D { string text = 1; } }
}
"""
SCHEMAS = {
    str(AVRO): ("AVRO", json.dumps(PAYMENT)), str(JSON): ("JSON", '{"type": "object"}'),
    str(PROTOBUF): ("PROTOBUF", PROTO), str(BROKEN): ("AVRO", "{"),
}  # fmt: skip


class Glue(BaseHTTPRequestHandler):
    asked: list[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        proof = self.headers["Authorization"]
        named = re.search("SignedHeaders=([^,]+),", proof)
        assert named is not None
        given = {name: self.headers[name] for name in named[1].split(";")}
        at = given.pop("x-amz-date")
        given.pop("x-amz-security-token")
        if proof != signed_headers(KEYS, "eu-west-1", "glue", at, given, body)["authorization"]:
            self._answer(400, {"__type": "InvalidSignatureException", "message": "The signature does not match."})
            return
        assert self.headers["X-Amz-Target"] == "AWSGlue.GetSchemaVersion"
        wanted = json.loads(body)["SchemaVersionId"]
        self.asked.append(wanted)
        if wanted not in SCHEMAS:
            self._answer(400, {"__type": "EntityNotFoundException", "Message": "Schema version is not found."})
            return
        kind, text = SCHEMAS[wanted]
        self._answer(
            200, {"SchemaVersionId": wanted, "SchemaDefinition": text, "DataFormat": kind, "Status": "AVAILABLE"}
        )

    def _answer(self, status: int, said: object) -> None:
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing: `asked` has the requested schemas."""


@pytest.fixture
def glue() -> Iterator[ThreadingHTTPServer]:
    Glue.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Glue)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def decoder_of(server: ThreadingHTTPServer, keys: AwsKeys = KEYS) -> Decoder:
    return Decoder(None, glue=GlueSchemas("eu-west-1", keys, f"http://127.0.0.1:{server.server_port}"))


def frame_payload(version: UUID, payload: bytes, compression: int = 0) -> bytes:
    return bytes([3, compression]) + version.bytes + payload


def encode_payment() -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(PAYMENT), {"id": "p-1"})
    return out.getvalue()


def test_avro_json_and_protobuf_are_decoded_with_one_request_to_glue_for_each_schema(glue: ThreadingHTTPServer) -> None:
    decoder = decoder_of(glue)
    for _ in range(2):
        assert decoder.decode(frame_payload(AVRO, encode_payment()))[:2] == ("avro", {"id": "p-1"})
        assert decoder.decode(frame_payload(AVRO, zlib.compress(encode_payment()), 5))[:2] == ("avro", {"id": "p-1"})
        assert decoder.decode(frame_payload(JSON, b'{"a": 1}'))[:2] == ("json", {"a": 1})
        assert decoder.decode(frame_payload(PROTOBUF, b"\x03\x08\x07"))[:2] == ("protobuf", {"n": 7})
        assert decoder.decode(frame_payload(PROTOBUF, b"\x02\x0a\x02hi"), "avro")[:2] == ("protobuf", {"text": "hi"})
    assert Glue.asked == [str(AVRO), str(JSON), str(PROTOBUF)]


def test_protobuf_messages_of_glue_are_numbered_in_the_order_of_their_full_names() -> None:
    assert list(message_paths(PROTO).items()) == [("B", (0,)), ("B.A", (0, 1)), ("B.A.D", (0, 1, 0)), ("B.C", (0, 0))]


def test_a_schema_that_glue_refuses_is_reported_beside_the_bytes_and_requested_once(glue: ThreadingHTTPServer) -> None:
    decoder = decoder_of(glue)
    for _ in range(2):
        refused = decoder.decode(frame_payload(UNKNOWN, b"x"))
        assert refused.format == "hex"
        assert "Glue answers 400: EntityNotFoundException Schema version is not found." in str(refused.trouble)
    assert "does not help" in str(decoder.decode(frame_payload(BROKEN, b"x")).trouble)
    assert Glue.asked == [str(UNKNOWN), str(BROKEN)]
    forged = decoder_of(glue, KEYS._replace(secret="another")).decode(frame_payload(AVRO, encode_payment()))
    assert "InvalidSignatureException" in str(forged.trouble)


def test_a_payload_that_does_not_fit_its_glue_schema_is_reported_and_unframed_bytes_stay_text(
    glue: ThreadingHTTPServer,
) -> None:
    decoder = decoder_of(glue)
    assert "no message 9" in str(decoder.decode(frame_payload(PROTOBUF, b"\x09")).trouble)
    assert "place of a message" in str(decoder.decode(frame_payload(PROTOBUF, b"")).trouble)
    assert "not zlib" in str(decoder.decode(frame_payload(AVRO, b"plain", 5)).trouble)
    assert unframe(bytes([3, 1]) + bytes(16) + b"text") is None
    assert unframe(b"\x03\x00short") is None
    assert decoder.decode(b"plain text")[:2] == ("text", "plain text")


def test_a_glue_payload_that_decompresses_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pessoa.control_center.glue_schemas.MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(DataProblem, match="unpacks to more"):
        unframe(frame_payload(AVRO, zlib.compress(bytes(100_000)), 5))


def test_an_unreachable_glue_server_is_reported_beside_the_message() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Glue)
    server.server_close()
    assert "Glue cannot be asked" in str(decoder_of(server).decode(frame_payload(AVRO, b"x")).trouble)


def test_a_glue_region_needs_keys_in_the_settings_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    region = {"pessoa.control.center.glue.region": "eu-west-1"}
    with pytest.raises(ConfigProblem, match="AWS_SECRET_ACCESS_KEY"):
        from_properties(region)
    own = {"pessoa.control.center.glue.access.key.id": "A", "pessoa.control.center.glue.secret.access.key": "B"}
    config = from_properties({**region, **own})
    assert repr(glue_schemas(config, {})) == "<GlueSchemas of https://glue.eu-west-1.amazonaws.com>"
    assert glue_schemas(from_properties({}), {}) is None
