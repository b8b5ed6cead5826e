from __future__ import annotations

import json
from itertools import islice

from pessoa.platform.shop import TOPICS, stock, trade


def test_a_seed_gives_the_same_shop_and_another_seed_another() -> None:
    assert list(islice(trade(1), 200)) == list(islice(trade(1), 200))
    assert list(islice(trade(1), 200)) != list(islice(trade(2), 200))
    assert stock(1) == stock(1)


def test_every_topic_gets_something_and_no_other_does() -> None:
    assert {event.topic for event in [*stock(1), *islice(trade(1), 200)]} == set(TOPICS)


def test_what_is_bought_exists_and_a_payment_is_as_high_as_its_order() -> None:
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


def test_values_are_json_as_people_write_it() -> None:
    names = [json.loads(event.payload)["name"] for event in stock(1)]
    assert any("Álvaro" in name for name in names)
    assert any("Álvaro".encode() in event.payload for event in stock(1))
