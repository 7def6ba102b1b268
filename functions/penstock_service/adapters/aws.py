"""A function instance on AWS: the place of its data, and the clients that reach it. Functions and Spark jobs use it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock_core.acls.tokens import AclSettings
from penstock_core.ids import ZoneName
from penstock_core.log.inline import NO_ITEMS, InlineBounds, parse_inline_bounds
from penstock_core.log.inline import VARIABLE as INLINE_VARIABLE
from penstock_core.storage.keys import KeyLayout
from penstock_service.adapters.absent import MissingTimerTriggers, NoDeliveryQueue, NoTargets, NoWakeUps
from penstock_service.adapters.appsync import AppSyncWakeUps
from penstock_service.adapters.aws_clock import AwsClock
from penstock_service.adapters.direct.drivers import DirectDrivers
from penstock_service.adapters.direct.places import keys_of, places_of
from penstock_service.adapters.drivers import Drivers
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.table_stores import table_stores
from penstock_service.adapters.s3.archive import S3ArchiveStore
from penstock_service.adapters.s3.segments import S3SegmentStore, is_directory_bucket
from penstock_service.adapters.sqs import NoRepairQueue, SqsRepairQueue
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import SystemClock, SystemEntropy, ThreadExecutor
from penstock_service.adapters.timer_triggers import ByHourSegmentStore
from penstock_service.instance.instance import Instance, Tuning
from penstock_service.ports.push import WakeUps
from penstock_service.ports.runtime import Runtime
from penstock_service.ports.segments import SegmentStore
from penstock_service.stores import Stores

if TYPE_CHECKING:
    from penstock_service.adapters.sqs import DeliveryPlaces
    from penstock_service.adapters.targets.aws_targets import TargetPlaces
    from penstock_service.adapters.timer_triggers import TimerPlaces
    from penstock_service.ports.push import DeliveryQueue, Targets
    from penstock_service.ports.timers import TimerTriggers


_FALLBACK = "fallback"
_BY_HOUR = "by_hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneBucket:
    """The bucket of one zone. Appends put to a fallback zone only where another zone fails.

    `has_keys_by_hour` marks an ordinary bucket that stands in for a directory bucket. A directory bucket has such keys
    by its name.
    """

    name: str
    bucket: str
    is_fallback: bool = False
    has_keys_by_hour: bool = False

    @property
    def layout(self) -> KeyLayout:
        """The layout of the bucket's keys."""
        is_by_hour = self.has_keys_by_hour or is_directory_bucket(self.bucket)
        return KeyLayout.BY_HOUR if is_by_hour else KeyLayout.SPREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The place of a deployment's data. You can pickle it and send it to other processes.

    The order of `zones` gives each zone its bit in a ref. `repair_queue_url` is None where there is one zone.
    `archive` is a bucket. Appends put segments within the bounds of `small` into the log table. `wake_ups` are the
    hosts of the Event API, for HTTP and for WebSockets, None for a stage without wake-ups. Jobs put results into the
    bucket `results`, and register tables in `catalog` (iceberg_table.py), and `registry_secret` names what
    opens their schema registry. Functions need none of these. `timers` start
    deliveries of delayed records, and `deliveries` those of subscriptions; None for a process that starts none.
    `targets` is the role that delivers, None for a process that delivers nothing. botocore's own chain finds the
    region, endpoint and keys that are None. `access_key` and `secret_key` are for the local stack only.
    """

    topics_table: str
    log_table: str
    groups_table: str
    repair_queue_url: str | None
    zones: tuple[ZoneBucket, ...]
    archive: str
    small: InlineBounds = NO_ITEMS
    wake_ups: tuple[str, str] | None = None
    timers: "TimerPlaces | None" = None
    deliveries: "DeliveryPlaces | None" = None
    targets: "TargetPlaces | None" = None
    results: str | None = None
    catalog: str | None = None
    registry_secret: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)


def storage_of_environment(environ: Mapping[str, str] = os.environ) -> Storage:
    """The storage that the environment names.

    Reads `PENSTOCK_TOPICS_TABLE`, `PENSTOCK_LOG_TABLE`, `PENSTOCK_GROUPS_TABLE`, `PENSTOCK_ARCHIVE`, `PENSTOCK_ZONES`
    (`a=<bucket>,b=<bucket>,…`), and with several zones `PENSTOCK_REPAIR_QUEUE_URL`. Raises KeyError for a missing one.
    Also reads `PENSTOCK_WAKE_UPS` (`<host>,<WebSocket's host>`), which a stage without wake-ups lacks, and
    `PENSTOCK_INLINE_BYTES_MAX`, which a stage has that puts small segments into the log table. Few functions
    have `PENSTOCK_TIMERS` (`<URL of the queue>,<name of the rule>,<ARN of the queue>`), `PENSTOCK_DELIVERIES` (`<URL of
    the queue>,<its ARN>,<name of the rule>`) and `PENSTOCK_TARGETS` (`<ARN of the role>`, on the stage `local` with
    private networks behind it).
    """
    zones = parse_zones(environ["PENSTOCK_ZONES"])
    return Storage(
        topics_table=environ["PENSTOCK_TOPICS_TABLE"],
        log_table=environ["PENSTOCK_LOG_TABLE"],
        groups_table=environ["PENSTOCK_GROUPS_TABLE"],
        repair_queue_url=environ["PENSTOCK_REPAIR_QUEUE_URL"] if len(zones) > 1 else None,
        zones=zones,
        archive=environ["PENSTOCK_ARCHIVE"],
        small=parse_inline_bounds(environ.get(INLINE_VARIABLE)),
        wake_ups=parse_wake_ups(environ.get("PENSTOCK_WAKE_UPS")),
        timers=_timers_of(environ.get("PENSTOCK_TIMERS")),
        deliveries=_deliveries_of(environ.get("PENSTOCK_DELIVERIES")),
        targets=_targets_of(environ.get("PENSTOCK_TARGETS")),
    )


def parse_zones(text: str) -> tuple[ZoneBucket, ...]:
    """The zones of `a=<bucket>,b=<bucket>:by_hour,c=<bucket>:fallback`.

    Raises ValueError with the first part that is none.
    """
    zones = []
    for part in text.split(","):
        name, _, place = part.partition("=")
        bucket, *marks = place.split(":")
        if not (name and bucket) or not set(marks) <= {_FALLBACK, _BY_HOUR}:
            raise ValueError(
                f"{part!r} in {text!r} is no zone: give NAME=BUCKET, NAME=BUCKET:{_FALLBACK} or "
                f"NAME=BUCKET:{_BY_HOUR}, with commas"
            )
        zones.append(
            ZoneBucket(name=name, bucket=bucket, is_fallback=_FALLBACK in marks, has_keys_by_hour=_BY_HOUR in marks)
        )
    return tuple(zones)


def format_zones(zones: Sequence[ZoneBucket]) -> str:
    """The inverse of `parse_zones`."""
    return ",".join(
        f"{each.name}={each.bucket}"
        + (f":{_FALLBACK}" if each.is_fallback else "")
        + (f":{_BY_HOUR}" if each.has_keys_by_hour else "")
        for each in zones
    )


def parse_wake_ups(text: str | None) -> tuple[str, str] | None:
    """The two hosts of `<host>,<WebSocket's host>`, None for no text. Raises ValueError for anything else."""
    if not text:
        return None
    host, _, realtime_host = text.partition(",")
    if not (host and realtime_host) or "," in realtime_host:
        raise ValueError(f"{text!r} does not name the hosts of wake-ups: give HOST,REALTIME_HOST")
    return host, realtime_host


MakeDrivers = Callable[[Storage, Runtime, StorageCalls], Drivers]


def botocore_drivers(storage: Storage, runtime: Runtime, calls: StorageCalls) -> Drivers:
    """Clients of botocore, which find region and keys by botocore's own chain."""
    from penstock_service.adapters.botocore_drivers import BotocoreDrivers  # which the functions seldom need

    return BotocoreDrivers(storage, calls, runtime.clock)


def function_drivers(storage: Storage, runtime: Runtime, calls: StorageCalls) -> Drivers:
    """The drivers of a function in Lambda: direct ones, with the region and the keys of its environment.

    botocore's clients where the environment has no keys, or names a region of an isolated partition.
    """
    places, keys = places_of(os.environ), keys_of(os.environ)
    if places is None or keys is None:
        return botocore_drivers(storage, runtime, calls)
    return DirectDrivers(places, keys, runtime, calls, lambda: botocore_drivers(storage, runtime, calls))


def aws_instance(
    storage: Storage,
    calls: StorageCalls,
    acl_settings: AclSettings | None = None,
    tuning: Tuning | None = None,
    make_drivers: MakeDrivers = botocore_drivers,
) -> Instance:
    """A new function instance on `storage`. `calls` counts its calls to DynamoDB and S3. Sends no call.

    Clients are made when they are first needed. `open_zones` makes that of S3.
    """
    # Lambda keeps the clock of a function. botocore's clients tell the time of AWS to that of any other process.
    clock = AwsClock(SystemClock()) if make_drivers is botocore_drivers else SystemClock()
    runtime = Runtime(clock=clock, entropy=SystemEntropy(), executor=ThreadExecutor())
    drivers = make_drivers(storage, runtime, calls)
    s3 = drivers.s3
    dynamodb = DynamoDbClient(drivers.dynamodb, runtime.clock, runtime.entropy)
    stores = Stores(
        **table_stores(dynamodb, storage.topics_table, storage.log_table, storage.groups_table),
        zones=[_zone_store(s3, each) for each in storage.zones],
        fallback_zones=frozenset(ZoneName(each.name) for each in storage.zones if each.is_fallback),
        archive=S3ArchiveStore(s3, storage.archive),
        small=storage.small,
        repair_queue=NoRepairQueue()
        if storage.repair_queue_url is None
        else SqsRepairQueue(lambda: drivers.control("sqs"), storage.repair_queue_url),
        wake_ups=_wake_ups(storage, drivers),
        timer_triggers=_timer_triggers(storage, drivers),
        deliveries=_deliveries(storage, drivers),
        targets=NoTargets() if storage.targets is None else _targets(storage.targets, drivers, runtime),
    )
    return Instance.new(stores, runtime, tuning, acl_settings)


def open_zones(instance: Instance) -> None:
    """Makes the client of S3, and opens the sessions of the zones that are directory buckets, side by side.

    One CreateSession for each of them. Raises nothing: if a session cannot be opened, the first call that needs it
    tries again. For an instance of `aws_instance`.
    """
    zones = [zone.current if isinstance(zone, ByHourSegmentStore) else zone for zone in instance.stores.zones]
    stores = [store for store in zones if isinstance(store, S3SegmentStore)]
    instance.executor.map(S3SegmentStore.open, stores)


def _zone_store(s3: Callable[[], Any], zone: ZoneBucket) -> SegmentStore:
    spread = S3SegmentStore(s3, zone.bucket, zone.name)
    if zone.layout is KeyLayout.SPREAD:
        return spread
    return ByHourSegmentStore(S3SegmentStore(s3, zone.bucket, zone.name, KeyLayout.BY_HOUR), spread)


def _wake_ups(storage: Storage, drivers: Drivers) -> WakeUps:
    if storage.wake_ups is None:
        return NoWakeUps()
    host, realtime_host = storage.wake_ups
    return AppSyncWakeUps(
        host=host,
        realtime_host=realtime_host,
        region=drivers.region,
        keys=drivers.keys,
        endpoint_url=storage.endpoint_url or os.environ.get("AWS_ENDPOINT_URL"),
    )


def _targets(places: "TargetPlaces", drivers: Drivers, runtime: Runtime) -> "Targets":
    from penstock_service.adapters.targets.aws_targets import AwsTargets  # which few functions need

    return AwsTargets(places, drivers.clients_of_role(places.role_arn), runtime)


def _timer_triggers(storage: Storage, drivers: Drivers) -> "TimerTriggers":
    if storage.timers is None:
        return MissingTimerTriggers()
    from penstock_service.adapters.timer_triggers import AwsTimerTriggers

    return AwsTimerTriggers(storage.timers, drivers.control)


def _deliveries(storage: Storage, drivers: Drivers) -> "DeliveryQueue":
    if storage.deliveries is None:
        return NoDeliveryQueue()
    from penstock_service.adapters.sqs import SqsDeliveryQueue

    return SqsDeliveryQueue(storage.deliveries, drivers.control)


# Few functions have these variables, so only those load the modules that read them.


def _timers_of(text: str | None) -> "TimerPlaces | None":
    if not text:
        return None
    from penstock_service.adapters.timer_triggers import parse_timer_places

    return parse_timer_places(text)


def _deliveries_of(text: str | None) -> "DeliveryPlaces | None":
    if not text:
        return None
    from penstock_service.adapters.sqs import parse_delivery_places

    return parse_delivery_places(text)


def _targets_of(text: str | None) -> "TargetPlaces | None":
    if not text:
        return None
    from penstock_service.adapters.targets.aws_targets import parse_target_places

    return parse_target_places(text)
