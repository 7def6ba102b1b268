"""Bills consumers of six partitions that get nothing: one polls, one sleeps, and one sleeps as a member of a group."""

from bench.bill.deployment import Bill, BilledDeployment, BilledProfile, BillError
from bench.bill.requests import HOUR_MS, TOPIC, Fetching, subscribe_to_wake_ups, with_topic
from penstock import prices
from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.fetch_call import fetch
from penstock.consumer.settings import ConsumerSettings, WaitMode
from penstock.group.group_calls import beat
from penstock.group.membership import Membership
from penstock.http.client import Client
from penstock.http.steps import drive
from penstock_core.groups.group import parse_subscription

MEMBER_MS = HOUR_MS // 4
POLLING_MS = 2_700  # of the deployment's time
IDLE_PARTITIONS = 6
_GROUP = "billing"
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


def bill_waiting_member(profile: BilledProfile, session_timeout_ms: int | None = None) -> Bill:
    """`MEMBER_MS` of the only member of a group, that owns six partitions and waits for wake-ups.

    Its heartbeats have grown to what they grow to. Without `session_timeout_ms` the group has the default.
    """
    with with_topic(profile, IDLE_PARTITIONS) as deployment:
        member = _Member(deployment, ConsumerSettings(group_id=_GROUP, session_timeout_ms=session_timeout_ms))
        member.run(MEMBER_MS)
        deployment.take()
        member.run(MEMBER_MS)
        return _with_connection(deployment.take(), MEMBER_MS)


def bill_busy_member(profile: BilledProfile, beats: int = 12) -> Bill:
    """So many heartbeats of a member that gets records: each comes after the group's interval, and looks at nothing."""
    with with_topic(profile, IDLE_PARTITIONS) as deployment:
        member = _Member(deployment, ConsumerSettings(group_id=_GROUP), looks=False)
        member.run(MEMBER_MS)
        deployment.take()
        for _ in range(beats):
            member.beat_busily()
        return deployment.take()


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

    def __init__(self, deployment: BilledDeployment, settings: ConsumerSettings, *, looks: bool = True) -> None:
        self._clock = deployment.clock
        self._client = Client(deployment)
        self._buffer = FetchBuffer(settings.fetch())
        member = settings.member("0" * 32, "host-1")
        if member is None:
            raise BillError("a consumer with a group is a member")
        self._membership = Membership(member, self._buffer if looks else None)
        self._membership.subscribe(parse_subscription((TOPIC,), ()), self._now_ms())
        self._membership.poll_began(self._now_ms())

    def run(self, duration_ms: int) -> None:
        """Lets the time pass, with what the member does in it."""
        until_ms = self._clock.passed_ms + duration_ms
        while self._clock.passed_ms < until_ms:
            if not (self._beat() or self._fetch()):
                subscribe_to_wake_ups(self._buffer)
                wake_at_ms = min(self._membership.wake_at_ms, self._buffer.wake_at_ms)
                self._clock.sleep_ms(max(1, wake_at_ms - self._clock.passed_ms))
        if len(self._membership.owned) != IDLE_PARTITIONS:
            raise BillError(f"the member owns {len(self._membership.owned)} partitions")

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
        granted = self._membership.take_granted()
        if granted:
            self._buffer.assign(granted)
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
