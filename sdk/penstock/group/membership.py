"""A member of a group, without I/O, threads or clock: when it heartbeats, what it says, and what it holds.

    heartbeats:   next_heartbeat -> (a driver sends: group_calls.beat) -> answered | failed
    application:  subscribe; poll_began -> take_lost, to_revoke, release, take_granted -> poll_ended; leave

| state   | heartbeat                    | then                                                                    |
|---------|------------------------------|-------------------------------------------------------------------------|
| OUTSIDE | none                         | a poll: JOINING                                                         |
| JOINING | epoch 0, subscription        | answered: JOINED                                                        |
| JOINED  | its epoch, `owned` if needed | UNKNOWN_MEMBER: JOINING; no poll for too long, `leave`, closed: LEAVING |
| LEAVING | `leave`                      | answered, refused or out of time: OUTSIDE, or ENDED; a poll: JOINING    |
| ENDED   | none                         | fenced by another process of its instance id, or closed                 |

Invariants:

- One heartbeat is on its way at a time. The outcome of a heartbeat from before the loss of a session counts for
  nothing.
- The member commits only under the lease of a partition that it owns (holdings.py).
- Heartbeats of an idle member come less and less often, up to a third of its session: as long as the group changes
  nothing and no records come. A change or a record brings the group's interval back.
- A heartbeat looks at partitions that sleep, if their safety net ends before the next heartbeat. So an idle member
  sends no fetch.
- A session ends `session_timeout_ms` after the member *sent* the last heartbeat that was answered. So it never ends
  later than the service thinks.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from penstock.group.group_calls import HeartbeatRequest, HeartbeatResponse, HeldLease, Look, MemberSettings, Sleepers
from penstock.group.holdings import Holdings
from penstock.model import TopicPartition
from penstock.retry import NEVER_MS
from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import Subscription
from penstock_core.limits import (
    HEARTBEAT_INTERVAL_MS_DEFAULT,
    HEARTBEATS_PER_SESSION_MIN,
    SDK_HEARTBEAT_GROWTH,
    SDK_LEAVE_MS_MAX,
    SDK_LOOK_AHEAD_MS,
    SDK_SAFETY_NET_MS,
)


class MemberState(Enum):
    """The state of the member; the table above says what it does in each."""

    OUTSIDE = "outside"
    JOINING = "joining"
    JOINED = "joined"
    LEAVING = "leaving"
    ENDED = "ended"


class Reaction(Enum):
    """The consequence of a failed heartbeat."""

    AGAIN = "again"  # try again; nothing is lost while the session lasts
    JOIN = "join"  # the session has ended: everything is lost
    STOP = "stop"  # another process has taken over
    REPORT = "report"  # tell the application, and try again


_REACTIONS: Mapping[ErrorCode, Reaction] = {
    ErrorCode.UNKNOWN_MEMBER: Reaction.JOIN,
    ErrorCode.MEMBER_FENCED: Reaction.STOP,
    ErrorCode.STALE_HEARTBEAT: Reaction.AGAIN,
    ErrorCode.CONCURRENT_UPDATE: Reaction.AGAIN,
}


class Membership:
    """One member. All times are of one monotonic clock. `sleepers` are the partitions that its heartbeats look at."""

    def __init__(self, settings: MemberSettings, sleepers: Sleepers | None = None) -> None:
        self.settings = settings
        self._sleepers = sleepers
        self._held = Holdings()
        self.state = MemberState.OUTSIDE
        self.wake_at_ms = NEVER_MS  # when `next_heartbeat` may have one, if nothing happens before
        self.session_end_ms = NEVER_MS
        self._error: PenstockError | None = None
        self._sequence = 0
        self._epoch = 0
        self._service_session = 0  # the service's count; `_session` is this object's count
        self._session = 0
        self._is_in_flight = False
        self._failures = 0
        self._interval_ms = HEARTBEAT_INTERVAL_MS_DEFAULT
        self._is_young = False
        self._idle_beats = 0  # in a row
        self._session_timeout_ms = 0  # of the last answer
        self._due_ms = NEVER_MS
        self.leave_until_ms = NEVER_MS
        self._is_closing = False
        self._is_polling = False
        self._polled_at_ms = 0

    # Heartbeats.

    def next_heartbeat(self, now_ms: int) -> HeartbeatRequest | None:
        """The heartbeat to send now, or None until something changes or `wake_at_ms` comes."""
        self.wake_at_ms = NEVER_MS
        if self._is_in_flight:
            return None
        self._expire(now_ms)
        if self.state in (MemberState.JOINING, MemberState.JOINED) and now_ms >= self._poll_due_ms():
            self._lose_all()
            self._leave(now_ms)
        if self.state is MemberState.LEAVING and now_ms >= self.leave_until_ms:
            self._left()
        if self.state in (MemberState.OUTSIDE, MemberState.ENDED):
            return None
        if now_ms < self._due_ms:
            self.wake_at_ms = min(self._due_ms, self.session_end_ms, self._poll_due_ms(), self.leave_until_ms)
            return None
        self._is_in_flight = True
        self._sequence += 1
        looks = self._looks(now_ms)
        return HeartbeatRequest(
            body=self._body() | _watched(looks),
            sent_at_ms=now_ms,
            session=self._session,
            claims=self._held.claims,
            looks=looks,
        )

    def complete(
        self, heartbeat: HeartbeatRequest, answer: HeartbeatResponse | PenstockError, now_ms: int, chance: float
    ) -> None:
        """Take the outcome of a heartbeat: `answered` or `failed`."""
        if isinstance(answer, PenstockError):
            self.failed(heartbeat, answer, now_ms, chance)
        else:
            self.answered(heartbeat, answer, now_ms)
            if self._sleepers is not None and answer.armed is not None:
                self._sleepers.looked(heartbeat.looks, answer.armed, now_ms, chance)

    def answered(self, heartbeat: HeartbeatRequest, answer: HeartbeatResponse, now_ms: int) -> None:
        """Take the answer."""
        self._is_in_flight = False
        self._failures = 0
        self._beat_at(now_ms)
        if heartbeat.session != self._session:
            return
        if self.state is MemberState.LEAVING:
            self._left()
            return
        self.state = MemberState.JOINED
        self._epoch = answer.epoch
        self._service_session = answer.service_session
        self._interval_ms = answer.heartbeat_after_ms or self._interval_ms
        self._is_young = answer.is_young
        self._session_timeout_ms = answer.session_timeout_ms
        self.session_end_ms = heartbeat.sent_at_ms + answer.session_timeout_ms
        is_unchanged = answer.is_complete and not (answer.granted or answer.revoked)
        if self._held.obey(heartbeat.claims, answer):
            self._beat_at(now_ms + self._idle_interval_ms(answer))
            self._idle_beats = self._idle_beats + 1 if is_unchanged else 0
        else:
            self._idle_beats = 0

    def failed(self, heartbeat: HeartbeatRequest, error: PenstockError, now_ms: int, chance: float) -> None:
        """Take the failure; `chance` is uniform in [0, 1)."""
        self._is_in_flight = False
        self._beat_at(now_ms + int(error.facts.get("retry_after_ms", 0)))
        if heartbeat.session != self._session:
            return
        reaction = _REACTIONS.get(error.code, Reaction.AGAIN if error.code.is_retriable else Reaction.REPORT)
        if self.state is MemberState.LEAVING and reaction is not Reaction.AGAIN:
            self._left()
        elif reaction is Reaction.JOIN:
            self._lose_all()
            self.state = MemberState.JOINING
        elif reaction is Reaction.STOP:
            self._lose_all()
            self.state = MemberState.ENDED
            self._error = error
        else:
            self._failures += 1
            self._beat_at(self._retry_at_ms(error, now_ms, chance))
            if reaction is Reaction.REPORT:
                self._error = error

    # The application.

    def subscribe(self, subscription: Subscription, now_ms: int) -> None:
        """Take a share of these topics, and of no others. A member of the group tells the group at once."""
        self._held.subscribe(subscription)
        self._beat_at(now_ms)

    def leave(self, now_ms: int) -> None:
        """Give back everything: the application has released all it owned. A poll joins again."""
        self._held.give_back()
        self._lose_all()
        self._go(now_ms, is_leaving=True)

    def poll_began(self, now_ms: int) -> None:
        """The application asks for records: a member outside the group joins."""
        self._is_polling = True
        self._polled_at_ms = now_ms
        self._expire(now_ms)
        if self.state is MemberState.OUTSIDE or (self.state is MemberState.LEAVING and not self._is_closing):
            self.state = MemberState.JOINING
            self._session += 1
            self.leave_until_ms = NEVER_MS
            self._beat_at(now_ms)

    def poll_ended(self, now_ms: int) -> None:
        """The application has its records: from now on `max_poll_interval_ms` runs."""
        self._is_polling = False
        self._polled_at_ms = now_ms
        self.wake_at_ms = min(self.wake_at_ms, self._poll_due_ms())

    def polled(self, now_ms: int) -> None:
        """The application has taken a record that was at hand."""
        self._polled_at_ms = now_ms

    def handed_out(self, now_ms: int) -> None:
        """The application gets records: the member is not idle."""
        if self._idle_beats:
            self._idle_beats = 0
            self._beat_at(min(self._due_ms, now_ms + self._interval_ms))

    def is_changed(self, now_ms: int) -> bool:
        """The application has something to do before it goes on. You may ask without the lock."""
        return self._held.is_changed or self._error is not None or now_ms >= self.session_end_ms

    @property
    def subscription(self) -> Subscription:
        """The topics that the member takes a share of."""
        return self._held.subscription

    @property
    def owned(self) -> Mapping[TopicPartition, HeldLease]:
        """The partitions that the application has, with the leases to commit under."""
        return self._held.owned

    @property
    def is_polling(self) -> bool:
        """The application is in a poll, which carries out by itself what the group says."""
        return self._is_polling

    def take_error(self) -> PenstockError | None:
        """An error to raise, once. The error of a fenced instance comes again and again."""
        error = self._error
        if self.state is not MemberState.ENDED:
            self._error = None
        return error

    def take_lost(self, now_ms: int) -> list[TopicPartition]:
        """Partitions that the member owned and has lost."""
        self._expire(now_ms)
        return self._held.take_lost()

    def to_revoke(self) -> list[TopicPartition]:
        """Partitions to commit and `release`."""
        return self._held.to_revoke()

    def release(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """The application has released these: the member tells the group at once."""
        if self._held.release(partitions):
            self._beat_at(now_ms)

    def take_granted(self) -> dict[TopicPartition, HeldLease]:
        """Partitions that the member owns from now on.

        A partition of an older topic of the same name must be released before.
        """
        return self._held.take_granted()

    def fenced(self, partition: TopicPartition, lease_epoch: int, now_ms: int) -> None:
        """A commit under this lease was refused: the lease is lost."""
        if self._held.fenced(partition, lease_epoch):
            self._beat_at(now_ms)

    def close(self, now_ms: int, *, is_leaving: bool) -> None:
        """No poll comes any more: leave the group, or let it wait for another process of the same instance."""
        self._is_closing = True
        self._session += 1
        self._go(now_ms, is_leaving=is_leaving or self.state is MemberState.LEAVING)

    def _looks(self, now_ms: int) -> Sequence[Look]:
        """The partitions whose safety net ends before the next heartbeat, if this one changes nothing."""
        if self._sleepers is None or self.state is not MemberState.JOINED or not self._held.is_complete:
            return ()
        return self._sleepers.to_look_at(now_ms + self._grown_ms(self._interval_ms) + SDK_LOOK_AHEAD_MS)

    def _body(self) -> dict[str, Any]:
        settings = self.settings
        epoch = 0 if self.state is MemberState.JOINING else self._epoch
        body: dict[str, Any] = {"member_id": settings.member_id, "sequence": self._sequence, "epoch": epoch}
        if settings.instance_id is not None:
            body["instance_id"] = settings.instance_id
        if self.state is MemberState.LEAVING:
            return {**body, "leave": True}
        body["client_id"] = settings.client_id
        if self.state is MemberState.JOINING or not self._held.is_subscription_known:
            subscription = self._held.subscription
            body["subscription"] = {"topics": [*subscription.topics], "patterns": [*subscription.patterns]}
        if self.state is MemberState.JOINING:
            return {**body, "config": dict(settings.config)}
        body["session"] = self._service_session
        if not self._held.is_complete:
            body["owned"] = self._held.by_topic_id()
        return body

    def _expire(self, now_ms: int) -> None:
        if now_ms >= self.session_end_ms:
            self._lose_all()
            self._beat_at(now_ms)  # as the member it was: the service knows whether another took its instance id

    def _lose_all(self) -> None:
        self._held.lose_all()
        self._session += 1
        self.session_end_ms = NEVER_MS

    def _go(self, now_ms: int, *, is_leaving: bool) -> None:
        if (
            is_leaving
            and self._sequence
            and self.state in (MemberState.JOINING, MemberState.JOINED, MemberState.LEAVING)
        ):
            self._leave(now_ms)
        else:
            self._left()
        self._beat_at(now_ms)

    def _leave(self, now_ms: int) -> None:
        self.state = MemberState.LEAVING
        self.session_end_ms = NEVER_MS
        self.leave_until_ms = now_ms + SDK_LEAVE_MS_MAX
        self._beat_at(now_ms)

    def _left(self) -> None:
        self.state = MemberState.ENDED if self._is_closing else MemberState.OUTSIDE
        self.leave_until_ms = NEVER_MS

    def _beat_at(self, due_ms: int) -> None:
        self._due_ms = due_ms
        self.wake_at_ms = due_ms

    def _idle_interval_ms(self, answer: HeartbeatResponse) -> int:
        """The time to the next heartbeat. The service's word counts while the group is changing."""
        after_ms = answer.heartbeat_after_ms
        return self._grown_ms(after_ms) if answer.is_complete else after_ms

    def _grown_ms(self, interval_ms: int) -> int:
        """The interval of an idle member, at most the safety net: the heartbeat then looks in place of a fetch.

        It does not grow for a member of a young group.
        """
        if self._is_young:
            return interval_ms
        grown_ms = interval_ms * SDK_HEARTBEAT_GROWTH ** min(self._idle_beats, 30)
        longest_ms = min(self._session_timeout_ms / HEARTBEATS_PER_SESSION_MIN, SDK_SAFETY_NET_MS)
        return max(interval_ms, int(min(grown_ms, longest_ms)))

    def _poll_due_ms(self) -> int:
        if self._is_polling or self._is_closing:
            return NEVER_MS
        return self._polled_at_ms + self.settings.max_poll_interval_ms

    def _retry_at_ms(self, error: PenstockError, now_ms: int, chance: float) -> int:
        """The Retry-After of the service, and a jitter no longer than the time between two heartbeats."""
        retry = self.settings.retry
        jitter_ms = full_jitter_ms(self._failures - 1, retry.backoff_ms, retry.backoff_max_ms, chance)
        interval_ms = HEARTBEAT_INTERVAL_MS_DEFAULT if self._is_young else self._interval_ms
        return now_ms + int(error.facts.get("retry_after_ms", 0) + min(jitter_ms, interval_ms))


def _watched(looks: Sequence[Look]) -> dict[str, Any]:
    """The fields of a heartbeat that looks at these partitions."""
    if not looks:
        return {}
    return {
        "watched": [{"topic_id": each.topic_id, "partition": each.partition, "offset": each.offset} for each in looks]
    }
