from __future__ import annotations

import json
from itertools import islice

from pessoa.platform.shop import TOPICS, stock, trade


def test_a_seed_gives_the_same_shop_and_another_seed_another() -> None:
    assert list(islice(trade(1), 200)) == list(islice(trade(1), 200))
    assert list(islice(trade(1), 200)) != list(islice(trade(2), 200))
    assert stock(1) == stock(1)


def test_every_topic_of_the_demo_gets_records_and_no_other_does() -> None:
    assert {event.topic for event in [*stock(1), *islice(trade(1), 200)]} == set(TOPICS)


def test_the_demo_sells_existing_products_and_payments_equal_their_orders() -> None:
    events = list(islice(trade(1), 2_000))
    customers = {event.value["id"] for event in stock(1) if event.topic == "customers"}
    products = [json.loads(event.payload) for event in stock(1) if event.topic == "products"]
    prices = {product["id"]: product["price_cents"] for product in products}
    orders = {event.value["id"]: json.loads(event.payload) for event in events if event.topic == "orders"}
    for order in orders.values():
        assert order["customer_id"] in customers
        assert order["amount_cents"] == order["quantity"] * prices[order["product_id"]]
    for payment in (event.value for event in events if event.topic == "payments"):
        assert payment["amount_cents"] == orders[payment["order_id"]]["amount_cents"]


def test_demo_values_are_json_with_unescaped_unicode() -> None:
    names = [json.loads(event.payload)["name"] for event in stock(1)]
    assert any("Álvaro" in name for name in names)
    assert any("Álvaro".encode() in event.payload for event in stock(1))
