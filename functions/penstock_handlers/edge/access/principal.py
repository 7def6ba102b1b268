"""The principal that calls, as API Gateway tells it: by IAM's signature, or by a token on the API that takes tokens.

Only `requestContext.authorizer` counts. API Gateway writes it, and no header, query or body reaches it.
"""

from typing import Any

from penstock_core.acls.principal import Principal, iam_principal
from penstock_core.acls.tokens import token_principal
from penstock_core.errors import ErrorCode, PenstockError
from penstock_handlers.edge.http import Event
from penstock_service.instance.instance import Instance

_ARN = "arn:"


def principal_of(event: Event, instance: Instance) -> Principal:
    """The caller's role, user, or token's subject.

    Raises NOT_AUTHORIZED if the event names no caller, two of them, or one by claims that name none.
    """
    authorizer = _fields(event["requestContext"].get("authorizer"))
    arn, token = _fields(authorizer.get("iam")).get("userArn"), authorizer.get("jwt")
    if arn and token:
        raise _refused("the request has a signature and a token: send one of them")
    if token:
        return token_principal(_fields(token).get("claims"), instance.acl_cache.settings.tokens)
    if not isinstance(arn, str) or not arn.startswith(_ARN):
        raise _refused("the request names no caller: it did not come by the API")
    return iam_principal(arn)


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _refused(why: str) -> PenstockError:
    return PenstockError(ErrorCode.NOT_AUTHORIZED, why)
