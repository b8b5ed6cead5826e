"""A node that does not log in to other nodes imports no modules for logins."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import asyncio, sys
from pessoa.base.entropy import SystemEntropy
from pessoa.broker.node_login import NodeLogin
assert asyncio.run(NodeLogin(lambda: None, SystemEntropy())("127.0.0.1:9093", None)) == 0
print([name for name in ("msgspec", "decimal", "pessoa.security.sasl.client_login") if name in sys.modules])
"""


def test_a_node_without_credentials_loads_no_login_module() -> None:
    """With it came JSON web tokens and a JSON decoder: two megabytes for each broker of a plain cluster."""
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]"]
