"""Every message that is declared under `pessoa.wire`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from pessoa.wire.catalogue import ApiKey
from pessoa.wire.schema import Message

# Messages without an API key: headers, and records in logs and files.
_OTHER_MODULES = (
    "message_headers",
    "stored.consumer_protocol",
    "stored.control_record_bodies",
    "stored.group_records",
    "stored.metadata_records",
    "stored.principal",
    "stored.producer_entries",
    "stored.quorum_state",
    "stored.share_group_records",
    "stored.share_state_records",
    "stored.streams_group_records",
    "stored.transaction_records",
    "unserved.remote_log_records",
)


def all_messages() -> Iterator[type[Message]]:
    """Yield every declared message: requests and responses by API key, then headers and stored records."""
    for key in ApiKey:
        yield key.request
        yield key.response
    for name in _OTHER_MODULES:
        for declared in vars(import_module(f"pessoa.wire.{name}")).values():
            if isinstance(declared, type) and issubclass(declared, Message) and declared is not Message:
                yield declared
