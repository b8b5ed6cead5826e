"""Signed bearer tokens (JWT, RFC 7519) and the public keys that verify them (JWKS, RFC 7517).

signature_algorithms.py  which signatures are taken, and how each is verified
json_web_keys.py         a key set: the bytes of a JWKS as verification keys
json_web_tokens.py       a token against a key set and the rules of who takes it: signature, then claims
key_sources.py           a key set that is kept fresh, from a file or a URL
key_reader.py            the door through which files and URLs are read
token_verifier.py        rules and key source together: what brokers and services ask

Everything that a peer sends is bounded before it is parsed. Nothing in a token makes this node read a file or open a
connection to where the token says: `jku`, `x5u`, `jwk` and `x5c` are never looked at, and `kid` is a look-up in a map.
"""
