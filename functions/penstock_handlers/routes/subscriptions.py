"""/v1/subscriptions: list, create and alter, describe, pause, resume, delete."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from penstock_core.acls.rule import Kind, Operation
from penstock_core.limits import GROUP_PAGE_MAX, PUSH_LIST_MAX
from penstock_core.quotas.quota import ClaimKind
from penstock_handlers.edge.json_api import (
    PAGED,
    After,
    Digits,
    JsonApp,
    caller_of,
    fitting_page,
    instance_of,
    principal_name,
    serve_with,
)
from penstock_handlers.edge.models.subscription_models import (
    PutSubscription,
    SubscriptionAnswer,
    SubscriptionDescriptionAnswer,
    SubscriptionList,
    lanes_answer,
    partition_answer,
    subscription_answer,
)
from penstock_service.push.admin.describe_subscription import describe_subscription, list_subscriptions, place_of
from penstock_service.push.admin.pause_subscription import delete_subscription, pause_subscription, resume_subscription
from penstock_service.push.admin.put_subscription import put_subscription
from penstock_service.quotas.claim_resource import forget_claim

app = JsonApp("subscriptions")


@app.operation("GET /v1/subscriptions", "listSubscriptions", "List subscriptions", parameters=PAGED)
def list_all(
    limit: Annotated[Digits, Query(ge=1, le=PUSH_LIST_MAX)] = PUSH_LIST_MAX, after: After = ""
) -> SubscriptionList:
    """List the subscriptions that you may describe by name, `limit` at a time, from behind `after`."""
    shown, next_after = list_subscriptions(instance_of(app), limit, after, caller_of(app).sees(Kind.SUBSCRIPTION))
    subscriptions = [subscription_answer(each) for each in shown]
    page, next_after = fitting_page(subscriptions, next_after, lambda last: shown[last].name)
    return {"subscriptions": page, "next_after": next_after}


@app.operation("PUT /v1/subscriptions/<name>", "putSubscription", "Create a subscription, or alter it")
def put(name: Annotated[str, Path()], request: PutSubscription) -> SubscriptionAnswer:
    """Create a subscription, or change its topics, target and settings. A repeat starts its deliveries again."""
    found, _ = put_subscription(instance_of(app), name, request.wish(), caller_of(app))
    return subscription_answer(found)


@app.operation(
    "GET /v1/subscriptions/<name>", "describeSubscription", "Describe a subscription, with lag", parameters=PAGED
)
def describe(
    name: Annotated[str, Path()],
    limit: Annotated[Digits, Query(ge=1, le=GROUP_PAGE_MAX)] = GROUP_PAGE_MAX,
    after: After = "",
) -> SubscriptionDescriptionAnswer:
    """Describe a subscription, and the result of the last delivery of each partition; `limit` at a time."""
    page = describe_subscription(instance_of(app), name, after, limit)
    access = caller_of(app)
    shown = [each for each in page.partitions if access.may(Operation.DESCRIBE, Kind.TOPIC, each.topic)]
    partitions, next_after = fitting_page(
        [partition_answer(each) for each in shown],
        page.next_after,
        lambda last: place_of(shown[last].topic, shown[last].key),
    )
    return {
        **subscription_answer(page.subscription),
        "lanes": lanes_answer(page.lanes),
        "dead_lettered": page.dead_lettered,
        "partitions": partitions,
        "next_after": next_after,
    }


@app.operation("POST /v1/subscriptions/<name>/pause", "pauseSubscription", "Pause a subscription")
def pause(name: Annotated[str, Path()]) -> SubscriptionAnswer:
    """Begin no further delivery. Each partition keeps its place."""
    return subscription_answer(pause_subscription(instance_of(app), name))


@app.operation("POST /v1/subscriptions/<name>/resume", "resumeSubscription", "Resume a subscription")
def resume(name: Annotated[str, Path()]) -> SubscriptionAnswer:
    """Go on where the subscription was. A repeat starts its deliveries again."""
    return subscription_answer(resume_subscription(instance_of(app), name))


@app.operation("DELETE /v1/subscriptions/<name>", "deleteSubscription", "Delete a subscription", status_code=204)
def delete(name: Annotated[str, Path()]) -> Response[None]:
    """Delete a subscription. Its records stay in their topics."""
    subscription_id = delete_subscription(instance_of(app), name)
    forget_claim(instance_of(app), principal_name(app), ClaimKind.SUBSCRIPTION, name, subscription_id)
    return Response(status_code=204)


serve = serve_with(app)
