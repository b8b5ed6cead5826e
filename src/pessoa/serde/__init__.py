"""Bytes that carry a schema: the wire format of registry clients, and the codecs behind it. Pure.

    framing.py      magic byte and schema id (or guid) around a payload; message indexes of Protobuf
    subjects.py     under which subject a schema is registered; contexts
    primitives.py   string, integer, long, … as Kafka's own serialisers write them
    avro/           schema (parse, print), codec (binary and Avro's JSON)
    json_schema.py  parse, resolve references, validate
    protobuf/       .proto text ⇄ descriptors, codec (binary and JSON)

Whoever has a schema registry at hand, the REST proxy or the console tools, takes a frame apart here, asks the registry
for the schema, and hands both to a codec. Nothing here asks anybody.
"""
