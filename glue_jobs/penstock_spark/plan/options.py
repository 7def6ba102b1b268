"""The options of a read. They have the names of Spark's Kafka source, in any case of letters.

docs/reference/spark-options.md lists them. Several options may set the start, or the end, of a read. A timestamp for
all partitions takes precedence over timestamps by partition, and these take precedence over offsets. Offsets by
partition are JSON, `{"orders": {"0": 23, "1": -2}}`: -2 stands for the earliest offset and -1 for the latest. The
options of storage.py name the storage.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB, OFFSET_MAX
from penstock_spark import storage

PARTITION_BYTES = 128 * MIB  # the default of Spark's own file sources
RANGE_BYTES = 8 * MIB  # one get takes about 0.1 s; a task reads several ahead
LATEST, EARLIEST = -1, -2  # stand for offsets, as in Kafka
OF_TOPIC = "topic"  # valueSchema: what the topic's own setting says
_FORMATS = ("json", "avro", "protobuf", "registry")

Given = ParamSpec("Given")
Found = TypeVar("Found")

ByPartition = Mapping[str, Mapping[int, int]]

_READ_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "onUndecodable",
    "valueSchema",
    "mode",
    "partitionBytes",
    "rangeBytes",
)
_FOR_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_FOR_STREAMS = ("maxOffsetsPerTrigger",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The partitions of a read.

    They are all of `topics`, all of the topics whose name matches `pattern`, or those in `assigned`.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of a read.

    At most one field is set: `everywhere` (EARLIEST or LATEST), an offset for each partition, one time for all
    partitions, or a time for each partition.
    """

    everywhere: int | None = None
    offsets: ByPartition | None = None
    timestamp_ms: int | None = None
    timestamps_ms: ByPartition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of one read, checked."""

    subscription: Subscription
    start: Bound
    end: Bound
    is_latest_without_match: bool
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fails_on_data_loss: bool
    includes_headers: bool
    skips_undecodable: bool
    fails_fast: bool
    partition_bytes: int
    range_bytes: int

    @property
    def may_begin_at_latest(self) -> bool:
        """Some partition may begin at its end, which moves as producers append."""
        named = [offset for offsets in (self.start.offsets or {}).values() for offset in offsets.values()]
        has_times = self.start.timestamp_ms is not None or self.start.timestamps_ms is not None
        return LATEST in (self.start.everywhere, *named) or (has_times and self.is_latest_without_match)


def parse_read_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Parse and check the options of one read.

    Raises INVALID_REQUEST for an unknown option, for a value out of range, and for options that exclude each other.
    """
    options = OptionReader(given)
    options.refuse_others((*_READ_OPTIONS, *storage.OPTIONS))
    for name in _FOR_BATCHES if is_stream else _FOR_STREAMS:
        if name in options:
            raise invalid(f"option {name} is for {'batch reads' if is_stream else 'streams'}: leave it out")
    start = _bound(options, "starting", LATEST if is_stream else EARLIEST)
    end = _bound(options, "ending", LATEST)
    if not is_stream and start.everywhere == LATEST:
        raise invalid("startingOffsets=latest: a batch read would find nothing; give earliest, offsets or a time")
    if end.everywhere == EARLIEST:
        raise invalid("endingOffsets=earliest: a read would find nothing; give latest, offsets or a time")
    if "mode" in options and "valueSchema" not in options:
        raise invalid("mode tells what happens to a value that does not fit its schema: give valueSchema, too")
    return ReadOptions(
        subscription=_subscription(options),
        start=start,
        end=end,
        is_latest_without_match=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        max_offsets_per_trigger=options.number("maxOffsetsPerTrigger", 1, OFFSET_MAX),
        min_partitions=options.number("minPartitions", 1, 1_000_000),
        fails_on_data_loss=options.choice("failOnDataLoss", ("true", "false")) == "true",
        includes_headers=options.choice("includeHeaders", ("false", "true")) == "true",
        skips_undecodable=options.choice("onUndecodable", ("raise", "skip")) == "skip",
        fails_fast=options.choice("mode", ("permissive", "failfast")) == "failfast",
        partition_bytes=options.number("partitionBytes", 1, 1024 * MIB) or PARTITION_BYTES,
        range_bytes=options.number("rangeBytes", 1, 64 * MIB) or RANGE_BYTES,
    )


def value_schema_of(given: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    """The option `valueSchema`, and the topics that the read names. Raises INVALID_REQUEST for another form."""
    options = OptionReader(given)
    if "valueSchema" not in options:
        return None, ()
    place, subscription = options.text("valueSchema"), _subscription(options)
    topics = subscription.topics or tuple(subscription.assigned)
    kind, _, rest = place.partition(":")
    if (kind not in _FORMATS or not rest or rest.endswith("/")) and (place != OF_TOPIC or not topics):
        raise invalid(
            f"valueSchema={place!r:.200}: give json:PLACE, avro:PLACE, protobuf:PLACE#MESSAGE, registry:URL, or "
            f"{OF_TOPIC} for what the topics that you name say; PLACE is a file, s3://…, or the text of the schema"
        )
    return place, topics


def raising_shortly(method: Callable[Given, Found]) -> Callable[Given, Found]:
    """The method, whose PenstockErrors have one frame of ours: Spark prints the frames before the sentence."""

    @wraps(method)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        try:
            return method(*args, **kwargs)
        except PenstockError as error:
            raise error.with_traceback(None) from None

    return call


class OptionReader:
    """The options as the user gave them. Look-ups ignore the case of names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str:
        """The value without surrounding spaces. Raises KeyError if the option is absent."""
        return self._values[name.lower()].strip()

    def refuse_others(self, known: tuple[str, ...]) -> None:
        """Raise INVALID_REQUEST if an option is not among `known`."""
        names = {each.lower(): each for each in known}
        for name in self._values.keys() - names.keys():
            near = [names[each] for each in difflib.get_close_matches(name, names, 1)]
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise invalid(f"unknown option {name!r}: {hint}")

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """The value, in lower case; the first of `allowed` if the option is absent.

        Raises INVALID_REQUEST for other values.
        """
        value = self.text(name).lower() if name in self else allowed[0]
        if value not in allowed:
            raise invalid(f"{name}={self.text(name)!r}: use one of {', '.join(allowed)}")
        return value

    def number(self, name: str, low: int, high: int) -> int | None:
        """The value as a whole number of `[low, high]`; None if the option is absent. Raises INVALID_REQUEST."""
        if name not in self:
            return None
        return whole_option(self.text(name), name, low, high)

    def partitions(self, name: str, read: Callable[[Any], int]) -> dict[str, dict[int, int]]:
        """The value as JSON: topics, their partitions, and a number for each. `read` checks the number."""
        return {
            topic: {_partition(number, name): read(value) for number, value in _object(each, name).items()}
            for topic, each in _object(_json(self.text(name), name), name).items()
        }


def whole_option(value: object, name: str, low: int, high: int) -> int:
    """The value as a whole number. Raises INVALID_REQUEST, with the option's name, unless it lies in `[low, high]`."""
    try:
        number = int(str(value))
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise invalid(f"{name}={value!r}: use a whole number from {low} to {high}")
    return number


def _bound(options: OptionReader, prefix: str, default: int) -> Bound:
    offsets, timestamp, by_partition = f"{prefix}Offsets", f"{prefix}Timestamp", f"{prefix}OffsetsByTimestamp"
    if timestamp in options:
        return Bound(timestamp_ms=options.number(timestamp, 0, OFFSET_MAX))
    if by_partition in options:
        return Bound(
            timestamps_ms=options.partitions(by_partition, lambda each: whole_option(each, by_partition, 0, OFFSET_MAX))
        )
    text = options.text(offsets) if offsets in options else ""
    if text.lower() in ("earliest", "latest"):
        return Bound(everywhere=EARLIEST if text.lower() == "earliest" else LATEST)
    if not text:
        return Bound(everywhere=default)
    return Bound(offsets=options.partitions(offsets, lambda each: whole_option(each, offsets, EARLIEST, OFFSET_MAX)))


def _subscription(options: OptionReader) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(given) != 1:
        raise invalid(f"{', '.join(given) or 'none'} of subscribe, subscribePattern and assign given: give one of them")
    text = options.text(given[0])
    if given == ["subscribe"]:
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise invalid(f"subscribe={text!r}: name a topic, or several separated by commas")
        return Subscription(topics=topics)
    if given == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise invalid(f"subscribePattern={text!r} is no regular expression: {error}") from error
        return Subscription(pattern=text)
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, numbers in _object(_json(text, "assign"), "assign").items():
        if not isinstance(numbers, list) or not numbers:
            raise invalid(f'assign: {numbers!r} of topic {topic!r}: give a list of partitions, {{"{topic}": [0, 1]}}')
        assigned[topic] = tuple(dict.fromkeys(_partition(number, "assign") for number in numbers))
    if not assigned:
        raise invalid("assign={}: name a topic and its partitions")
    return Subscription(assigned=assigned)


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise invalid(f'{name}={text!r:.200} is no JSON such as {{"topic": {{"0": 23}}}}: {error}') from error


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid(f"{name}: {value!r:.200} must be a JSON object")
    return value


def _partition(value: object, name: str) -> int:
    return whole_option(value, f"partition in {name}", 0, 2**31 - 1)


def invalid(message: str) -> PenstockError:
    """The error for an option that the user must change."""
    return PenstockError(ErrorCode.INVALID_REQUEST, message)
