"""One function instance: the stores that all instances share, and its own memory, which it may lose at any time.

`Instance.new` is the only constructor of a fresh instance. Tests and the simulator use it too, so a "new instance"
forgets the same things everywhere as a new Lambda function instance does.
"""

from dataclasses import dataclass, field

from penstock_core.acls.settings import AclSettings
from penstock_core.limits import PUT_TIMEOUT_MS
from penstock_core.quotas.wait_pool import WaitPool
from penstock_service.instance.acl_cache import AclCache
from penstock_service.instance.group_cache import GroupCache
from penstock_service.instance.held_segments import HeldSegments
from penstock_service.instance.proven_callers import ProvenCallers
from penstock_service.instance.quota_cache import QuotaCache
from penstock_service.instance.quota_shares import QuotaShares
from penstock_service.instance.repair_throttle import RepairThrottle
from penstock_service.instance.share_group_cache import ShareGroupCache
from penstock_service.instance.telemetry import Telemetry
from penstock_service.instance.timer_memory import TimerMemory
from penstock_service.instance.topic_cache import TopicCache
from penstock_service.instance.traffic import Traffic
from penstock_service.instance.zone_cache import ZoneCache
from penstock_service.instance.zone_health import ZoneHealth
from penstock_service.instance.zone_latency import HEDGE_FLOOR_MS, ZoneLatency
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
    quota_cache: QuotaCache
    quota_shares: QuotaShares
    tuning: Tuning = field(default_factory=Tuning)
    telemetry: Telemetry = field(default_factory=Telemetry)
    held_segments: HeldSegments = field(default_factory=HeldSegments)
    timer_memory: TimerMemory = field(default_factory=TimerMemory)
    traffic: Traffic = field(default_factory=Traffic)
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
            quota_cache=QuotaCache(stores.quotas, runtime.clock, telemetry),
            quota_shares=QuotaShares(runtime.clock),
            telemetry=telemetry,
            tuning=tuning or Tuning(),
        )

    @property
    def runtime(self) -> Runtime:
        """The clock, entropy and executor that this instance runs on."""
        return Runtime(clock=self.clock, entropy=self.entropy, executor=self.executor)
