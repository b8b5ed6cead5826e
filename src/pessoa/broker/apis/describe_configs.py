"""DescribeConfigs: the configuration of topics, brokers, groups, client metrics and loggers.

    v1  sources and synonyms        v3  types and documentation        v4  flexible

A broker answers for itself alone; the name "" stands for what was set for all brokers. An unknown group or client
metrics subscription has the defaults, an unknown topic is an error. Keys that do not exist are left out of the answer;
no keys, or an empty list of them, means all. Secrets, and keys of unknown type, come without their value.

A resource type that does not exist fails the whole request, as in Apache Kafka. Unlike there, a resource that is named
several times is described once, and a request for more than 10,000 of them is refused.

Authorised: DESCRIBE_CONFIGS on each topic and group, and on the cluster for all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.wire.api.describe_configs import DescribeConfigsRequest
    from pessoa.wire.request_context import RequestContext


def handle(node: AnyServices, context: RequestContext, request: DescribeConfigsRequest) -> Reply:
    from pessoa.broker.config_descriptions import describe_configs

    return describe_configs(node, context, request)


ROW = ApiRow(ApiKey.DESCRIBE_CONFIGS, "1-4", handle=handle, handle_on_controller=handle)
