"""Whether data written with one schema can be read with another.

differences.py   what a finding is
avro_compatibility.py, json_schema_compatibility.py, protobuf_compatibility.py
                 the rules of each type: reader and writer in, findings out
levels.py        the seven levels: which schemas are checked against which, and in which direction
"""
