"""Pessoa: the Kafka platform for Python people.

This file imports nothing, so that `import pessoa` costs nothing and every tool starts at once; each part is imported
by its own name (`pessoa.wire`, `pessoa.records`, `pessoa.broker`, …).
"""

__version__ = "0.1.0.dev0"
