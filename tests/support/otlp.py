"""Client telemetry for tests: metrics subscriptions, and OTLP's `MetricsData` as Google's protobuf encodes it, both to
push it as a client does and to check what our own decoder reads.

    metrics(gauge("org.apache.kafka.producer.connection.count", 3, topic="t"), counter("a.b", 2, is_delta=True))
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pessoa.metadata.image import ConfigResource
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.crash_wire import Wire

_FIELD = descriptor_pb2.FieldDescriptorProto
# Message → (field, number, type, or the name of a message), a "*" for what is repeated.
_MESSAGES: dict[str, list[tuple[str, int, int | str]]] = {
    "AnyValue": [
        ("string_value", 1, _FIELD.TYPE_STRING),
        ("bool_value", 2, _FIELD.TYPE_BOOL),
        ("int_value", 3, _FIELD.TYPE_INT64),
        ("double_value", 4, _FIELD.TYPE_DOUBLE),
    ],
    "KeyValue": [("key", 1, _FIELD.TYPE_STRING), ("value", 2, "AnyValue")],
    "Resource": [("attributes", 1, "*KeyValue")],
    "NumberDataPoint": [
        ("start_time_unix_nano", 2, _FIELD.TYPE_FIXED64),
        ("time_unix_nano", 3, _FIELD.TYPE_FIXED64),
        ("as_double", 4, _FIELD.TYPE_DOUBLE),
        ("as_int", 6, _FIELD.TYPE_SFIXED64),
        ("attributes", 7, "*KeyValue"),
        ("flags", 8, _FIELD.TYPE_UINT32),
    ],
    "Gauge": [("data_points", 1, "*NumberDataPoint")],
    "Sum": [
        ("data_points", 1, "*NumberDataPoint"),
        ("aggregation_temporality", 2, _FIELD.TYPE_INT32),
        ("is_monotonic", 3, _FIELD.TYPE_BOOL),
    ],
    "Metric": [
        ("name", 1, _FIELD.TYPE_STRING),
        ("description", 2, _FIELD.TYPE_STRING),
        ("unit", 3, _FIELD.TYPE_STRING),
        ("gauge", 5, "Gauge"),
        ("sum", 7, "Sum"),
    ],
    "Scope": [("name", 1, _FIELD.TYPE_STRING)],
    "ScopeMetrics": [("scope", 1, "Scope"), ("metrics", 2, "*Metric")],
    "ResourceMetrics": [("resource", 1, "Resource"), ("scope_metrics", 2, "*ScopeMetrics")],
    "MetricsData": [("resource_metrics", 1, "*ResourceMetrics")],
}
_DELTA, _CUMULATIVE = 1, 2
_SET, _DELETE = 0, 1


def alter_subscriptions(wire: Wire, subscriptions: Mapping[str, Mapping[str, str | None]]) -> None:
    """Set keys of CLIENT_METRICS resources, and delete those whose value is None."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=ConfigResource.CLIENT_METRICS,
                resource_name=name,
                configs=[
                    AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
                    for key, value in configs.items()
                ],
            )
            for name, configs in subscriptions.items()
        ],
        validate_only=False,
    )
    response = wire.ask(request, IncrementalAlterConfigsResponse, 1)
    assert [one.error_code for one in response.responses] == [0] * len(subscriptions)


@cache
def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="otlp_of_tests.proto", package="otlp_of_tests", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in ("AnyValue", "NumberDataPoint"):
            message.oneof_decl.add(name="one")
        for field, number, kind in fields:
            added = message.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
            if isinstance(kind, str):
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".otlp_of_tests.{kind.removeprefix('*')}"
                added.label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
            else:
                added.type = _FIELD.Type.ValueType(kind)
            # Fields that are set are written, also if they are 0.
            if field.startswith("as_") or field.endswith("_value"):
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"otlp_of_tests.{name}")) for name in _MESSAGES
    }


def _attributes(labels: dict[str, object]) -> list[Any]:
    types = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    make = _classes()
    return [
        make["KeyValue"](key=key, value=make["AnyValue"](**{types[type(value)]: value}))
        for key, value in labels.items()
    ]


def _point(value: float, labels: dict[str, object]) -> Any:
    where = "as_int" if isinstance(value, int) else "as_double"
    point = {"attributes": _attributes(labels), "time_unix_nano": 1 << 60, where: value}
    return _classes()["NumberDataPoint"](**point)


def gauge(name: str, value: float, **labels: object) -> Any:
    make = _classes()
    return make["Metric"](
        name=name, description="of a test", unit="1", gauge=make["Gauge"](data_points=[_point(value, labels)])
    )


def counter(name: str, value: float, *, is_delta: bool, is_monotonic: bool = True, **labels: object) -> Any:
    make = _classes()
    total = make["Sum"](
        data_points=[_point(value, labels)],
        aggregation_temporality=_DELTA if is_delta else _CUMULATIVE,
        is_monotonic=is_monotonic,
    )
    return make["Metric"](name=name, sum=total)


def metrics(*found: Any, resource: dict[str, object] | None = None) -> bytes:
    make = _classes()
    scope = make["ScopeMetrics"](scope=make["Scope"](name="tests"), metrics=list(found))
    of_resource = make["Resource"](attributes=_attributes(resource or {}))
    data = make["ResourceMetrics"](resource=of_resource, scope_metrics=[scope])
    written: bytes = make["MetricsData"](resource_metrics=[data]).SerializeToString()
    return written
