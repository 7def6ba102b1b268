"""/v1/quotas: list the quotas of principals and topics, set one, delete one."""

from typing import Annotated, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from penstock_core.acls.tokens import full_principal, trusted_principal
from penstock_core.limits import PRINCIPAL_LENGTH_MAX, QUOTAS_MAX
from penstock_core.quotas.quota import Quota, Subject
from penstock_handlers.edge.json_api import Digits, JsonApp, fitting_page, instance_of, serve_with
from penstock_handlers.edge.models.acl_models import PutQuota, QuotaAnswer, QuotaList
from penstock_service.quotas.admin.set_quota import delete_quota, list_quotas, place_of, put_quota

app = JsonApp("quotas")
_AFTER_LENGTH_MAX = PRINCIPAL_LENGTH_MAX + 16  # the subject comes before the name


@app.operation("GET /v1/quotas", "listQuotas", "List quotas", parameters=("limit", "after"))
def list_all(
    limit: Annotated[Digits, Query(ge=1, le=QUOTAS_MAX)] = QUOTAS_MAX,
    after: Annotated[str, Query(max_length=_AFTER_LENGTH_MAX)] = "",
) -> QuotaList:
    """List the quotas by subject and name, `limit` at a time, from behind `after`."""
    found, next_after = list_quotas(instance_of(app), limit, after)
    page, next_after = fitting_page([_answer(quota) for quota in found], next_after, lambda last: place_of(found[last]))
    return {"quotas": page, "next_after": next_after}


@app.operation("PUT /v1/quotas", "putQuota", "Set the quota of a principal or a topic, or of a pattern of names")
def put(request: PutQuota) -> QuotaAnswer:
    """Set all limits of one quota. A limit that you leave out is taken away, and the default holds for it."""
    if request.subject == "principal":
        trusted_principal(request.name, instance_of(app).acl_cache.settings.tokens)
    name = _full(request.subject, request.name)
    return _answer(put_quota(instance_of(app), request.subject, name, request.limits, is_shared=request.shared))


@app.operation(
    "DELETE /v1/quotas",
    "deleteQuota",
    "Delete a quota",
    parameters=("subject", "name"),
    status_code=204,
)
def delete(
    subject: Annotated[Literal["principal", "topic"], Query()],
    name: Annotated[str, Query(max_length=PRINCIPAL_LENGTH_MAX)],
) -> Response[None]:
    """Delete one quota: the default holds from then on. Deleting a default leaves no bound."""
    delete_quota(instance_of(app), subject, _full(subject, name))
    return Response(status_code=204)


def _full(subject: str, name: str) -> str:
    """A principal with its issuer, and a topic as it is."""
    return full_principal(name, instance_of(app).acl_cache.settings.tokens) if subject == Subject.PRINCIPAL else name


def _answer(quota: Quota) -> QuotaAnswer:
    return {"subject": str(quota.subject), "name": quota.name, "limits": quota.to_json(), "shared": quota.is_shared}


serve = serve_with(app)
