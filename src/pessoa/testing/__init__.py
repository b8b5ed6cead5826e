"""A real broker inside a test: real sockets, any client, ready in a fraction of a second.

    from pessoa.testing import Broker

    def test_orders():
        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            ...

`Cluster(brokers=3)` is several of them, with ways to kill, pause and cut them off. `SchemaRegistry`, `RestProxy`
and `KsqlServer` stand beside either.

Installing Pessoa also gives pytest the fixtures of `pessoa.testing.plugin`: `kafka`, `kafka_topic`, `kafka_broker`,
`kafka_cluster`, `schema_registry`, `rest_proxy`, `ksql`.
"""

from pessoa.testing.broker import Broker
from pessoa.testing.cluster import Cluster
from pessoa.testing.in_process_services import KsqlServer, RestProxy, SchemaRegistry

__all__ = ["Broker", "Cluster", "KsqlServer", "RestProxy", "SchemaRegistry"]
