"""Protobuf without protoc.

    proto_tokens.py   .proto text → tokens with positions
    parsing.py        tokens → FileDescriptorProto, names as they were written
    options.py        what stands in brackets and behind `option`
    linking.py        a file and its imports → a pool; names made full
    printing.py       FileDescriptorProto → .proto text, one spelling for all
    builtin.py        the files that may be imported without a reference
    codec.py          data: binary and JSON
    plain_values.py   data: messages and plain values of Python

protobuf's own FileDescriptorProto is the syntax tree: it is what clients send (base64) and ask for, it holds options
whose definition is unknown (`uninterpreted_option`), and the library can check and use it.
"""
