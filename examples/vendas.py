"""A shop's sales, a minute at a time: the pipeline of docs/STREAMS.md.

    python examples/vendas.py                     against localhost:9092
    python examples/vendas.py localhost:29092     against another cluster

Reads `vendas` (keyed by client, JSON) and the table `clientes`, and writes

    vendas-caras          every sale above 10, as it happens
    vendas-por-minuto     how many sales and how much money, for each product and minute
    vendas-com-cidade     every sale with its client's city

Records that are no sales go to vendas-app-dead-letters.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pessoa.streams import App, tumbling


@dataclass
class Venda:
    produto: str
    valor: float
    quantidade: int = 1


@dataclass
class Cliente:
    nome: str
    cidade: str


def describe(bootstrap_servers: str) -> App:
    app = App("vendas-app", bootstrap_servers, on_error="dead-letter")
    vendas = app.stream("vendas", value=Venda)
    clientes = app.table("clientes", value=Cliente)

    vendas.filter("valor > 10").to("vendas-caras")

    por_minuto = vendas.group_by("produto").window(tumbling("1 min"))
    por_minuto.aggregate(vendas="count(*)", dinheiro="sum(valor * quantidade)").to("vendas-por-minuto")

    vendas.left_join(clientes).select("produto", "cidade", total="valor * quantidade").to("vendas-com-cidade")
    return app


if __name__ == "__main__":
    describe(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092").run()
