"""Admit a request by the quotas of its principal and its topics, before anything is stored or read for it.

Take units of a quota: from the share that this instance has charged, else from the bucket that all instances charge.

A request far below its quota takes from the share, and sends no call. See docs/protocol/access for the arithmetic.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from penstock_core.acls.rule import EVERY
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import PartitionKey, TopicName
from penstock_core.limits import (
    QUOTA_ATTEMPTS_MAX,
    QUOTA_FETCH_BYTES_MIN,
    QUOTA_STORED_REREAD_MS,
    QUOTA_WAIT_MS_MAX,
)
from penstock_core.log.topic import Topic
from penstock_core.metrics.lag_memory import OTHER
from penstock_core.quotas.bucket import BucketKey, fresh_bucket, units_to_charge
from penstock_core.quotas.quota import STORED_BYTES, Rate, Subject
from penstock_service.instance.instance import Instance
from penstock_service.instance.quota_shares import ReservedBytes
from penstock_service.instance.update_window import Moment
from penstock_service.ports.access import ChargeOutcome

_ONE_FETCH = {Rate.FETCH_REQUESTS: 1}
_CHANCES = 256


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
        limit = _limit_of(instance, spender, rate)
        if limit is None:
            continue
        try:
            take_share(instance, *limit, needed)
        except PenstockError:
            give_back(instance, spender, taken)
            raise
        taken[rate] = needed


def reserve_bytes(instance: Instance, topic: Spender, size: int) -> ReservedBytes | None:
    """Lets `size` bytes more into the topic, if its quota of stored bytes has room. Raises QUOTA_EXCEEDED.

    The caller comes here when all else admits the request, and releases what it does not append. None if the topic has
    no such bound, as a compacted one: heads do not tell what compaction has removed. If the heads cannot be read, an
    instance goes by what it knows, and without that the request passes.

    Reads the heads of all partitions each `QUOTA_STORED_AGE_MS`, and each `QUOTA_STORED_REREAD_MS` while it refuses,
    one call for each 100. Costs nothing without such a quota.
    """
    limit = instance.quota_cache.stored_bytes_max(topic.name)
    if limit is None:
        return None
    found = instance.topic_cache.get(topic.name)
    if found.config.is_compacted:
        return None
    stored, topic_id = instance.stored_bytes, found.topic_id
    reserved = stored.reserve(topic_id, size, limit)
    if reserved is not None:
        return reserved
    known = stored.known(topic_id)
    if known is None or known[1] >= QUOTA_STORED_REREAD_MS:
        _read_stored(instance, found)
        reserved = stored.reserve(topic_id, size, limit)
        known = stored.known(topic_id)
    if reserved is not None or known is None:
        return reserved
    raise PenstockError(
        ErrorCode.QUOTA_EXCEEDED,
        f"topic {shown(topic.name)} holds {known[0]} bytes, with these {size} it would exceed its quota "
        f"{STORED_BYTES}={limit}: shorten its retention, truncate it, or have the quota raised",
        quota=STORED_BYTES,
        limit=limit,
    )


def _read_stored(instance: Instance, topic: Topic) -> None:
    """Reads the heads of the topic, and notes the bytes that it holds."""
    read = Moment.now(instance.clock)
    try:
        heads = instance.stores.log.heads([PartitionKey(topic.topic_id, each) for each in topic.all_partitions()])
    except PenstockError as error:
        instance.telemetry.log("stored_bytes_unread", topic=topic.name, error=error.code.name)
    else:
        instance.stored_bytes.note(topic.topic_id, sum(head.stored_bytes for head in heads.values()), read)


@contextmanager
def released_on_error(instance: Instance, reserved: Iterable[ReservedBytes]) -> Iterator[None]:
    """Releases the bytes if its block raises: nothing was appended then, or the next read of the heads tells."""
    try:
        yield
    except Exception:
        for each in reserved:
            instance.stored_bytes.release(each, each.size)
        raise


def give_back(instance: Instance, spender: Spender, units: Mapping[Rate, int]) -> None:
    """Gives back what `admit` has taken for a request that another quota refuses. Sends no call."""
    for rate, count in units.items():
        if (limit := _limit_of(instance, spender, rate)) is not None:
            instance.quota_shares.spend(limit[0], -count)


def admit_fetch(instance: Instance, spender: Spender, max_bytes: int) -> int:
    """Takes one fetch of the spender's quotas, and gives the bytes that it may answer, at most `max_bytes`.

    The bytes themselves are spent when they are known (`spend_fetched`). A fetch may answer `QUOTA_FETCH_BYTES_MIN`
    however little is left, and one batch: a debt, which delays the next fetch. Raises THROTTLED. Costs as `admit`.
    """
    admit(instance, spender, _ONE_FETCH)
    limit = _limit_of(instance, spender, Rate.FETCH_BYTES)
    if limit is None:
        return max_bytes
    key, rate = limit
    try:
        take_share(instance, key, rate, 1, max_bytes)
    except PenstockError:
        give_back(instance, spender, _ONE_FETCH)
        raise
    return min(max_bytes, max(QUOTA_FETCH_BYTES_MIN, instance.quota_shares.left(key)))


def give_back_fetch(instance: Instance, spender: Spender) -> None:
    """Gives back what `admit_fetch` has taken for a call that other quotas refuse. Sends no call."""
    give_back(instance, spender, _ONE_FETCH)


def spend_fetched(instance: Instance, spender: Spender, fetched_bytes: int) -> None:
    """Spends the bytes that a fetch has answered, or has read and passed over. Sends no call."""
    if (limit := _limit_of(instance, spender, Rate.FETCH_BYTES)) is not None:
        instance.quota_shares.spend(limit[0], fetched_bytes)


def _limit_of(instance: Instance, spender: Spender, rate: Rate) -> tuple[BucketKey, int] | None:
    """The bucket that the spender spends of, its own or that of a shared quota, and the rate. None without a quota."""
    limit = instance.quota_cache.rate_of(spender.subject, spender.name, rate)
    if limit is None:
        return None
    name = limit.shared_by or spender.bucket_name
    return BucketKey(subject=spender.subject, name=name, rate=rate), limit.units_per_s


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    """The units that a request needs, those that its share lacks for it with the debt, and those that may come next."""

    needed: int
    missing: int
    ahead: int

    def units(self, rate: int, credit: int) -> int:
        """The units to charge with that credit."""
        return units_to_charge(rate=rate, needed=self.missing, expected=self.missing + self.ahead, credit=credit)


def take_share(instance: Instance, key: BucketKey, rate: int, needed: int, wanted: int = 0) -> None:
    """Takes `needed` units of a quota of `rate` units a second.

    A charge asks for `wanted` units, if they are more and there is credit. Costs nothing while the share lasts; else
    one or two conditional writes, and up to `QUOTA_ATTEMPTS_MAX` if other instances change the bucket. Raises THROTTLED
    with `retry_after_ms`: nothing was taken. If the bucket cannot be reached, the request passes.
    """
    shares = instance.quota_shares
    missing = shares.take(key, needed, rate)
    if missing is None:
        return
    blocked_ms = shares.blocked_ms(key)
    if blocked_ms > 0:
        raise over_quota(key, rate, blocked_ms)
    try:
        ahead = max(shares.expected(key), wanted - needed)
        _charge(instance, key, rate, _Charge(needed=needed, missing=missing, ahead=ahead))
    except PenstockError as error:
        if "quota" in error.facts:
            raise
        if error.code is ErrorCode.THROTTLED:  # that many charges are this principal's own doing
            raise over_quota(key, rate, QUOTA_WAIT_MS_MAX // 60) from error
        instance.telemetry.log("quota_uncharged", subject=key.subject, rate=key.rate, error=error.code.name)
    shares.spend(key, needed)


def over_quota(key: BucketKey, rate: int, wait_ms: float) -> PenstockError:
    """The error of a request over its quota. It names the quota and the time to wait."""
    retry_after_ms = ceil(min(max(wait_ms, 1), QUOTA_WAIT_MS_MAX))
    whose = "your principal" if key.subject == Subject.PRINCIPAL else "the topic"
    if key.name.endswith(EVERY):
        whose = f"the team of {shown(key.name)}"
    return PenstockError(
        ErrorCode.THROTTLED,
        f"{whose} has spent its quota {key.rate}={rate}: try again in {retry_after_ms} ms, or have the quota raised",
        retry_after_ms=retry_after_ms,
        quota=str(key.rate),
        limit=rate,
        subject=str(key.subject),
    )


def _charge(instance: Instance, key: BucketKey, rate: int, charge: _Charge) -> None:
    """Charges the bucket for the share. Raises THROTTLED if there is no credit.

    A debt was spent by an earlier request. It is charged in any case, and this request passes if credit is left.
    """
    known = instance.quota_shares.bucket(key)
    for _ in range(QUOTA_ATTEMPTS_MAX):
        now_ms = instance.clock.now_ms()
        if known is not None and known.rate == rate and not known.is_overfull(now_ms):
            units = charge.units(rate, known.credit(now_ms))
            outcome = instance.stores.quotas.charge(key, known, units, now_ms)
        else:
            burst = fresh_bucket(rate, 0, now_ms).credit(now_ms)
            units = charge.units(rate, burst)
            outcome = instance.stores.quotas.begin(key, known, fresh_bucket(rate, units, now_ms))
        if outcome.is_made and outcome.bucket is not None:
            instance.quota_shares.add(key, units, outcome.bucket)
            if charge.missing > charge.needed:
                _refuse_if_spent(instance, key, rate, outcome)
            return
        _refuse_if_spent(instance, key, rate, outcome)
        known = outcome.bucket
    raise over_quota(key, rate, 1)


def _refuse_if_spent(instance: Instance, key: BucketKey, rate: int, outcome: ChargeOutcome) -> None:
    """Raises THROTTLED, and remembers it, if the bucket has no credit."""
    bucket = outcome.bucket
    if bucket is None or bucket.rate != rate:
        return
    wait_ms = bucket.wait_ms(instance.clock.now_ms())
    if wait_ms <= 0:
        return
    chance = instance.entropy.random_bytes(1)[0] / _CHANCES  # instances do not come back together
    raise over_quota(key, rate, instance.quota_shares.block(key, bucket, wait_ms, chance))
