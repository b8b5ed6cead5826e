"""A small shop whose events fill topics, so that every page, query and tutorial has something to show.

    customers    who buys, by id (compacted: the last state of each)
    products     what is sold, by id (compacted)
    page-views   who looked at what, by customer
    orders       who bought what, by order
    payments     how an order was paid, by order; one in twenty fails

The shop is a generator: a seed gives the same customers, orders and payments in every run. Values are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

# Topic → settings. All have three partitions.
TOPICS: dict[str, dict[str, str]] = {
    "customers": {"cleanup.policy": "compact"},
    "products": {"cleanup.policy": "compact"},
    "page-views": {},
    "orders": {},
    "payments": {},
}
PARTITIONS = 3
_CITIES = ("Lisboa", "Porto", "Coimbra", "Évora", "Faro", "Braga", "Funchal")
_FIRST_NAMES = ("Alberto", "Álvaro", "Ricardo", "Bernardo", "Ofélia", "Maria", "Inês", "Vicente", "Teresa", "António")
_LAST_NAMES = ("Caeiro", "de Campos", "Reis", "Soares", "Queiroz", "Guedes", "Mora", "Baldaia")
_PRODUCTS = (
    ("Mensagem", "book", 1290), ("Livro do Desassossego", "book", 1890), ("Ode Marítima", "book", 990),
    ("Fountain pen", "stationery", 4500), ("Ink, blue", "stationery", 750), ("Notebook", "stationery", 620),
    ("Round spectacles", "accessory", 8900), ("Black hat", "accessory", 5900), ("Coffee, 250 g", "grocery", 480),
)  # fmt: skip
_CUSTOMERS = 200
_VIEWS_BEFORE_AN_ORDER = 4


class Event(NamedTuple):
    topic: str
    key: str
    value: dict[str, int | str]

    @property
    def payload(self) -> bytes:
        return json.dumps(self.value, ensure_ascii=False, separators=(",", ":")).encode()


def stock(seed: int) -> list[Event]:
    """Return an event for each customer and product that exists before the first purchase."""
    chance = Random(seed)
    customers = [
        Event("customers", str(number), {
            "id": number,
            "name": f"{chance.choice(_FIRST_NAMES)} {chance.choice(_LAST_NAMES)}",
            "city": chance.choice(_CITIES),
        })
        for number in range(1, _CUSTOMERS + 1)
    ]  # fmt: skip
    products = [
        Event("products", str(number), {"id": number, "name": name, "category": category, "price_cents": price})
        for number, (name, category, price) in enumerate(_PRODUCTS, start=1)
    ]
    return customers + products


def trade(seed: int) -> Iterator[Event]:
    """Yield page views, orders and payments of the shop, without end."""
    chance = Random(f"trade {seed}")
    order = 0
    while True:
        customer = chance.randint(1, _CUSTOMERS)
        product = 1
        for _ in range(chance.randint(1, 2 * _VIEWS_BEFORE_AN_ORDER)):
            product = chance.randint(1, len(_PRODUCTS))
            yield Event("page-views", str(customer), {"customer_id": customer, "product_id": product})
        order += 1
        quantity = chance.choice((1, 1, 1, 2, 3))
        amount_cents = quantity * _PRODUCTS[product - 1][2]
        yield Event("orders", str(order), {
            "id": order, "customer_id": customer, "product_id": product, "quantity": quantity,
            "amount_cents": amount_cents,
        })  # fmt: skip
        status = "failed" if chance.randrange(20) == 0 else "paid"
        method = chance.choice(("card", "card", "mbway", "transfer"))
        yield Event("payments", str(order), {
            "order_id": order, "amount_cents": amount_cents, "method": method, "status": status,
        })  # fmt: skip
