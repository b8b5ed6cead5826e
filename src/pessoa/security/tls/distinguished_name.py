"""The subject of a certificate as text, as Java writes it by RFC 2253: what the rules for principals match.

    CN=broker-1,OU=Engineering,O=Pessoa,C=PT

The most specific name comes first, without blanks. Nine types of attributes have keywords; of others and of values that
are no text, Java writes `oid=#` and the DER of the value in hex: an e-mail address is 1.2.840.113549.1.9.1=#1603…. ACLs
hold such names, so every character counts: libraries that follow RFC 4514 write other ones.
"""

from __future__ import annotations

from collections.abc import Iterator

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# ASN.1's tags of texts: UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString.
# Java takes the bytes of all for UTF-8, though those of the last two are not.
_TEXTS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E))
_ESCAPED = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """Return the subject's name in a DER certificate, as Java writes it."""
    from cryptography.x509 import load_der_x509_certificate

    return java_name(load_der_x509_certificate(certificate).subject.public_bytes())


def java_name(name: bytes) -> str:
    """Return a DER `Name` as Java writes it."""
    (_, relative_names, _), *_ = _values(name)
    parts = ["+".join(_attribute(*pair) for pair in _pairs(content)) for _, content, _ in _values(relative_names)]
    return ",".join(reversed(parts))


def _pairs(relative_name: bytes) -> Iterator[tuple[str, int, bytes, bytes]]:
    """Yield the type of each attribute, and of its value the tag, the content and all its bytes."""
    for _, attribute, _ in _values(relative_name):
        (_, oid, _), (tag, content, whole) = _values(attribute)
        yield _dotted_oid(oid), tag, content, whole


def _attribute(oid: str, tag: int, content: bytes, whole: bytes) -> str:
    keyword = _KEYWORDS.get(oid)
    if keyword is None:
        return f"{oid}=#{whole.hex()}"
    return f"{keyword}={_escape(content.decode('utf-8', 'replace')) if tag in _TEXTS else f'#{whole.hex()}'}"


def _escape(text: str) -> str:
    first = len(text) - len(text.lstrip(" \r"))
    last = len(text.rstrip(" \r"))
    parts = []
    for at, letter in enumerate(text):
        if letter in _ESCAPED or ((at < first or at >= last) and letter in " \r"):
            parts.append(f"\\{letter}")
        else:
            parts.append("\\00" if letter == "\0" else letter)
    return "".join(parts)


def _values(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the DER values that follow each other in `data`: tag, content and all bytes. The data is well-formed:
    OpenSSL has parsed it before."""
    start = 0
    while start < len(data):
        size, at = data[start + 1], start + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(data[at : at + count], "big"), at + count
        yield data[start], data[at : at + size], data[start : at + size]
        start = at + size


def _dotted_oid(oid: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
