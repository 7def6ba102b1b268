"""Bills consumers of six partitions that get nothing: one polls, one sleeps, and one sleeps as a member of a group."""

from collections.abc import Callable, Mapping, Sequence

from bench.bill.deployment import Bill, BilledDeployment, BilledProfile, BillError
from bench.bill.requests import HOUR_MS, TOPIC, Fetching, subscribe_to_wake_ups, with_topic
from penstock import prices
from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.fetch_call import fetch
from penstock.consumer.settings import ConsumerSettings, WaitMode
from penstock.group.group_calls import HeldLease, beat, commit_leased
from penstock.group.membership import Membership
from penstock.http.client import Client
from penstock.http.steps import drive
from penstock.model import TopicPartition
from penstock_core.groups.group import parse_subscription

MEMBER_MS = HOUR_MS // 4
POLLING_MS = 2_700  # of the deployment's time
IDLE_PARTITIONS = 6
_GROUP = "billing"
_JOIN_MS = 2_000
_STEPS_TO_SETTLE = 5  # an idle consumer has armed its partitions by then
_CHANCE = 0.5


def bill_waiting_consumer(profile: BilledProfile) -> Bill:
    """An hour of a consumer of six partitions that waits for wake-ups, and gets none, with the settings of a Consumer.

    Its connection and its subscriptions are there already.
    """
    return _with_connection(_bill_idle(profile, "wake", HOUR_MS), HOUR_MS)


def bill_polling_consumer(profile: BilledProfile) -> Bill:
    """`POLLING_MS` of a consumer of six partitions that polls and gets nothing, with the settings of a Consumer."""
    return _bill_idle(profile, "poll", POLLING_MS)


def bill_waiting_member(profile: BilledProfile, session_timeout_ms: int | None = None, members: int = 1) -> Bill:
    """`MEMBER_MS` of all members of a group, that own six partitions together and wait for wake-ups.

    Their heartbeats have grown to what they grow to. Without `session_timeout_ms` the group has the default.
    """
    with with_topic(profile, IDLE_PARTITIONS) as deployment:
        settings = ConsumerSettings(group_id=_GROUP, session_timeout_ms=session_timeout_ms)
        group = [_Member(deployment, settings, number) for number in range(members)]
        _run(deployment, group, MEMBER_MS)
        deployment.take()
        _run(deployment, group, MEMBER_MS)
        bill = deployment.take()
        for _ in group:
            _with_connection(bill, MEMBER_MS)
        return bill


def bill_busy_member(profile: BilledProfile, beats: int = 12) -> Bill:
    """So many heartbeats of a member that gets records: each comes after the group's interval, and looks at nothing."""
    with with_topic(profile, IDLE_PARTITIONS) as deployment:
        member = _Member(deployment, ConsumerSettings(group_id=_GROUP), looks=False)
        _run(deployment, [member], MEMBER_MS)
        deployment.take()
        for _ in range(beats):
            member.beat_busily()
        return deployment.take()


def commit_as_member(deployment: BilledDeployment, partitions: int) -> Callable[[], None]:
    """A member that owns all partitions of the topic; the result commits an offset for each of them."""
    member = _Member(deployment, ConsumerSettings(group_id=_GROUP), looks=False)
    _run(deployment, [member], _JOIN_MS, partitions)
    return member.commit


def _run(deployment: BilledDeployment, group: Sequence["_Member"], duration_ms: int, owned: int | None = None) -> None:
    """Lets the time pass, with what the members do in it. They own so many partitions then."""
    clock = deployment.clock
    until_ms = clock.passed_ms + duration_ms
    while clock.passed_ms < until_ms:
        if not any(member.acts() for member in group):
            clock.sleep_ms(max(1, min(member.wake_at_ms() for member in group) - clock.passed_ms))
    found = sum(len(member.owned) for member in group)
    if found != (owned or IDLE_PARTITIONS):
        raise BillError(f"the members own {found} partitions")


def _bill_idle(profile: BilledProfile, wait: WaitMode, duration_ms: int) -> Bill:
    with with_topic(profile, IDLE_PARTITIONS) as deployment:
        consumer = Fetching(deployment, partitions=IDLE_PARTITIONS, wait=wait)
        for _ in range(_STEPS_TO_SETTLE):
            consumer.step()
        deployment.take()
        began_ms = deployment.clock.passed_ms
        while deployment.clock.passed_ms < began_ms + duration_ms:
            consumer.step()
        return deployment.take()


def _with_connection(bill: Bill, duration_ms: int) -> Bill:
    bill.lines["wake-ups"] += prices.APPSYNC_MINUTES.of(duration_ms / 60_000)
    return bill


class _Member:
    """The parts of a Consumer that decide what a member says and fetches, and when, in the deployment's time."""

    def __init__(
        self, deployment: BilledDeployment, settings: ConsumerSettings, number: int = 0, *, looks: bool = True
    ) -> None:
        self._clock = deployment.clock
        self._client = Client(deployment)
        self._buffer = FetchBuffer(settings.fetch())
        member = settings.member(f"{number:032x}", "host-1")
        if member is None:
            raise BillError("a consumer with a group is a member")
        self._membership = Membership(member, self._buffer if looks else None)
        self._membership.subscribe(parse_subscription((TOPIC,), ()), self._now_ms())
        self._membership.poll_began(self._now_ms())

    @property
    def owned(self) -> Mapping[TopicPartition, HeldLease]:
        """The partitions that it may read."""
        return self._membership.owned

    def acts(self) -> bool:
        """Sends what is due: False if nothing is. Its subscriptions begin at once."""
        if self._beat() or self._fetch():
            return True
        subscribe_to_wake_ups(self._buffer)
        return False

    def wake_at_ms(self) -> float:
        """When it acts next, if nothing happens before."""
        return min(self._membership.wake_at_ms, self._buffer.wake_at_ms)

    def commit(self) -> None:
        """Commits the same offset of each partition."""
        call = commit_leased(
            _GROUP, self._membership.settings, {each: (0, lease) for each, lease in self.owned.items()}
        )
        if refused := self._client.call(call):
            raise BillError(f"a commit was refused: {refused}")

    def beat_busily(self) -> None:
        """Gets records, and heartbeats when that is due."""
        self._membership.handed_out(self._now_ms())
        while not self._beat():
            self._clock.sleep_ms(max(1, self._membership.wake_at_ms - self._clock.passed_ms))

    def _now_ms(self) -> int:
        return int(self._clock.passed_ms)

    def _beat(self) -> bool:
        heartbeat = self._membership.next_heartbeat(self._now_ms())
        if heartbeat is None:
            return False
        answer = drive(beat(_GROUP, heartbeat), self._client.try_once)
        self._membership.complete(heartbeat, answer, self._now_ms(), _CHANCE)
        granted, revoked = self._membership.take_granted(), self._membership.to_revoke()
        if revoked:
            self._membership.release(revoked, self._now_ms())
        if granted or revoked:
            self._buffer.assign([*self.owned])
            for partition, lease in granted.items():
                self._buffer.lease(partition, lease.topic_id, is_late=lease.is_late)
                self._buffer.seek(partition, 0)
        return True

    def _fetch(self) -> bool:
        request = self._buffer.next_request(self._now_ms())
        if request is None:
            return False
        answer = drive(fetch(request), self._client.try_once)
        self._buffer.complete(request, answer, self._now_ms(), _CHANCE)
        return True
