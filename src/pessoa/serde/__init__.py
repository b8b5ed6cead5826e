"""Bytes that carry a schema: the wire format of registry clients, and the codecs behind it. Pure.

    framing.py            magic byte and schema id (or guid) around a payload; message indexes of Protobuf
    subjects.py           under which subject a schema is registered; contexts
    primitive_codecs.py   string, integer, long, … as Kafka's own serialisers write them
    avro/                 schema (parse, print), codec (binary and Avro's JSON)
    json_schema.py        parse, resolve references, validate
    protobuf/             .proto text ⇄ descriptors, codec (binary and JSON)

The REST proxy and the console tools take a frame apart here, ask the schema registry for the schema, and hand both to a
codec. Nothing here does I/O.
"""
