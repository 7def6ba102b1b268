"""One function instance: the stores that all instances share, and its own memory, which it may lose at any time.

`Instance.new` is the only constructor of a fresh instance. Tests and the simulator use it too, so a "new instance"
forgets the same things everywhere as a new Lambda function instance does.

What one function instance remembers of the timers that it has put: room in their minutes, and messages sent.

All of it may be lost: the instance then reserves again, and sends a message again. A memory is safe however old it is.
No timer is put in a minute that has left the index (`timer.is_minute_over`), and a message counts only while it is
still on its way (docs/adr/0039).

The traffic of topics that an instance has counted since it last published it.

`penstock_handlers.edge.lambda_function` takes it once a minute, and publishes it. Where a stage has no metrics of
topics, nothing is counted.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import (
    INSTANCE_READS_BYTES_MAX,
    INSTANCE_READS_MS,
    INSTANCE_TIMER_MINUTES_MAX,
    INSTANCE_TIMER_SECONDS_MAX,
    INSTANCE_TRAFFIC_TOPICS_MAX,
    PUT_TIMEOUT_MS,
    REPORT_INTERVAL_MS,
    REPORTS_REMEMBERED_MAX,
    TIMERS_RESERVED,
)
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.log.timer import DueMinute, DueSecond
from penstock_core.metrics.lag_memory import NO_TRAFFIC, OTHER, TopicTraffic
from penstock_core.outcomes import Outcome
from penstock_core.quotas.bucket import WaitPool
from penstock_service.instance.caches import AclCache, GroupCache, ShareGroupCache, TenantCache, TopicCache
from penstock_service.instance.held_segments import HeldSegments
from penstock_service.instance.proven_callers import ProvenCallers
from penstock_service.instance.quota_shares import QuotaCache, QuotaShares, StoredBytes
from penstock_service.instance.telemetry import Telemetry
from penstock_service.instance.update_window import Moment
from penstock_service.instance.zones import HEDGE_FLOOR_MS, ZoneCache, ZoneHealth, ZoneLatency
from penstock_service.ports.runtime import Clock, Entropy, Executor, Runtime
from penstock_service.stores import Stores

STRAGGLER_GRACE_MS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The times that an instance waits, for zones in milliseconds.

    `straggler_grace_ms`: once an append has its acks, it waits this long for the remaining zones to confirm too. A zone
    that misses the quorum by a moment is then not marked as under-replicated. `put_timeout_ms`: a put that has not
    answered by then has failed for its request. `hedge_floor_ms`: a read asks the next zone too when a zone takes
    longer than usual, and at least this long. `wait_pool`: requests that wait for records take the time from it; None
    lets all of them wait.
    """

    straggler_grace_ms: int = STRAGGLER_GRACE_MS
    put_timeout_ms: float = PUT_TIMEOUT_MS
    hedge_floor_ms: float = HEDGE_FLOOR_MS
    wait_pool: WaitPool | None = None


class RepairThrottle:
    """The reports of one function instance. Safe for use by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reported: dict[tuple[SegmentId, ZoneName], Moment] = {}

    def take(self, segment_id: SegmentId, zone: ZoneName) -> bool:
        """True if the caller is to report the copy now. Then it is False for `REPORT_INTERVAL_MS`.

        False, too, while `REPORTS_REMEMBERED_MAX` other copies were reported lately: a zone that lost that many is a
        matter for the scrub.
        """
        with self._lock:
            if (reported := self._reported.get((segment_id, zone))) is not None and self._is_recent(reported):
                return False
            if len(self._reported) >= REPORTS_REMEMBERED_MAX:
                self._reported = {copy: at for copy, at in self._reported.items() if self._is_recent(at)}
            if len(self._reported) >= REPORTS_REMEMBERED_MAX:
                return False
            self._reported[segment_id, zone] = Moment.now(self._clock)
            return True

    def _is_recent(self, reported: Moment) -> bool:
        return reported.age_ms(self._clock) < REPORT_INTERVAL_MS


class RecentReads:
    """The batches that this function instance has read last, by the ref that names them. Safe for several threads.

    Readers of the same records come to one instance one after the other, and segments never change. So the next fetch
    needs no get. The index still decides what may be read: a fetch reads the head first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[Ref, tuple[Moment, memoryview]] = OrderedDict()
        self._bytes = 0

    def find(self, refs: Iterable[LocatedRef]) -> dict[LocatedRef, memoryview]:
        """The batches of those refs that were read within `INSTANCE_READS_MS`."""
        if not self._kept:
            return {}
        with self._lock:
            while self._kept and next(iter(self._kept.values()))[0].age_ms(self._clock) >= INSTANCE_READS_MS:
                self._drop_oldest()
            return {each: self._kept[each.ref][1] for each in refs if each.ref in self._kept}

    def keep(self, contents: Mapping[LocatedRef, Outcome[memoryview]]) -> None:
        """Keeps what was read just now, within `INSTANCE_READS_BYTES_MAX`."""
        now = Moment.now(self._clock)
        with self._lock:
            for located, content in contents.items():
                if not isinstance(content, PenstockError) and located.ref not in self._kept:
                    self._kept[located.ref] = now, content
                    self._bytes += memoryview(content.obj).nbytes  # a part of a range holds all of it
            while self._bytes > INSTANCE_READS_BYTES_MAX:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (_, content) = self._kept.popitem(last=False)
        self._bytes -= memoryview(content.obj).nbytes


class TimerMemory:
    """The memory of one function instance. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._room: dict[DueMinute, int] = {}
        self._sent: set[DueSecond] = set()
        self.has_switched_on = False

    def take_room(self, minute: DueMinute) -> int:
        """Takes room for one timer. Gives 0, or the room that the caller must reserve first, and then add."""
        with self._lock:
            room = self._room.get(minute)
            if room:
                self._room[minute] = room - 1
                return 0
        return 1 if room is None else TIMERS_RESERVED

    def add_room(self, minute: DueMinute, count: int) -> None:
        """Notes that so much more room was reserved."""
        with self._lock:
            if len(self._room) >= INSTANCE_TIMER_MINUTES_MAX:
                self._room.clear()
            self._room[minute] = self._room.get(minute, 0) + count

    def has_sent(self, second: DueSecond) -> bool:
        """True if this instance has sent the message for that second."""
        with self._lock:
            return second in self._sent

    def note_sent(self, second: DueSecond) -> None:
        """Notes that the message for that second was sent."""
        with self._lock:
            if len(self._sent) >= INSTANCE_TIMER_SECONDS_MAX:
                self._sent.clear()
            self._sent.add(second)


@dataclass(slots=True)
class Traffic:
    """The traffic by topic. Safe for use by several threads. Nothing is counted unless `is_on`."""

    is_on: bool = False
    _counts: dict[str, TopicTraffic] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, topic: str, traffic: TopicTraffic) -> None:
        """Counts the traffic. Beyond `INSTANCE_TRAFFIC_TOPICS_MAX` topics it counts for `OTHER`."""
        if not self.is_on:
            return
        with self._lock:
            is_known = topic in self._counts or len(self._counts) < INSTANCE_TRAFFIC_TOPICS_MAX
            name = topic if is_known else OTHER
            self._counts[name] = self._counts.get(name, NO_TRAFFIC).plus(traffic)

    def add_error(self, topic: str, outcome: Outcome[object]) -> None:
        """Counts the outcome if it is an error. A topic that may not exist counts for `OTHER`."""
        if not self.is_on or not isinstance(outcome, PenstockError):
            return
        category = outcome.code.category
        may_be_unknown = category in (Category.NOT_FOUND, Category.DENIED) or outcome.code is ErrorCode.INVALID_NAME
        counts = TopicTraffic(requests_failed=1, requests_throttled=int(category is Category.THROTTLED))
        self.add(OTHER if may_be_unknown else topic, counts)

    def take(self) -> dict[str, TopicTraffic]:
        """The traffic by topic since the last call."""
        with self._lock:
            taken, self._counts = self._counts, {}
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Each use case gets one: the shared stores, the runtime, the tuning, and the memory of this function instance.

    `proven_callers` is None where the stage takes no direct calls.
    """

    stores: Stores
    clock: Clock
    entropy: Entropy
    executor: Executor
    topic_cache: TopicCache
    group_cache: GroupCache
    share_group_cache: ShareGroupCache
    acl_cache: AclCache
    zone_cache: ZoneCache
    zone_latency: ZoneLatency
    zone_health: ZoneHealth
    repair_throttle: RepairThrottle
    recent_reads: RecentReads
    quota_cache: QuotaCache
    quota_shares: QuotaShares
    stored_bytes: StoredBytes
    tuning: Tuning = field(default_factory=Tuning)
    telemetry: Telemetry = field(default_factory=Telemetry)
    held_segments: HeldSegments = field(default_factory=HeldSegments)
    timer_memory: TimerMemory = field(default_factory=TimerMemory)
    traffic: Traffic = field(default_factory=Traffic)
    tenant_cache: TenantCache = field(default_factory=TenantCache)
    proven_callers: ProvenCallers | None = None

    @classmethod
    def new(
        cls, stores: Stores, runtime: Runtime, tuning: Tuning | None = None, acl_settings: AclSettings | None = None
    ) -> "Instance":
        """An instance that remembers nothing yet. Calls no store. Without `acl_settings`, what no rule denies goes."""
        telemetry = Telemetry()
        return cls(
            stores=stores,
            clock=runtime.clock,
            entropy=runtime.entropy,
            executor=runtime.executor,
            topic_cache=TopicCache(stores.topics, runtime.clock),
            group_cache=GroupCache(stores.memberships),
            share_group_cache=ShareGroupCache(stores.share, runtime.clock),
            acl_cache=AclCache(stores.acls, runtime.clock, acl_settings or AclSettings()),
            zone_cache=ZoneCache(stores.zone_states, runtime.clock, has_states=len(stores.zones) > 1),
            zone_latency=ZoneLatency(runtime.clock),
            zone_health=ZoneHealth(runtime.clock),
            repair_throttle=RepairThrottle(runtime.clock),
            recent_reads=RecentReads(runtime.clock),
            quota_cache=QuotaCache(stores.quotas, runtime.clock, telemetry),
            quota_shares=QuotaShares(runtime.clock),
            stored_bytes=StoredBytes(runtime.clock),
            telemetry=telemetry,
            tuning=tuning or Tuning(),
        )

    @property
    def runtime(self) -> Runtime:
        """The clock, entropy and executor that this instance runs on."""
        return Runtime(clock=self.clock, entropy=self.entropy, executor=self.executor)
