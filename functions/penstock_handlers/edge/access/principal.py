"""The principal that calls, as API Gateway tells it: by IAM's signature, or by a token on the API that takes tokens."""

import os
from functools import cache

from penstock_core.acls.principal import ANONYMOUS, Principal, iam_principal, jwt_principal
from penstock_handlers.edge.http import Event

_CLAIM_DEFAULT = "sub"


def principal_of(event: Event) -> Principal:
    """The caller's role, user, or token's subject; ANONYMOUS if the event names no caller."""
    authorizer = event["requestContext"].get("authorizer") or {}
    if arn := (authorizer.get("iam") or {}).get("userArn"):
        return iam_principal(arn)
    claims = (authorizer.get("jwt") or {}).get("claims") or {}
    issuer, subject = claims.get("iss"), claims.get(_claim())
    return jwt_principal(issuer, subject) if issuer and subject else ANONYMOUS


@cache
def _claim() -> str:
    return os.environ.get("PENSTOCK_JWT_CLAIM", _CLAIM_DEFAULT)
