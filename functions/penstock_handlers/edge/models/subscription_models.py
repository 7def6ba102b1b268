"""The requests and answers about subscriptions, from which the OpenAPI document is made."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from penstock_core import limits
from penstock_core.push.subscription import Subscription, SubscriptionConfig
from penstock_core.push.targets.target import target_to_json
from penstock_handlers.edge.models.request_models import JsonRequest
from penstock_service.push.admin.describe_subscription import LaneCounts, SubscriptionPartition
from penstock_service.push.admin.put_subscription import SubscriptionWish

_NO_BOUND = -1  # of an age: how the API writes None
_RETRY = ("attempts_max", "backoff_ms_min", "backoff_ms_max", "patience_ms", "age_ms_max")


class HttpsEndpoint(JsonRequest):
    """An endpoint and the secret that signs its requests. Once it is set, an alteration may leave the secret out."""

    url: str | None = None  # the core asks for it: an error of pydantic would show the object with its secret
    secret: str | None = None


class StageToMirror(JsonRequest):
    """Another stage, which mirrors the topics: its URL and region, and its role that this stage may assume.

    `prefix` begins the names of the mirrored topics, and `source` is the URL of this stage, for clients of the mirror.
    """

    url: str | None = None  # the core asks for it
    region: str | None = None
    role: str | None = None
    prefix: str | None = None
    source: str | None = None


class SubscriptionTarget(JsonRequest):
    """The place that gets the records. Give exactly one."""

    function: str | None = Field(default=None, alias="lambda")
    sqs: str | None = None
    event_bus: str | None = None
    https: HttpsEndpoint | None = None
    topic: str | None = None
    stage: StageToMirror | None = None


class RetryPolicy(JsonRequest):
    """What follows a failure. An `age_ms_max` of -1 is no bound."""

    attempts_max: int | None = None
    backoff_ms_min: int | None = None
    backoff_ms_max: int | None = None
    patience_ms: int | None = None
    age_ms_max: int | None = None


class PutSubscription(JsonRequest):
    """A subscription to create, or changes to one.

    What you leave out stays; null sets a setting back to its default. `mode` and `start` are fixed by the creation.
    """

    topics: list[str] | None = Field(default=None, min_length=1, max_length=limits.PUSH_TOPICS_MAX)
    target: SubscriptionTarget | None = None
    mode: Literal["ordered", "parallel"] | None = None
    start: Literal["earliest", "latest"] | None = None
    batch_records: int | None = None
    batch_window_ms: int | None = None
    concurrency: int | None = None
    filter: dict[str, Any] | None = None
    retry: RetryPolicy | None = None
    bisect: bool | None = None
    dead_letter_topic: str | None = None

    def wish(self) -> SubscriptionWish:
        """The request as the use case takes it: without the fields that the caller has left out."""
        given = self.model_dump(exclude_unset=True, by_alias=True, exclude={"topics", "target", "retry"})
        retry: dict[str, Any] = {}
        if "retry" in self.model_fields_set:
            retry = dict.fromkeys(_RETRY) if self.retry is None else self.retry.model_dump(exclude_unset=True)
        if retry.get("age_ms_max") == _NO_BOUND:
            retry["age_ms_max"] = None
        target = None if self.target is None else self.target.model_dump(exclude_unset=True, by_alias=True)
        return SubscriptionWish(topics=self.topics, target=target, settings={**given, **retry})


class RetryPolicyAnswer(TypedDict):
    """What follows a failure. `attempts_max` is null without a bound, and `age_ms_max` -1."""

    attempts_max: int | None
    backoff_ms_min: int
    backoff_ms_max: int
    patience_ms: int
    age_ms_max: int


class SubscriptionAnswer(TypedDict):
    """A subscription and all its settings. The target of an HTTPS endpoint has no secret here."""

    name: str
    subscription_id: str
    state: str
    created_at_ms: int
    topics: list[str]
    target: dict[str, Any]
    mode: str
    start: str
    batch_records: int
    batch_window_ms: int
    concurrency: int
    filter: dict[str, Any] | None
    retry: RetryPolicyAnswer
    bisect: bool
    dead_letter_topic: str | None


class SubscriptionList(TypedDict):
    """One page of the list of subscriptions; the next starts behind `next_after`."""

    subscriptions: list[SubscriptionAnswer]
    next_after: str | None


class LaneCountsAnswer(TypedDict):
    """The lanes that deliver now, those that rest until a time, and the deliveries that died lately."""

    working: int
    resting: int
    deaths: int


class SubscriptionPartitionAnswer(TypedDict):
    """One partition: the target has answered for all records below `offset`. Times are milliseconds since 1970.

    Records that had their attempts wait for a success of another delivery until `patience_until_ms`. `dead_lettered`
    counts the records that went to the dead-letter topic; it is null in parallel mode. `expired` counts those that were
    passed over because their time was over.
    """

    topic: str
    topic_id: str
    partition: int
    lane: int
    offset: int
    lag: int
    oldest_age_ms: int | None
    last_result: str
    last_error: str | None
    attempts: int
    failing_since_ms: int | None
    succeeded_ms: int | None
    next_try_ms: int | None
    patience_until_ms: int | None
    dead_lettered: int | None
    expired: int


class SubscriptionDescriptionAnswer(SubscriptionAnswer):
    """A page of a subscription's partitions; the next page starts behind `next_after`.

    `dead_lettered` counts for the whole subscription; it is null in parallel mode.
    """

    lanes: LaneCountsAnswer
    dead_lettered: int | None
    partitions: list[SubscriptionPartitionAnswer]
    next_after: str | None


def subscription_answer(subscription: Subscription) -> SubscriptionAnswer:
    """The subscription as the API shows it."""
    config = subscription.config
    policy: Mapping[str, Any] | None = config.filter
    return {
        "name": subscription.name,
        "subscription_id": subscription.subscription_id,
        "state": "paused" if subscription.is_paused else "active",
        "created_at_ms": subscription.created_at_ms,
        "topics": sorted(subscription.topics),
        "target": target_to_json(subscription.target),
        "mode": config.mode,
        "start": config.start,
        "batch_records": config.batch_records,
        "batch_window_ms": config.batch_window_ms,
        "concurrency": config.concurrency,
        "filter": None if policy is None else dict(policy),
        "retry": _retry_answer(config),
        "bisect": config.bisect,
        "dead_letter_topic": config.dead_letter_topic,
    }


def lanes_answer(counts: LaneCounts) -> LaneCountsAnswer:
    """The counts as the API shows them."""
    return {"working": counts.working, "resting": counts.resting, "deaths": counts.deaths}


def partition_answer(each: SubscriptionPartition) -> SubscriptionPartitionAnswer:
    """The partition as the API shows it."""
    place, report = each.place, each.report
    return {
        "topic": each.topic,
        "topic_id": each.key.topic_id,
        "partition": each.key.partition,
        "lane": each.lane,
        "offset": place.offset,
        "lag": place.lag,
        "oldest_age_ms": place.oldest_age_ms,
        "last_result": report.result.value,
        "last_error": report.error or None,
        "attempts": report.attempts,
        "failing_since_ms": report.failing_since_ms,
        "succeeded_ms": report.succeeded_ms,
        "next_try_ms": report.next_try_ms,
        "patience_until_ms": report.patience_until_ms,
        "dead_lettered": each.dead_lettered,
        "expired": place.expired,
    }


def _retry_answer(config: SubscriptionConfig) -> RetryPolicyAnswer:
    return {
        "attempts_max": config.attempts_max,
        "backoff_ms_min": config.backoff_ms_min,
        "backoff_ms_max": config.backoff_ms_max,
        "patience_ms": config.patience_ms,
        "age_ms_max": _NO_BOUND if config.age_ms_max is None else config.age_ms_max,
    }
