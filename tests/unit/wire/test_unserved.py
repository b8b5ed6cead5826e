"""`wire/unserved` holds the declarations of the APIs that no listener serves, and no others."""

from __future__ import annotations

import pytest

from pessoa.broker.api_table import broker_rows, controller_rows
from pessoa.wire.catalogue import ApiKey

SERVED = {row.key for row in (*broker_rows(), *controller_rows())}


@pytest.mark.parametrize("key", ApiKey)
def test_an_api_is_declared_under_api_if_a_listener_serves_it_and_under_unserved_if_none_does(key: ApiKey) -> None:
    package = "pessoa.wire.api" if key in SERVED else "pessoa.wire.unserved"
    assert key.request.__module__ == key.response.__module__ == f"{package}.{key.name.lower()}"
