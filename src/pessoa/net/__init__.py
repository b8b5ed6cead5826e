"""Bytes on sockets: listeners and connections. What the bytes mean is not known here."""
