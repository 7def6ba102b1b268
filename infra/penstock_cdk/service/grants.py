"""The permissions that each Lambda function needs, as a table.

A function may do exactly the actions that `GRANTS` names for its handlers and tasks, on resources named one by one.
TransactWriteItems and TransactGetItems need no permission of their own, only those of the writes and reads in them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

from penstock_cdk.service.measuring import MEASURE
from penstock_cdk.service.push import DELIVER, DISPATCH, LOOK
from penstock_cdk.service.repair import REPLICATE
from penstock_cdk.service.tasks import tasks_of
from penstock_cdk.service.timers import PROMOTE
from penstock_cdk.settings import StageSettings
from penstock_core.routes import ROUTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The permissions of a function, or of one of its handlers or tasks.

    `topics`, `log` and `groups` are DynamoDB actions on those tables, without the prefix `dynamodb:`. `shares` are
    actions on the items of share groups, which the groups table has, too. `reads_zones` and `writes_zones` cover the
    segments in the zones, `reads_archive` those in the archive. `sweeps_zones` allows to list and delete segments in
    zones and archive, and to delete inline ones. With `tells_missing_objects`, S3 answers that an object is missing;
    without it, S3 answers that access is denied. `changes_zone_states`, `keeps_cursor`, `changes_acls` and
    `settles_deletions` allow writes of those items of the topics table. `takes_repairs` covers the repair queue and
    the log table's stream. `writes_archive` allows to upload segments to the archive. `arms_waiters` allows to set
    the waiter of a head, `announces_readers` to count its readers, and `wakes_readers` to publish wake-ups.
    `schedules_records` allows to put delayed records into the archive, and to start their deliveries, `switches_timers`
    to enable the rule for them, and `promotes` to take their messages. `dispatches` covers the log table's stream, the
    notes of subscriptions, and messages that start deliveries. `starts_deliveries` allows to send such messages, and
    all that `switches_deliveries` does: to switch on what takes them and what looks after them. `delivers` allows to
    take them. `pushes` are actions on the items of subscriptions, which the groups table has, too, and
    `counts_subscriptions` allows to count these alone. `reaches_targets` allows to assume the role that calls the
    targets of subscriptions. `notes_changes` allows to note what a request changes, and `settles_audit` to read these
    notes. `spends_quotas` allows to read the quotas and to charge their buckets, `sets_quotas` to list, put and delete
    quotas. `ends_changes` allows to open partitions that an unfinished change has left closed, and to take drained ones
    away. `keeps_items` allows to remove the note of a raised retention. `claims_resources` allows to read the quotas,
    and to read, put and delete the claims of principals, `keeps_claims` to put and delete them only. `schedules` are
    actions on the schedules. `starts_schedules` allows to switch on what runs them, and to start a run. `dates_index`
    allows to note when a stage got its first topic, which is among the cursors.
    """

    topics: tuple[str, ...]
    log: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    reads_zones: bool = False
    reads_archive: bool = False
    writes_zones: bool = False
    tells_missing_objects: bool = False
    changes_zone_states: bool = False
    changes_acls: bool = False
    sends_repairs: bool = False
    takes_repairs: bool = False
    keeps_cursor: bool = False
    settles_deletions: bool = False
    ends_changes: bool = False
    keeps_items: bool = False
    sweeps_zones: bool = False
    writes_archive: bool = False
    arms_waiters: bool = False
    announces_readers: bool = False
    wakes_readers: bool = False
    schedules_records: bool = False
    switches_timers: bool = False
    promotes: bool = False
    dispatches: bool = False
    starts_deliveries: bool = False
    switches_deliveries: bool = False
    delivers: bool = False
    pushes: tuple[str, ...] = ()
    counts_subscriptions: bool = False
    reaches_targets: bool = False
    notes_changes: bool = False
    settles_audit: bool = False
    spends_quotas: bool = False
    sets_quotas: bool = False
    claims_resources: bool = False
    keeps_claims: bool = False
    dates_index: bool = False
    schedules: tuple[str, ...] = ()
    starts_schedules: bool = False


# Delayed segments go into the archive. Their timers are put, and read if their due time is past.
# An append is an UpdateItem of the head. A roll puts a page. A producer that leaves the head gets an item of its own
# by PutItem, and an UpdateItem of the head removes its entry. A refusal by a closed partition ends the change of the
# topic's partitions that an operator who died has left (docs/protocol/partitions). A quota of stored bytes reads the
# heads of a topic.
_RECORDS_PRODUCE = Grants(
    ends_changes=True,
    topics=("GetItem",),
    log=("GetItem", "BatchGetItem", "UpdateItem", "PutItem"),
    writes_zones=True,
    changes_zone_states=True,
    wakes_readers=True,
    schedules_records=True,
    spends_quotas=True,
)
# A repeated append reads the page that holds the first one, and the item of a producer that has left the head.
_PRODUCE = replace(_RECORDS_PRODUCE, log=("Query", *_RECORDS_PRODUCE.log))
_FETCH = Grants(
    topics=("GetItem",),
    log=("GetItem", "BatchGetItem", "Query"),
    reads_zones=True,
    reads_archive=True,
    tells_missing_objects=True,
    sends_repairs=True,
    spends_quotas=True,
)

GRANTS: Mapping[str, Grants] = {
    # A batch is a repeat only if its bytes are those of the first: the function may have to read them
    # (docs/protocol/log). `tier` may have moved them to the archive, without a change of their ref's sequence
    # (docs/adr/0030).
    "produce": replace(_PRODUCE, reads_zones=True, reads_archive=True, tells_missing_objects=True, sends_repairs=True),
    # A commit updates heads and leases in one transaction. After a refusal, the function reads them to name the cause.
    # It takes a lease from a member that is gone, and ends that member's session. It accepts records of share groups.
    "transactions": replace(
        _PRODUCE,
        groups=("GetItem", "BatchGetItem", "Query", "UpdateItem", "DeleteItem"),
        shares=("GetItem", "BatchGetItem", "UpdateItem"),
        claims_resources=True,
    ),
    "records_produce": _RECORDS_PRODUCE,
    "fetch": replace(_FETCH, arms_waiters=True),
    "records_fetch": _FETCH,
    "topics": Grants(
        topics=("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan"),
        settles_deletions=True,
        dates_index=True,
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        claims_resources=True,
        notes_changes=True,
        reads_zones=True,
        reads_archive=True,
        tells_missing_objects=True,
        sends_repairs=True,
    ),
    # Any heartbeat may end sessions and make a new target. It matches patterns with all topics, so it scans them. A
    # commit without a lease reads heads, because no offset beyond the log may be committed. So does a heartbeat that
    # looks at partitions for a member that sleeps: it arms nothing (docs/protocol/wake-ups).
    "groups": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem"),
        announces_readers=True,
        groups=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        claims_resources=True,
    ),
    # A change of assignor makes a new target. A reset to a time reads segments, as listing offsets does.
    "group_admin": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query"),
        announces_readers=True,
        groups=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        claims_resources=True,
        notes_changes=True,
        reads_zones=True,
        reads_archive=True,
        tells_missing_objects=True,
        sends_repairs=True,
    ),
    # An acquire makes the state of a partition on condition that the group is there. A transaction moves dead letters
    # to their topic: it is an append there.
    "share": replace(
        _FETCH,
        ends_changes=True,
        log=(*_FETCH.log, "UpdateItem", "PutItem"),
        shares=("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "ConditionCheckItem"),
        writes_zones=True,
        changes_zone_states=True,
        wakes_readers=True,
    ),
    # A redrive is an append to the topics where dead letters go back. The release updates an item of the log table.
    "redrive": replace(
        _FETCH,
        ends_changes=True,
        spends_quotas=False,
        log=(*_FETCH.log, "UpdateItem", "PutItem"),
        notes_changes=True,
        writes_zones=True,
        changes_zone_states=True,
        wakes_readers=True,
    ),
    # A push is an append to a head, and makes or alters its topic. A promotion updates heads, a resync deletes them. A
    # move updates heads, too, and reads how far its subscription is. A push may bring delayed records.
    "mirrors": Grants(
        topics=("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan"),
        settles_deletions=True,
        dates_index=True,
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        notes_changes=True,
        writes_zones=True,
        changes_zone_states=True,
        wakes_readers=True,
        schedules_records=True,
        pushes=("GetItem", "Query"),
    ),
    # "latest" is a place in the log when the group is made. A reset to a time reads segments, as listing offsets does.
    "share_admin": replace(
        _FETCH,
        announces_readers=True,
        notes_changes=True,
        spends_quotas=False,
        claims_resources=True,
        shares=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
        wakes_readers=True,
    ),
    # "latest" is a place in the log when the subscription is made. The age of records follows from their refs.
    "subscriptions": Grants(
        topics=("GetItem",),
        claims_resources=True,
        announces_readers=True,
        log=("GetItem", "BatchGetItem", "Query"),
        notes_changes=True,
        shares=("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
        pushes=("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"),
        starts_deliveries=True,
        reaches_targets=True,
    ),
    "schedules": Grants(
        topics=("GetItem",),
        log=("GetItem", "PutItem"),  # of the switch of timers, which runs them
        schedules=("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        starts_schedules=True,
        notes_changes=True,
    ),
    "quotas": Grants(topics=("GetItem",), sets_quotas=True, notes_changes=True),
    "zones": Grants(topics=("GetItem",), changes_zone_states=True, notes_changes=True),
    "acls": Grants(topics=("GetItem",), changes_acls=True, notes_changes=True),
    "recover_zones": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "Query", "UpdateItem"),
        reads_zones=True,
        writes_zones=True,
        tells_missing_objects=True,
        changes_zone_states=True,
    ),
    "scrub": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "Query", "UpdateItem"),
        keeps_cursor=True,
        reads_zones=True,
        reads_archive=True,
        writes_zones=True,
        tells_missing_objects=True,
        sends_repairs=True,
    ),
    REPLICATE: Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "Query", "UpdateItem"),
        reads_zones=True,
        writes_zones=True,
        tells_missing_objects=True,
        sends_repairs=True,
        takes_repairs=True,
    ),
    "retention": Grants(
        topics=("GetItem", "Query", "Scan"),
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        ends_changes=True,
        keeps_items=True,
        groups=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        shares=("GetItem", "BatchGetItem", "Query", "UpdateItem", "DeleteItem"),
        pushes=("Query", "BatchGetItem"),  # the places of subscriptions
        keeps_cursor=True,
        settles_deletions=True,
        schedules=("Query",),  # those whose last run failed
        keeps_claims=True,  # of the groups that it removes, or finds made anew
        switches_timers=True,
        switches_deliveries=True,
    ),
    # A promotion updates a head and timers in one transaction, and rolls the head. The record of a schedule is an
    # append, in one transaction with the schedule.
    PROMOTE: Grants(
        ends_changes=True,
        topics=("GetItem",),
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        schedules=("GetItem", "Query", "UpdateItem"),
        writes_zones=True,
        changes_zone_states=True,
        wakes_readers=True,
        promotes=True,
    ),
    DISPATCH: Grants(topics=(), dispatches=True),
    # A move of dead letters or of copies is an append to their topic, in one transaction with a subscription's state.
    # No grant names a target: each lets in the role that `deliver` assumes.
    DELIVER: replace(
        _FETCH,
        ends_changes=True,
        spends_quotas=False,
        log=(*_FETCH.log, "UpdateItem", "PutItem"),
        shares=("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "ConditionCheckItem"),  # those of parallel mode
        pushes=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem"),
        groups=("Query",),  # their offsets, which a mirror is told
        writes_zones=True,
        changes_zone_states=True,
        wakes_readers=True,
        delivers=True,
        reaches_targets=True,
    ),
    # It also reads the places of share groups, and removes what gone subscriptions have left.
    LOOK: Grants(
        topics=("GetItem",),
        log=("GetItem", "BatchGetItem"),
        shares=("GetItem", "BatchGetItem", "PutItem", "DeleteItem"),
        pushes=("GetItem", "Query", "DeleteItem", "BatchWriteItem"),
        keeps_cursor=True,
        starts_deliveries=True,
    ),
    "tier": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
        reads_zones=True,
        tells_missing_objects=True,
        writes_archive=True,
        sends_repairs=True,
        keeps_cursor=True,
    ),
    "clean": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "ConditionCheckItem"),
        reads_zones=True,
        tells_missing_objects=True,
        writes_archive=True,
        sends_repairs=True,
        keeps_cursor=True,
    ),
    # It reads the places of all kinds of consumers, and writes nothing but what it must remember.
    MEASURE: Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query"),
        groups=("GetItem", "BatchGetItem", "Query"),
        shares=("GetItem", "BatchGetItem", "Query"),
        pushes=("GetItem", "BatchGetItem", "Query"),
        keeps_cursor=True,
    ),
    # It makes the topic `_audit` and appends to it: no function that notes changes could write there.
    "audit": replace(
        _RECORDS_PRODUCE,
        spends_quotas=False,
        ends_changes=False,
        topics=("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan"),
        settles_deletions=True,
        dates_index=True,
        schedules_records=False,
        settles_audit=True,
    ),
    "sweep": Grants(
        topics=("GetItem", "Scan"),
        log=("GetItem", "BatchGetItem", "Query"),
        keeps_cursor=True,
        sweeps_zones=True,
        writes_archive=True,  # the marks of a sweep that takes several runs
    ),
}

# `provision` makes, alters and deletes topics, share groups, subscriptions, access rules and quotas. It closes and
# opens heads, and lists no deleted topics. "latest" reads heads. The service itself claims nothing.
PROVISION_GRANTS = replace(
    GRANTS["subscriptions"],
    topics=("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan"),
    settles_deletions=True,
    dates_index=True,
    changes_acls=True,
    sets_quotas=True,
    claims_resources=False,
    log=("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem"),
    schedules=GRANTS["schedules"].schedules,
    starts_schedules=True,
    notes_changes=True,
)

_BY_EVENTS = (REPLICATE, DISPATCH, DELIVER)  # neither routes nor schedules start them


def grants_of(settings: StageSettings) -> Mapping[str, Grants]:
    """Returns what each function of the stage may do: all that its routes, its tasks or its events need.

    With one zone there is no zone state to change, no copy to repair, and no function that would do either.
    """
    parts: dict[str, dict[str, Grants]] = {}
    served = [*((route.function, route.handler) for route in ROUTES), *((name, name) for name in _BY_EVENTS)]
    for function, part in (*served, *((task.function, name) for name, task in tasks_of(settings).items())):
        if part != REPLICATE or settings.repairs_zones:
            parts.setdefault(function, {})[part] = GRANTS[part]
    found = {function: _union([*of_function.values()]) for function, of_function in parts.items()}
    if settings.repairs_zones:
        return found
    return {name: replace(grants, changes_zone_states=False, sends_repairs=False) for name, grants in found.items()}


def _union(parts: Sequence[Grants]) -> Grants:
    """What one of the parts at least may do."""
    merged: dict[str, Any] = {}
    for name in (each.name for each in fields(Grants)):
        values = [getattr(part, name) for part in parts]
        # of actions, each one once, in the order of the parts
        merged[name] = any(values) if isinstance(values[0], bool) else (*dict.fromkeys(chain.from_iterable(values)),)
    return Grants(**merged)
