"""The schemas that Datagen knows by name. Names are those of tutorials, with the fields that tutorials use.

Written shortly: a field is its name and a kind. `"User_[1-9]"` is a regular expression, a list is a choice, a range
is a number within it, `counting(start, step)` counts up; the helpers make Avro of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Quickstart(NamedTuple):
    schema: dict[str, object]
    # The field that is the key, unless the configuration names another.
    key: str


def counting(start: int, step: int = 1, kind: str = "long") -> dict[str, object]:
    return {"type": kind, "arg.properties": {"iteration": {"start": start, "step": step}}}


def text_counting(start: int, step: int = 1) -> dict[str, object]:
    return counting(start, step, "string")


def real(low: float, high: float) -> dict[str, object]:
    return {"type": "double", "arg.properties": {"range": {"min": low, "max": high}}}


def between(low: int, high: int, kind: str = "long") -> dict[str, object]:
    return {"type": kind, "arg.properties": {"range": {"min": low, "max": high}}}


def _avro_type(name: str, kind: object) -> object:
    """Return the Avro type for the short notation of a field (regex, range, list, fields); an Avro type is not
    changed."""
    if isinstance(kind, str):
        return {"type": "string", "arg.properties": {"regex": kind}}
    if isinstance(kind, range):
        return between(kind.start, kind.stop, "int")
    if isinstance(kind, list):
        first = kind[0]
        word = "int" if isinstance(first, int) else "double" if isinstance(first, float) else "string"
        return {"type": word, "arg.properties": {"options": kind}}
    if isinstance(kind, dict) and "type" not in kind:
        return _record(name, kind)
    return kind


def _record(name: str, fields: Mapping[str, object], namespace: str = "") -> dict[str, object]:
    rows = [{"name": field, "type": _avro_type(field, kind)} for field, kind in fields.items()]
    made: dict[str, object] = {"type": "record", "name": name, "fields": rows}
    if namespace:
        made["namespace"] = namespace
    return made


def _quick(record: str, key: str, /, **fields: object) -> Quickstart:
    return Quickstart(_record(record, fields, "pessoa.datagen"), key)


_GENDERS = ["MALE", "FEMALE", "OTHER"]
_CITIES = ["Lisboa", "Porto", "Braga", "Coimbra", "Faro", "Évora", "Aveiro"]
_IP = r"(1[0-9]|[1-9])?[1-9]\.[1-9][0-9]\.[1-9][0-9]\.[1-9][0-9]"
_PRODUCTS = ["bacalhau", "pastel de nata", "sardinhas", "vinho verde", "azeite", "queijo da serra"]
_ORDER_TIME = 1487715775521

QUICKSTARTS: dict[str, Quickstart] = {
    "users": _quick(
        "users", "userid",
        registertime=between(_ORDER_TIME, 1519273364600), userid="User_[1-9]", regionid="Region_[1-9]", gender=_GENDERS,
    ),
    "users_array_map": _quick(
        "users_array_map", "userid",
        registertime=between(_ORDER_TIME, 1519273364600), userid="User_[1-9]", regionid="Region_[1-9]", gender=_GENDERS,
        interests={"type": "array", "items": _avro_type("", ["futebol", "cinema", "viagens", "música", "livros"]),
                   "arg.properties": {"length": 2}},
        contactinfo={"type": "map", "values": _avro_type("", "[1-9][0-9]{8}"),
                     "arg.properties": {"length": 2, "keys": {"options": ["phone", "city", "state", "zipcode"]}}},
    ),
    "pageviews": _quick(
        "pageviews", "viewtime", viewtime=counting(1, 10), userid="User_[1-9]", pageid="Page_[1-9][0-9]?",
    ),
    "orders": _quick(
        "orders", "orderid",
        ordertime=between(_ORDER_TIME, 1519273364600), orderid=counting(0, 1, "int"), itemid="Item_[1-9][0-9]{0,2}",
        orderunits=real(0.1, 10.0),
        address={"city": "City_[1-9][0-9]?", "state": "State_[1-9][0-9]?", "zipcode": range(10000, 99999)},
    ),
    "ratings": _quick(
        "ratings", "rating_id",
        rating_id=counting(1), user_id=range(1, 20), stars=[1, 2, 3, 4, 5], route_id=range(1, 10000),
        rating_time=counting(1, 10), channel=["ios", "android", "web", "ios-test"],
        message=["a melhor viagem", "nunca mais", "o café estava frio", "gente simpática", "atrasado outra vez"],
    ),
    "stock_trades": _quick(
        "StockTrade", "symbol",
        side=["BUY", "SELL"], quantity=range(1, 5000), symbol=["ZJZZT", "ZBZX", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT"],
        price=range(5, 1000), account=["ABC123", "LMN456", "XYZ789"], userid="User_[1-9]",
    ),
    "inventory": _quick("inventory", "id", id=counting(1), quantity=range(1, 10000), productid=counting(1)),
    "product": _quick(
        "product", "id", id=counting(1), name=_PRODUCTS, description="[a-z]{8,16}", price=real(0.5, 100.0),
    ),
    "purchase": _quick(
        "purchase", "id", id=counting(1), item_type=_PRODUCTS, quantity=range(1, 20), price_per_unit=real(0.5, 100.0),
    ),
    "transactions": _quick(
        "transactions", "transaction_id",
        transaction_id=counting(1), card_id=counting(1), user_id="User_[1-9]", purchase_id=counting(0),
        store_id=range(1, 8),
    ),
    "credit_cards": _quick(
        "credit_cards", "card_id", card_id=counting(1), card_number="[1-9][0-9]{3}-[0-9]{4}-[0-9]{4}-[0-9]{4}",
        cvv="[0-9]{3}", expiration_date="(0[1-9]|1[0-2])/(2[7-9])",
    ),
    "stores": _quick("stores", "store_id", store_id=counting(1, 1, "int"), city=_CITIES, state=["Norte", "Centro",
        "Sul"]),
    "clickstream": _quick(
        "clickstream", "ip",
        ip=_IP, userid=range(1, 40), remote_user=["-"], time=text_counting(1, 10), _time=counting(1, 10),
        request=["GET /index.html HTTP/1.1", "GET /site/login.html HTTP/1.1", "GET /images/track.png HTTP/1.1"],
        status=["200", "302", "404", "405", "406", "407"], bytes=["278", "1289", "2048", "4096", "14096"],
        referrer=["-"], agent=["Mozilla/5.0 (compatible; Googlebot/2.1)", "Mozilla/5.0 (Windows NT 10.0; Win64)"],
    ),
    "clickstream_codes": _quick(
        "clickstream_codes", "code",
        code=[200, 302, 404, 405, 406, 407],
        definition=["Successful", "Redirect", "Page not found", "Method not allowed", "Not acceptable",
                    "Proxy authentication required"],
    ),
    "clickstream_users": _quick(
        "clickstream_users", "user_id",
        user_id=counting(1, 1, "int"), username="[a-z]{5,9}_[0-9]{2}", registered_at=between(_ORDER_TIME,
        1519273364600),
        first_name=["Ana", "Rui", "Inês", "João", "Marta", "Nuno"], last_name=["Silva", "Santos", "Costa", "Reis"],
        city=_CITIES, level=["Gold", "Silver", "Platinum"],
    ),
    "pizza_orders": _quick(
        "pizza_orders", "order_id",
        store_id=range(1, 10), store_order_id=counting(1000, 1, "int"), coupon_code=range(1000, 2000),
        date=between(18000, 20000, "int"), status=["accepted"], order_id=counting(1, 1, "int"),
        item={"name": ["margherita", "quatro queijos", "vegetariana"], "quantity": range(1, 5), "price": real(8.0,
        16.0)},
    ),
    "pizza_orders_completed": _quick(
        "pizza_orders_completed", "store_order_id",
        store_id=range(1, 10), store_order_id=counting(1000, 1, "int"), date=between(18000, 20000, "int"),
        status=["completed"], rack=range(1, 20),
    ),
    "pizza_orders_cancelled": _quick(
        "pizza_orders_cancelled", "store_order_id",
        store_id=range(1, 10), store_order_id=counting(1000, 1, "int"), date=between(18000, 20000, "int"),
        status=["cancelled"],
    ),
    "shoes": _quick(
        "shoes", "id", id="[a-f0-9]{8}-[a-f0-9]{4}", brand=["Beiral", "Tágide", "Alfama"], name="Modelo [A-Z][0-9]{2}",
        sale_price=range(1000, 20000), rating=real(0.0, 5.0),
    ),
    "shoe_customers": _quick(
        "shoe_customers", "id", id="[a-f0-9]{8}-[a-f0-9]{4}", first_name=["Ana", "Rui", "Inês", "João"],
        last_name=["Silva", "Santos", "Costa", "Reis"], email="[a-z]{5,9}@exemplo\\.pt", phone="9[1236][0-9]{7}",
        street_address="Rua [A-Z][a-z]{5,8} [0-9]{1,3}", state=_CITIES, zip_code="[1-9][0-9]{3}-[0-9]{3}",
        country=["Portugal"], country_code=["PT"],
    ),
    "shoe_orders": _quick(
        "shoe_orders", "order_id", order_id=counting(1000, 1, "int"), product_id="[a-f0-9]{8}-[a-f0-9]{4}",
        customer_id="[a-f0-9]{8}-[a-f0-9]{4}", ts=counting(1609459200000, 100000),
    ),
    "shoe_clickstream": _quick(
        "shoe_clickstream", "user_id", product_id="[a-f0-9]{8}-[a-f0-9]{4}", user_id="[a-f0-9]{8}-[a-f0-9]{4}",
        view_time=range(10, 120), page_url="https://www\\.exemplo\\.pt/produto/[a-z]{5}", ip=_IP,
        ts=counting(1609459200000, 100000),
    ),
    "device_information": _quick(
        "device_information", "device_ip", device_ip=_IP, device_name="device_[0-9]{3}", owner="User_[1-9]",
    ),
    "gaming_games": _quick("gaming_games", "id", id=counting(1), room_id=range(1000, 5000), game_time=counting(1, 60)),
    "gaming_players": _quick(
        "gaming_players", "player_id", player_id=range(1000, 1100), player_name="[A-Z][a-z]{4,8}", ip=_IP,
    ),
    "gaming_player_activity": _quick(
        "gaming_player_activity", "player_id", player_id=range(1000, 1100), game_room_id=range(1000, 5000),
        points=range(10, 500), coordinates="\\[[0-9]{2},[0-9]{2}\\]",
    ),
    "fleet_mgmt_location": _quick(
        "fleet_mgmt_location", "vehicle_id", vehicle_id=range(1000, 9999),
        location={"latitude": real(37.0, 42.1), "longitude": real(-9.5, -6.2)}, ts=counting(1609459200000, 100000),
    ),
    "fleet_mgmt_sensors": _quick(
        "fleet_mgmt_sensors", "vehicle_id", vehicle_id=range(1000, 9999), engine_temperature=range(150, 250),
        average_rpm=range(1800, 4800),
    ),
    "fleet_mgmt_description": _quick(
        "fleet_mgmt_description", "vehicle_id", vehicle_id=range(1000, 9999), driver_name="[A-Z][a-z]{4,8}",
        license_plate="[A-Z]{2}-[0-9]{2}-[A-Z]{2}",
    ),
    "insurance_customers": _quick(
        "insurance_customers", "customer_id", customer_id=range(1, 100), name="[A-Z][a-z]{4,8}", city=_CITIES,
    ),
    "insurance_offers": _quick(
        "insurance_offers", "offer_id", offer_id=counting(1, 1, "int"), offer_name="new_offer[0-9]",
        offer_url="https://exemplo\\.pt/new_offer[0-9]",
    ),
    "insurance_customer_activity": _quick(
        "insurance_customer_activity", "activity_id", activity_id=counting(1, 1, "int"), customer_id=range(1, 100),
        activity_type=["web_open", "mobile_open", "new_account"], propensity_to_churn=real(0.0, 1.0),
    ),
    "payroll_employee": _quick(
        "payroll_employee", "employee_id", employee_id=range(1000, 1100), first_name=["Ana", "Rui", "Inês", "João"],
        last_name=["Silva", "Santos", "Costa", "Reis"], age=range(20, 66), hourly_rate=range(8, 60),
        lab="Lab_[1-9]",
    ),
    "payroll_employee_location": _quick(
        "payroll_employee_location", "employee_id", employee_id=range(1000, 1100), lab="Lab_[1-9]",
        department_id=range(1, 12), arrival_date=between(18000, 20000, "int"),
    ),
    "payroll_bonus": _quick(
        "payroll_bonus", "employee_id", employee_id=range(1000, 1100), bonus=range(100, 5000),
    ),
    "siem_logs": _quick(
        "siem_logs", "hostname", hostname="host-[0-9]{2}", sourceip=_IP, url="https://exemplo\\.pt/[a-z]{4}",
        timestamp=counting(1609459200000, 1000), action=["allow", "deny"],
    ),
    "syslog_logs": _quick(
        "syslog_logs", "host", ts=counting(1609459200000, 1000), host="host-[0-9]{2}", facility=range(23),
        severity=range(7), tag=["sshd", "kernel", "cron"], message="[a-z]{4,8} [a-z]{4,8}",
    ),
    "campaign_finance": _quick(
        "campaign_finance", "time", time=counting(1609459200000, 1000), candidate_id="Candidate_[1-9]",
        party_affiliation=["A", "B", "C"], contribution=range(100, 4000),
    ),
}  # fmt: skip
