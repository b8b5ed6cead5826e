"""Access control lists need somebody who enforces them: without an authorizer the ACL APIs are SECURITY_DISABLED."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices

NO_AUTHORIZER = "No Authorizer is configured."


def has_authorizer(broker: BrokerServices) -> bool:
    return bool(broker.config.value("authorizer.class.name"))
