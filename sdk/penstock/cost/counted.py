"""The counts of single requests: captured from the handlers, interpolated between the captured sizes.

A count has the name of its line in `penstock.prices`, but for `WAKE_UPS` (messages to readers that wait) and
`INDEX_BYTES` (that stay in DynamoDB). The counts were captured by HTTP. A call by another transport does the same to
storage, and lacks what it does not pass: API Gateway and its access log by `lambda`, the function and its log lines by
`embedded`, too. AWS STS, which `lambda` asks, has no price. `auto` counts as `lambda`: its clients have AWS credentials
of the account, and its calls by HTTP are one for each client.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from penstock import prices
from penstock.http.named_transport import AUTO, HTTP, LAMBDA, TransportName
from penstock_core.limits import KIB
from penstock_core.log.inline import BOUNDS_OF_PROFILES, ITEM_OVERHEAD_BYTES

Counts = dict[str, float]

PROFILES = ("express3", "express2", "standard1")
_OF_FUNCTIONS = ("API_REQUESTS", "LAMBDA_REQUESTS", "LAMBDA_GB_SECONDS", "LOGGED_BYTES")
_FRAME_BYTES = KIB  # around the records of a request, at most
_BATCH_BYTES = 100  # of a batch's frame, and of its place in the segment
_READ_UNIT_BYTES = 4 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counts of one storage profile's requests, by one transport."""

    profile: str
    found: Mapping[str, Any]
    many_partitions: int
    many_segments: int
    item_record_bytes: int
    access_log_bytes: float
    transport: TransportName = HTTP

    def append(self, request_bytes: float, partitions: float = 1.0) -> Counts:
        """One produce request to so many partitions, with its share of rolls."""
        one = _between(self.found["append"], request_bytes)
        counts = add(one, times(self._append_to_another(), partitions - 1))
        return self._carried(counts | {"API_REQUESTS": _api_requests(request_bytes)})

    def append_as_item(self, request_bytes: float, partitions: float = 1.0) -> Counts:
        """The same, where the request becomes an item with a TTL: `INDEX_BYTES` has its bytes, too."""
        one = self.found["append_as_item"]
        item, captured = self.item_bytes(request_bytes, partitions), self.item_bytes(self.item_record_bytes)
        changed = {
            "WRITE_UNITS": one["WRITE_UNITS"] + math.ceil(item / KIB) - math.ceil(captured / KIB),
            "INDEX_BYTES": one["INDEX_BYTES"] + item - captured,
        }
        another = {name: value for name, value in self._append_to_another().items() if not name.startswith("EXPRESS")}
        return self._carried(add(one | changed, times(another, partitions - 1)))

    def item_bytes(self, request_bytes: float, partitions: float = 1.0) -> float:
        """The bytes of a request's item, with its keys, and the frames of its batches."""
        one = self.found["append_as_item"]["INDEX_BYTES"] - self.found["append"][str(KIB)]["INDEX_BYTES"]
        return request_bytes + float(one) - self.item_record_bytes + _BATCH_BYTES * (partitions - 1)

    def fits_item(self, request_bytes: float, partitions: float = 1.0) -> bool:
        """True if a request becomes an item with a TTL on a stage with `inline_bytes_max=auto`."""
        most = BOUNDS_OF_PROFILES[self.profile].expiring_bytes + ITEM_OVERHEAD_BYTES
        return self.item_bytes(request_bytes, partitions) <= most

    def fetch(self, answer_bytes: float, segments: float = 1.0, partitions: float = 1.0) -> Counts:
        """One fetch that asks for so many partitions, and finds the records of so many produce requests."""
        many = _between(self.found["fetch"], self.many_segments * KIB)
        per_segment = times(_difference(self.found["fetch_of_many_segments"], many), 1 / (self.many_segments - 1))
        counts = add(
            _between(self.found["fetch"], answer_bytes),
            times(per_segment, segments - 1),
            times(self._fetch_of_another(), partitions - 1),
        )
        return self._carried(counts | {"API_REQUESTS": _api_requests(answer_bytes)})

    def fetch_of_items(self, answer_bytes: float, segments: float = 1.0, partitions: float = 1.0) -> Counts:
        """The same, where each of the requests is an item."""
        one, many = self.found["fetch_of_item"], self.found["fetch_of_many_items"]
        per_segment = times(_difference(many, one), 1 / (self.many_segments - 1))
        larger = math.ceil(answer_bytes / segments / _READ_UNIT_BYTES) - 1
        counts = add(
            one,
            times(per_segment, segments - 1),
            times(self._fetch_of_another(), partitions - 1),
            {"READ_UNITS": larger * segments},
        )
        return self._carried(counts)

    def empty_fetch(self, partitions: float) -> Counts:
        """One fetch at the end of so many partitions: what arms them, without the writes and the wake-up."""
        without = ("WRITE_UNITS", "WAKE_UPS")
        return {name: count for name, count in self.arming_fetch(partitions, 1).items() if name not in without}

    def arming_fetch(self, partitions: float, armed: float) -> Counts:
        """One fetch at the end of so many partitions, and the messages of the append that wakes its reader.

        It writes to the heads that it arms, those of the last append: the others are armed still.
        """
        asked, written = (self._of_many("arming_fetch", "arming_fetch_of_many", count) for count in (partitions, armed))
        return asked | {"WRITE_UNITS": written["WRITE_UNITS"]}

    def commit(self, partitions: float) -> Counts:
        """One commit of a group's offsets of so many partitions."""
        return self._of_many("commit", "commit_of_many", partitions)

    def heartbeat(self) -> Counts:
        """One heartbeat of a group's only member, that gets records."""
        return self._carried(self.found["heartbeat"])

    def idle_member_hour(self) -> Counts:
        """An hour of the only member of a group, that waits and gets nothing."""
        return self._carried(self.found["idle_member_hour"])

    def idle_hour_of_another(self) -> Counts:
        """The surplus of a member more of that group: the checks of a group are one member's work at a time."""
        return self._carried(self._hour_of_another())

    def heartbeat_of_another(self) -> Counts:
        """One heartbeat of such a member."""
        hour = self._hour_of_another()
        beats = hour["LAMBDA_REQUESTS"]
        return self._carried({name: each / beats for name, each in hour.items() if name != "APPSYNC_MINUTES"})

    def _hour_of_another(self) -> Counts:
        return _difference(self.found["idle_group_of_two_hour"], self.found["idle_member_hour"])

    def acquire(self, answer_bytes: float, segments: float = 1.0) -> Counts:
        """One acquire that accepts the records of the one before, and finds those of so many produce requests."""
        return self._carried(self._of_segments("acquire", answer_bytes, segments))

    def empty_acquire(self, partitions: float) -> Counts:
        """One acquire that finds nothing in so many partitions: what arms them, without the writes."""
        return {name: count for name, count in self.arming_acquire(partitions, 1).items() if name != "WRITE_UNITS"}

    def arming_acquire(self, partitions: float, armed: float) -> Counts:
        """One acquire that finds nothing in so many partitions, and arms the heads that the last append woke."""
        asked, written = (self._of_many("arming_acquire", "arming_acquire_of_many", each) for each in (partitions, 1.0))
        return asked | {"WRITE_UNITS": written["WRITE_UNITS"] * armed}

    def idle_worker_hour(self) -> Counts:
        """An hour of a share worker that waits and gets nothing."""
        return self._carried(self.found["idle_worker_hour"])

    def delivery(self, answer_bytes: float, segments: float = 1.0) -> Counts:
        """One delivery of a subscription, with the records of so many produce requests, from its wake-up on.

        No client calls it, so it is the same by all transports.
        """
        return self._of_segments("delivery", answer_bytes, segments)

    def mirror_push(self, pushed_bytes: float, segments: float, *, of_items: bool = False) -> Counts:
        """One push of a partition to its mirror, from the wake-up on, with the records of so many produce requests.

        It counts the source alone, without the wait for the mirror. No client calls it, so it is the same by all
        transports. `of_items`: the requests are items.
        """
        if not of_items:
            return self._mirrored("mirror_push", pushed_bytes, segments)
        one = self.found["mirror_push_of_item"]
        per_segment = times(_difference(self.found["mirror_push_of_many_items"], one), 1 / (self.many_segments - 1))
        larger = math.ceil(pushed_bytes / segments / _READ_UNIT_BYTES) - 1
        return add(one, times(per_segment, segments - 1), {"READ_UNITS": larger * segments})

    def mirror_round(self, pushes: float, partitions: float, push: Counts) -> Counts:
        """One delivery of a lane of so many partitions that rests between two, with so many pushes.

        `push` is one of them, as `mirror_push` has it.
        """
        one, many = self.found["mirror_round_of_many_partitions"], self.found["mirror_round_of_many_pushes"]
        return add(
            self.found["mirror_round"],
            times(_difference(many, one), (pushes - 1) / (self.many_partitions - 1)),
            times(self.mirrored_partition(), partitions - self.many_partitions // 2),
            times(_difference(push, self.mirror_push(KIB, 1)), pushes),
        )

    def mirrored_partition(self) -> Counts:
        """What a further partition of a lane costs a delivery that does not push it."""
        surplus = _difference(self.found["mirror_round_of_many_partitions"], self.found["mirror_round"])
        return times(surplus, 1 / ((self.many_partitions + 1) // 2))

    def mirror_append(self, pushed_bytes: float, segments: float, *, is_item: bool = False) -> Counts:
        """The same push at the stage that gets it, by HTTP: one append. If it `is_item`, its bytes become one."""
        if not is_item:
            appended = self._mirrored("mirror_append", pushed_bytes, segments)
            return appended | {"API_REQUESTS": _api_requests(pushed_bytes)}
        one: Counts = self.found["mirror_append_of_item"]
        larger = pushed_bytes - self.item_record_bytes
        item, captured = self.item_bytes(pushed_bytes), self.item_bytes(self.item_record_bytes)
        units = one["WRITE_UNITS"] + math.ceil(item / KIB) - math.ceil(captured / KIB)
        return one | {"WRITE_UNITS": units, "INDEX_BYTES": one["INDEX_BYTES"] + larger}

    def mirror_telling(self) -> Counts:
        """One telling of a group's offsets in a topic, at both stages."""
        return times(self.found["mirror_telling"], 1)

    def _mirrored(self, name: str, pushed_bytes: float, segments: float) -> Counts:
        many = _between(self.found[name], self.many_segments * KIB)
        surplus = _difference(self.found[f"{name}_of_many_segments"], many)
        per_segment = times(surplus, 1 / (self.many_segments - 1))
        return add(_between(self.found[name], pushed_bytes), times(per_segment, segments - 1))

    def tier(self, request_bytes: float) -> Counts:
        """The share of one produce request in the run that moves its bytes to the archive; nothing without zones."""
        return _between(self.found["tier"], request_bytes) if "tier" in self.found else {}

    @property
    def idle_stage_usd_per_month(self) -> float:
        """The dollars of a stage that nobody uses, with its alarms."""
        return float(self.found["idle_stage_usd_per_month"])

    @property
    def zones(self) -> int:
        """The number of S3 Express zones that hold each record at first."""
        return int(self.found["append"][str(KIB)].get("EXPRESS_PUTS", 0))

    def _append_to_another(self) -> Counts:
        """The surplus of an append for a partition more."""
        extra = _difference(self.found["append_to_many"], _between(self.found["append"], 6 * KIB))
        return times(extra, 1 / (self.many_partitions - 1))

    def _fetch_of_another(self) -> Counts:
        """The surplus of a fetch for a partition more."""
        extra = _difference(self.found["fetch_of_many_partitions"], _between(self.found["fetch"], KIB))
        return times(extra, 1 / (self.many_partitions - 1))

    def _of_segments(self, one: str, answer_bytes: float, segments: float) -> Counts:
        """The counts of a read of so many produce requests: captured with 1 KiB each, and larger as a fetch is."""
        extra = _difference(self.found[f"{one}_of_many_segments"], self.found[one])
        larger = _difference(_between(self.found["fetch"], answer_bytes / segments), _between(self.found["fetch"], KIB))
        moved = {name: larger.get(name, 0.0) for name in ("LAMBDA_GB_SECONDS", "EXPRESS_RETRIEVED_BYTES")}
        per_segment = times(extra, 1 / (self.many_segments - 1))
        counts = add(self.found[one], times(per_segment, segments - 1), times(moved, segments))
        return counts | ({"API_REQUESTS": _api_requests(answer_bytes)} if "API_REQUESTS" in counts else {})

    def _of_many(self, one: str, many: str, partitions: float) -> Counts:
        extra = _difference(self.found[many], self.found[one])
        return self._carried(add(self.found[one], times(extra, (partitions - 1) / (self.many_partitions - 1))))

    def _carried(self, counts: Mapping[str, float]) -> Counts:
        """The counts of calls by HTTP as those of this transport."""
        if self.transport == "embedded":
            return {name: value for name, value in counts.items() if name not in _OF_FUNCTIONS}
        if self.transport in (AUTO, LAMBDA):
            access_log = counts.get("LAMBDA_REQUESTS", 0.0) * self.access_log_bytes  # a line for each call
            kept = {name: value for name, value in counts.items() if name != "API_REQUESTS"}
            return kept | {"LOGGED_BYTES": max(0.0, counts.get("LOGGED_BYTES", 0.0) - access_log)}
        return dict(counts)


@cache
def counted(profile: str, transport: TransportName = HTTP) -> Counted:
    """The counts of a profile, by a transport. Raises LookupError for an unknown profile."""
    document = _document()
    if profile not in document["profiles"]:
        raise LookupError(f"{profile!r} is no storage profile: use {', '.join(PROFILES)}")
    return Counted(
        profile=profile,
        found=document["profiles"][profile],
        many_partitions=document["many_partitions"],
        many_segments=document["many_segments"],
        item_record_bytes=document["item_record_bytes"],
        access_log_bytes=document["access_log_bytes"],
        transport=transport,
    )


def counted_at() -> str:
    """The day of the capture."""
    return str(_document()["counted_at"])


def function_ms() -> tuple[float, float]:
    """The assumed milliseconds of a function for each request, and for each MiB that it moves."""
    return float(_document()["function_ms"]), float(_document()["function_ms_per_mib"])


@cache
def _document() -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads((files("penstock") / "cost" / "counted.json").read_text())
    return document


def _api_requests(moved_bytes: float) -> float:
    return max(1, math.ceil((moved_bytes + _FRAME_BYTES) / prices.API_REQUEST_BYTES))


def _between(by_size: Mapping[str, Counts], size: float) -> Counts:
    """The counts at a size, on the line between the captured sizes around it, or through the last two."""
    sizes = sorted(map(int, by_size))
    at = min(max(bisect_left(sizes, size), 1), len(sizes) - 1)
    low, high = sizes[at - 1], sizes[at]
    share = max(0.0, (size - low) / (high - low))
    return add(times(by_size[str(low)], 1 - share), times(by_size[str(high)], share))


def add(*parts: Mapping[str, float]) -> Counts:
    """The sums of all."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def times(counts: Mapping[str, float], factor: float) -> Counts:
    """So many times as much of each."""
    return {name: value * factor for name, value in counts.items()}


def _difference(more: Mapping[str, float], less: Mapping[str, float]) -> Counts:
    """The surplus of `more` in each, 0 at least."""
    names: Iterable[str] = dict.fromkeys((*more, *less))
    return {name: max(0.0, more.get(name, 0.0) - less.get(name, 0.0)) for name in names}
