"""The routes that take no tokens: what operates the service needs IAM, whatever the access rules say.

A rule that was meant for one team must not hand the whole service to whoever its issuer gives a token. Subscriptions
are among these routes, because a subscription calls functions, queues and buses of the account (docs/adr/0043). So are
wake-ups, which come by AppSync to callers of IAM only.

The API for tokens does not have these routes (infra/penstock_cdk/service/routes.py). A test holds that both agree.
"""

from penstock_core.acls.access import Access
from penstock_core.errors import ErrorCode, PenstockError

IAM_ONLY_ROUTES = frozenset(
    {
        "GET /v1/wake-ups",
        "POST /v1/producers/{transactional_id}/release",
        "GET /v1/subscriptions",
        "PUT /v1/subscriptions/{name}",
        "GET /v1/subscriptions/{name}",
        "DELETE /v1/subscriptions/{name}",
        "POST /v1/subscriptions/{name}/pause",
        "POST /v1/subscriptions/{name}/resume",
        "GET /v1/quotas",
        "PUT /v1/quotas",
        "DELETE /v1/quotas",
        "GET /v1/zones",
        "POST /v1/zones/{zone}",
        "GET /v1/acls",
        "POST /v1/acls",
        "DELETE /v1/acls",
        "POST /v1/acls/check",
    }
)


def check_caller(route: str, access: Access) -> None:
    """Raises NOT_AUTHORIZED for the subject of a token on a route that takes none."""
    if access.principal.is_token and route in IAM_ONLY_ROUTES:
        raise PenstockError(
            ErrorCode.NOT_AUTHORIZED,
            f"{route} takes no tokens: sign it by AWS Signature Version 4",
        )
