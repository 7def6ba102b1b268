"""Admit a request by the quotas of its principal and its topics, before anything is stored or read for it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.ids import TopicName
from penstock_core.limits import QUOTA_FETCH_BYTES_MIN
from penstock_core.metrics.topic_traffic import OTHER
from penstock_core.quotas.bucket import BucketKey
from penstock_core.quotas.quota import Rate, Subject
from penstock_service.instance.instance import Instance
from penstock_service.quotas.take_share import take_share

_ONE_FETCH = {Rate.FETCH_REQUESTS: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """A principal or a topic: whose quota it is, and the name of its buckets."""

    subject: Subject
    name: str
    bucket_name: str


def admit(instance: Instance, spender: Spender, units: Mapping[Rate, int]) -> None:
    """Takes units of each rate that has a quota. Raises THROTTLED for the first that is spent, and gives back the rest.

    Costs what `take_share` costs for each quota, and nothing without quotas.
    """
    taken: dict[Rate, int] = {}
    for rate, needed in units.items():
        limit = instance.quota_cache.rate_of(spender.subject, spender.name, rate)
        if limit is None:
            continue
        try:
            take_share(instance, _key(spender, rate), limit, needed)
        except PenstockError:
            give_back(instance, spender, taken)
            raise
        taken[rate] = needed


def give_back(instance: Instance, spender: Spender, units: Mapping[Rate, int]) -> None:
    """Gives back what `admit` has taken for a request that another quota refuses. Sends no call."""
    for rate, count in units.items():
        if instance.quota_cache.rate_of(spender.subject, spender.name, rate) is not None:
            instance.quota_shares.spend(_key(spender, rate), -count)


def admit_fetch(instance: Instance, spender: Spender, max_bytes: int) -> int:
    """Takes one fetch of the spender's quotas, and gives the bytes that it may answer, at most `max_bytes`.

    The bytes themselves are spent when they are known (`spend_fetched`). A fetch may answer `QUOTA_FETCH_BYTES_MIN`
    however little is left, and one batch: a debt, which delays the next fetch. Raises THROTTLED. Costs as `admit`.
    """
    admit(instance, spender, _ONE_FETCH)
    limit = instance.quota_cache.rate_of(spender.subject, spender.name, Rate.FETCH_BYTES)
    if limit is None:
        return max_bytes
    key = _key(spender, Rate.FETCH_BYTES)
    try:
        take_share(instance, key, limit, 1, max_bytes)
    except PenstockError:
        give_back(instance, spender, _ONE_FETCH)
        raise
    return min(max_bytes, max(QUOTA_FETCH_BYTES_MIN, instance.quota_shares.left(key)))


def give_back_fetch(instance: Instance, spender: Spender) -> None:
    """Gives back what `admit_fetch` has taken for a call that other quotas refuse. Sends no call."""
    give_back(instance, spender, _ONE_FETCH)


def spend_fetched(instance: Instance, spender: Spender, fetched_bytes: int) -> None:
    """Spends the bytes that a fetch has answered, or has read and passed over. Sends no call."""
    if instance.quota_cache.rate_of(spender.subject, spender.name, Rate.FETCH_BYTES) is not None:
        instance.quota_shares.spend(_key(spender, Rate.FETCH_BYTES), fetched_bytes)


def _key(spender: Spender, rate: Rate) -> BucketKey:
    return BucketKey(subject=spender.subject, name=spender.bucket_name, rate=rate)


def count_throttled(instance: Instance, topics: Iterable[str], error: PenstockError) -> None:
    """Counts the error for each of these topics, as often as it is there.

    Quotas come before the topics are read. So a topic that the instance does not remember may not exist, and counts for
    `OTHER`. Sends no call.
    """
    for topic in topics:
        instance.traffic.add_error(topic if instance.topic_cache.remembers(topic) else OTHER, error)


def principal_spender(principal: str) -> Spender:
    """The principal of that name."""
    return Spender(subject=Subject.PRINCIPAL, name=principal, bucket_name=principal)


def topic_spenders(instance: Instance, topics: Iterable[str]) -> list[Spender]:
    """The topics that exist, each once. Their buckets have the topic's id: a topic made anew begins with full ones.

    One read for each topic that is not remembered. Sends none if the stage has no quotas of topics.
    """
    if not instance.quota_cache.has_quotas(Subject.TOPIC):
        return []
    return [spender for name in dict.fromkeys(topics) if (spender := topic_spender(instance, name)) is not None]


def topic_spender(instance: Instance, name: str) -> Spender | None:
    """The topic of that name, None if it does not exist: the use case says so. One read if it is not remembered."""
    topic = instance.topic_cache.find(name)
    return None if topic is None else Spender(subject=Subject.TOPIC, name=TopicName(name), bucket_name=topic.topic_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAllowance:
    """The bytes that a call may answer, the quotas that pay for it, and the errors of topics over their quotas."""

    max_bytes: int
    spenders: tuple[Spender, ...]
    refused: Mapping[str, PenstockError]

    def settle(self, instance: Instance, fetched: Mapping[str, int]) -> None:
        """Spends the bytes that were read for the call, by topic. Sends no call."""
        total = sum(fetched.values())
        for spender in self.spenders:
            size = total if spender.subject is Subject.PRINCIPAL else fetched.get(spender.name, 0)
            spend_fetched(instance, spender, size)


def allow_fetch(instance: Instance, principal: str, topics: Iterable[str], max_bytes: int) -> FetchAllowance:
    """Takes one call of the quotas of the principal and of each topic. A topic over its quota is refused alone.

    Costs what `take_share` costs for each quota, and nothing without quotas. Raises THROTTLED if the principal is over
    its quota, or all topics are: nothing is taken then.
    """
    asked = [*topics]
    names = list(dict.fromkeys(asked))
    caller = principal_spender(principal)
    try:
        max_bytes = admit_fetch(instance, caller, max_bytes)
    except PenstockError as error:
        count_throttled(instance, asked, error)
        raise
    spenders, refused = [caller], dict[str, PenstockError]()
    for spender in topic_spenders(instance, names):
        try:
            max_bytes = admit_fetch(instance, spender, max_bytes)
        except PenstockError as error:
            refused[spender.name] = error
            count_throttled(instance, [each for each in asked if each == spender.name], error)
        else:
            spenders.append(spender)
    if refused and len(refused) == len(names):
        give_back_fetch(instance, caller)
        raise next(iter(refused.values()))
    return FetchAllowance(max_bytes=max_bytes, spenders=tuple(spenders), refused=refused)
