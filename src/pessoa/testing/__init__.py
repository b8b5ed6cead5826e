"""A real broker inside a test: real sockets, any client, ready in a fraction of a second.

    from pessoa.testing import Broker

    def test_orders():
        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            ...

Installing Pessoa also gives pytest the fixtures of `pessoa.testing.plugin`: `kafka`, `kafka_topic`, `kafka_broker`.
"""

from pessoa.testing.broker import Broker

__all__ = ["Broker"]
