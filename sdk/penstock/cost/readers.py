"""The counts of a month by part of the work, for each kind of reader: groups, share groups, subscriptions, mirrors.

Three times are assumed of a subscription or mirror. The stream and the queue take a while to start a delivery, the
target answers soon, and a delivery takes along what comes meanwhile.
"""

import math
from dataclasses import dataclass, replace

from penstock.cost.counted import Counted, Counts, add, function_ms, times
from penstock.cost.reading import Reads, reads_per_s
from penstock.cost.working import acquires_per_s
from penstock.cost.workload import SECONDS_PER_MONTH, Workload
from penstock_core.limits import (
    BATCH_BYTES_MAX,
    EXPIRING_RETENTION_MS_MAX,
    HEARTBEAT_INTERVAL_MS_DEFAULT,
    HEARTBEATS_PER_SESSION_MIN,
    MIB,
    MIRROR_LANES,
    MIRROR_LIVELY_MS,
    MIRROR_OFFSETS_GROUP_MS,
    MIRROR_OFFSETS_MS,
    MIRROR_OFFSETS_REST_MS,
    MIRROR_PUSH_BYTES,
    MIRROR_PUSH_REFS,
    MIRROR_REST_MS,
    MIRROR_REST_PARTITIONS,
    SDK_HEARTBEAT_GROWTH,
    SESSION_TIMEOUT_MS_DEFAULT,
    YOUNG_GROUP_MEMBERS_MAX,
    YOUNG_GROUP_MS,
    YOUNG_HEARTBEAT_MS,
)

Parts = dict[str, Counts]

COMMIT_S = 5.0  # between two commits of a consumer's offsets
TARGET_MS = 50.0  # of a subscription's target, assumed
DELIVERY_MS = 250.0  # from an append to the end of its delivery, assumed: stream, queue, function and target
MIRROR_MS = 150.0  # of a push to a stage of another region, assumed: its function, and the way
MIRROR_DELIVERY_MS = 350.0  # as DELIVERY_MS, for a push to a mirror
DELIVER_GB = 0.5  # the memory of the function `deliver`
_POLLS_PER_S = 5 / 20  # Lambda's receives on the queue of deliveries: five long polls of 20 s
_ROUNDS = 50  # after which the time of a round has settled
_ASKED_MAX = 100  # partitions of a request
_DAY_MS = 86_400_000


def becomes_items(counts: Counted, workload: Workload) -> bool:
    """True if the stage puts the workload's requests into DynamoDB, for its TTL to remove."""
    is_short = workload.retention_days * _DAY_MS <= EXPIRING_RETENTION_MS_MAX
    fits = counts.fits_item(workload.bytes_per_request, workload.partitions_per_request)
    return workload.has_items and is_short and fits


def month_of_groups(counts: Counted, workload: Workload) -> Parts:
    """The fetches, wake-ups, commits and heartbeats of all members."""
    members, groups = workload.all_members, workload.all_groups
    idle = times(
        add(times(counts.idle_member_hour(), groups), times(counts.idle_hour_of_another(), members - groups)),
        workload.worked_s / 3_600,
    )
    new = _new_groups(counts, workload)
    reads = reads_per_s(workload).times(workload.topics)
    if not reads.found:
        return {"idle": idle, **new}
    live_s = workload.live_s
    parts = {
        "consume": times(_found(counts, workload, reads), reads.found * live_s),
        "look for records": times(counts.empty_fetch(_mean(reads.asked_empty, reads.empty)), reads.empty * live_s),
        "wait": times(_arming(counts, reads), reads.arming * live_s),
        "idle": idle,
        **new,
    }
    published = reads.messages / workload.groups * live_s
    parts["wait"]["APPSYNC_OPERATIONS"] = published * (1 + workload.groups + workload.share_workers / workload.topics)
    late = workload.bytes_per_month * (1 - live_s / workload.busy_s) * workload.groups
    if late:  # it lies there when the members begin, and is read by fetches that are full
        full = _fetch(counts, workload, BATCH_BYTES_MAX, max(1.0, BATCH_BYTES_MAX / workload.bytes_per_request), 1.0)
        parts["consume"] = add(parts["consume"], times(full, late / BATCH_BYTES_MAX))
    readers = min(members, workload.all_groups * workload.partitions)
    gets_per_s = reads.segments / readers
    parts["commit"] = times(_commits(counts, workload, gets_per_s, readers), readers * live_s)
    more = max(0.0, beats_per_s(gets_per_s) - beats_per_s(0.0))
    beats = add(times(counts.heartbeat(), groups), times(counts.heartbeat_of_another(), readers - groups))
    parts["heartbeat"] = times(beats, more * live_s)
    return parts


def month_of_share_groups(counts: Counted, workload: Workload) -> Parts:
    """The acquires and wake-ups of all share workers. An acquire accepts the records of the one before."""
    workers = workload.share_workers
    if not workers:
        return {}
    parts = {"idle": times(counts.idle_worker_hour(), workload.worked_s / 3_600 * workers)}
    acquires = acquires_per_s(workload)
    if not acquires.found:
        return parts
    asked, all_s = min(workload.partitions, _ASKED_MAX), workload.live_s * workload.topics
    segments = max(1.0, acquires.segments / acquires.found)
    size = workload.bytes_per_s / workload.topics / acquires.found
    parts["acquire"] = times(counts.acquire(size, segments), acquires.found * all_s)
    parts["look for records"] = times(counts.empty_acquire(asked), acquires.empty * all_s)
    armed = _mean(acquires.armed, acquires.arming, 0.0)
    parts["wait"] = times(counts.arming_acquire(asked, armed), acquires.arming * all_s)
    delivered = 1 + workload.groups + workers / workload.topics
    parts["wait"]["APPSYNC_OPERATIONS"] = acquires.messages * delivered * all_s
    late = workload.bytes_per_month * (1 - workload.live_s / workload.busy_s)
    if late:
        full = max(1.0, BATCH_BYTES_MAX / workload.bytes_per_request)
        parts["acquire"] = add(parts["acquire"], times(counts.acquire(BATCH_BYTES_MAX, full), late / BATCH_BYTES_MAX))
    return parts


def month_of_subscriptions(counts: Counted, workload: Workload) -> Parts:
    """The deliveries of all subscriptions, without the calls that the targets cost, and the polls of their queue."""
    if not workload.subscriptions:
        return {}
    parts: Parts = {"idle": {"SQS_REQUESTS": _POLLS_PER_S * SECONDS_PER_MONTH}}
    places = workload.topics * workload.partitions
    gets_per_s = workload.requests_per_s * workload.partitions_per_request / places
    if gets_per_s:
        per_s = gets_per_s / (1 + gets_per_s * DELIVERY_MS / 1_000)
        size = workload.bytes_per_s / places / per_s
        one = counts.delivery(size, gets_per_s / per_s)
        one = add(one, {"LAMBDA_GB_SECONDS": TARGET_MS / 1_000 * DELIVER_GB})
        parts["push"] = times(one, per_s * places * workload.subscriptions * workload.busy_s)
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPushes:
    """The pushes of all partitions to one mirror. `workload` is what the other stage gets: each push is a request.

    A lane has `lane_partitions`. `rounds_per_s` are the deliveries of lanes that rest between two. It is 0 if none
    rests: then each push has a delivery of its own.
    """

    per_s: float
    rounds_per_s: float
    lane_partitions: float
    segments: float
    workload: Workload

    @classmethod
    def of(cls, workload: Workload) -> "MirrorPushes":
        """The pushes of a workload that has records: each takes along what came during the one before."""
        places = workload.topics * workload.partitions
        lanes = min(MIRROR_LANES, places)
        of_lane = places / lanes
        gets_per_s = workload.requests_per_s * workload.partitions_per_request / places
        per_s, rounds_per_s = gets_per_s / (1 + gets_per_s * MIRROR_DELIVERY_MS / 1_000), 0.0
        if of_lane >= MIRROR_REST_PARTITIONS and gets_per_s * of_lane * MIRROR_LIVELY_MS >= 1_000:
            round_s = _round_s(gets_per_s, of_lane)
            per_s, rounds_per_s = -math.expm1(-gets_per_s * round_s) / round_s, lanes / round_s
        per_s = max(per_s, gets_per_s / MIRROR_PUSH_REFS, workload.bytes_per_s / places / MIRROR_PUSH_BYTES)
        pushed = replace(
            workload,
            request_bytes=max(1, min(MIRROR_PUSH_BYTES, round(workload.bytes_per_s / places / per_s))),
            topics=1,
            partitions=1,
            members=None,
            share_workers=0,
        )
        return cls(
            per_s=per_s * places,
            rounds_per_s=rounds_per_s,
            lane_partitions=of_lane,
            segments=max(1.0, gets_per_s / per_s),
            workload=pushed,
        )


def _round_s(gets_per_s: float, partitions: float) -> float:
    """The seconds from one delivery of a lane to the next one: its rest, and a push of each partition with records."""
    found_s = 0.0
    for _ in range(_ROUNDS):
        pushes = -math.expm1(-gets_per_s * found_s) * partitions
        found_s = (MIRROR_REST_MS + MIRROR_MS * pushes) / 1_000
    return found_s


def month_of_mirrors(counts: Counted, workload: Workload) -> Parts:
    """The pushes to all mirrors, the appends there, and the tellings of the offsets of groups."""
    if not workload.mirrors:
        return {}
    parts: Parts = {"idle": {"SQS_REQUESTS": _POLLS_PER_S * SECONDS_PER_MONTH}}
    if not workload.records_per_s:
        return parts
    pushes, all_s = MirrorPushes.of(workload), workload.mirrors * workload.busy_s
    size = pushes.workload.bytes_per_request
    push = counts.mirror_push(size, pushes.segments, of_items=becomes_items(counts, workload))
    waited = {"LAMBDA_GB_SECONDS": (MIRROR_MS + function_ms()[1] * size / MIB) / 1_000 * DELIVER_GB}
    append = counts.mirror_append(size, pushes.segments, is_item=becomes_items(counts, pushes.workload))
    if pushes.rounds_per_s:
        of_round = pushes.per_s / pushes.rounds_per_s
        pushed = times(counts.mirror_round(of_round, pushes.lane_partitions, push), pushes.rounds_per_s * all_s)
    else:
        others = times(counts.mirrored_partition(), pushes.lane_partitions - 1)
        pushed = times(add(push, others), pushes.per_s * all_s)
    parts["mirror: push"] = add(pushed, times(waited, pushes.per_s * all_s))
    parts["mirror: append"] = times(append, pushes.per_s * all_s)
    if workload.groups:
        of_first_partition = pushes.per_s / workload.topics / workload.partitions
        pause_s = (MIRROR_OFFSETS_MS + MIRROR_OFFSETS_GROUP_MS * workload.all_groups) / 1_000
        rest_s = pause_s + MIRROR_OFFSETS_REST_MS / 1_000
        per_s = max(1 / rest_s, min(of_first_partition, 1 / pause_s))
        parts["mirror: tell offsets"] = times(counts.mirror_telling(), per_s * workload.topics * all_s)
    return parts


def _new_groups(counts: Counted, workload: Workload) -> Parts:
    """The heartbeats of young groups. A larger group than `YOUNG_GROUP_MEMBERS_MAX` is never one."""
    members = max(1.0, workload.all_members / max(1, workload.all_groups))
    if not workload.new_groups or members > YOUNG_GROUP_MEMBERS_MAX:
        return {}
    beats = YOUNG_GROUP_MS / YOUNG_HEARTBEAT_MS
    return {"new groups": times(counts.heartbeat(), workload.new_groups * members * beats)}


def beats_per_s(gets_per_s: float) -> float:
    """The heartbeats of a member that gets records so often: they come less and less often while it gets none."""
    longest_s = SESSION_TIMEOUT_MS_DEFAULT / HEARTBEATS_PER_SESSION_MIN / 1_000
    if not gets_per_s:
        return 1 / longest_s
    beats, passed_s, interval_s = 0, 0.0, HEARTBEAT_INTERVAL_MS_DEFAULT / 1_000
    while passed_s + interval_s <= 1 / gets_per_s and interval_s < longest_s:
        beats, passed_s = beats + 1, passed_s + interval_s
        interval_s = min(longest_s, interval_s * SDK_HEARTBEAT_GROWTH)
    return (beats + (1 / gets_per_s - passed_s) / interval_s) * gets_per_s


def _found(counts: Counted, workload: Workload, reads: Reads) -> Counts:
    size = workload.bytes_per_s * workload.groups / reads.found
    segments = max(1.0, reads.segments / reads.found)
    return _fetch(counts, workload, size, segments, _mean(reads.asked_found, reads.found))


def _fetch(counts: Counted, workload: Workload, size: float, segments: float, partitions: float) -> Counts:
    if becomes_items(counts, workload):
        return counts.fetch_of_items(size, segments, partitions)
    return counts.fetch(size, segments, partitions)


def _arming(counts: Counted, reads: Reads) -> Counts:
    asked, armed = _mean(reads.asked_arming, reads.arming), _mean(reads.armed, reads.arming)
    return {name: count for name, count in counts.arming_fetch(asked, armed).items() if name != "WAKE_UPS"}


def _commits(counts: Counted, workload: Workload, gets_per_s: float, readers: int) -> Counts:
    """The commits of one member a second: each `COMMIT_S`, of the partitions that got records since."""
    own = workload.all_groups * workload.partitions / readers
    touched = gets_per_s * COMMIT_S
    happens = 1 - math.exp(-touched)
    partitions = own * (1 - math.exp(-touched / own)) / happens
    return times(counts.commit(max(1.0, partitions)), happens / COMMIT_S)


def _mean(total: float, count: float, least: float = 1.0) -> float:
    return max(least, total / count) if count else least
