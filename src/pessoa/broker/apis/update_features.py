"""UpdateFeatures: raise and lower the finalised levels of features (KIP-584).

v1  the kind of change (upgrade, safe or unsafe downgrade), and a trial run (KIP-778)
v2  one error for the whole: all updates are done, or none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.update_features import UpdateFeaturesRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: UpdateFeaturesRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: UpdateFeaturesRequest) -> Decision:
    from pessoa.controller.feature_decisions import update_features

    return update_features(situation, request)


def refuse(request: UpdateFeaturesRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.update_features import UpdateFeaturesResponse

    return UpdateFeaturesResponse(throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message)


ROW = ApiRow(
    ApiKey.UPDATE_FEATURES,
    "0-2",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
)
