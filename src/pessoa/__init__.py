"""Pessoa: the Kafka platform for Python people.

    $ pessoa up             in a shell: brokers, schema registry, REST proxy and Connect on this machine
    pessoa.testing          a broker, a cluster, a registry or a REST proxy inside a test; fixtures for pytest
    pessoa.streams          data pipelines in Python, on Apache Spark (pip install pessoa[spark])
    pessoa.connect          what a connector of your own is made of (docs/WRITING_A_CONNECTOR.md)

Kafka itself is spoken to with any client; confluent-kafka comes with Pessoa. The other packages are what the platform
is made of, and docs/ARCHITECTURE.md says in which order to read them.

This file imports nothing, so that `import pessoa` costs nothing and every tool starts at once; each part is imported
by its own name.
"""

__version__ = "0.1.0.dev0"
