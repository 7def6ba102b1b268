"""The rules, their settings, and the text that switches them on: `all`, or `freeze,item_locks.hold_ms_max=20`."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A worker of a function stops (SIGSTOP) when it has answered, and goes on (SIGCONT) with its next event."""

    is_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLocks:
    """A TransactWriteItems holds its items for a time drawn between these bounds. Other writes of them are refused."""

    is_on: bool = False
    hold_ms_min: float = 5.0
    hold_ms_max: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The units a second of a partition key and of a table. The defaults are those of a new on-demand table."""

    is_on: bool = False
    write_units_per_key: float = 1_000.0
    read_units_per_key: float = 3_000.0
    write_units_per_table: float = 4_000.0
    read_units_per_table: float = 12_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The time that a call to S3 takes on top of the emulator's: lognormal by median and sigma, some of them slow.

    `express_buckets` is a regular expression. Buckets that it finds are S3 Express One Zone, all other S3 Standard.
    """

    is_on: bool = False
    express_put_ms: float = 6.0
    express_get_ms: float = 5.0
    express_sigma: float = 0.3
    express_slow_ms: float = 22.0
    standard_put_ms: float = 30.0
    standard_get_ms: float = 25.0
    standard_sigma: float = 0.45
    standard_slow_ms: float = 120.0
    slow_share: float = 0.02
    express_buckets: str = "--x-s3$|zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryBuckets:
    """Buckets named `...--x-s3` want sessions, at their zonal host names or by path.

    Buckets that the regular expression `unordered_buckets` finds list without order, take only prefixes that end in
    `/`, and answer 409 to `conflict_share` of their conditional puts.
    """

    is_on: bool = False
    session_s: float = 300.0
    conflict_share: float = 0.01
    unordered_buckets: str = "--x-s3$|zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadLimits:
    """Bytes of a function's event and answer as JSON, bytes of a request to the API, and its time."""

    is_on: bool = False
    event_bytes: int = 6_291_456
    answer_bytes: int = 6_291_556
    request_bytes: int = 10_485_760
    integration_ms: float = 30_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """The invocations of all functions at the same time. A new account may have 10, and 1,000 by default.

    A function with reserved ones (PutFunctionConcurrency) has these for itself, and others share the rest.
    """

    is_on: bool = False
    account: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All rules, each with its own switch and settings. `seed` names the draws of latencies, holds and conflicts."""

    seed: int = 0
    freeze: Freeze = field(default_factory=Freeze)
    item_locks: ItemLocks = field(default_factory=ItemLocks)
    throughput: Throughput = field(default_factory=Throughput)
    latency: Latency = field(default_factory=Latency)
    directory_buckets: DirectoryBuckets = field(default_factory=DirectoryBuckets)
    payload_limits: PayloadLimits = field(default_factory=PayloadLimits)
    concurrency: Concurrency = field(default_factory=Concurrency)

    def to_json(self) -> dict[str, Any]:
        """The rules as a JSON object: `{"seed": 0, "freeze": {"is_on": false}, ...}`."""
        return asdict(self)


RULE_NAMES = tuple(each.name for each in fields(Rules) if each.name != "seed")


def parse_rules(text: str) -> Rules:
    """Returns the rules that the text switches on, all others off.

    The text is a list with commas: `all`, `none`, a rule's name, `<rule>=off`, `<rule>.<setting>=<value>` (which also
    switches the rule on), `seed=<number>`. Later parts win. Raises ValueError with the part that is wrong.
    """
    rules = Rules()
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, has_value, value = part.partition("=")
        rule, has_setting, setting = name.partition(".")
        if name in ("all", "none") and not has_value:
            for each in RULE_NAMES:
                rules = _changed(rules, each, is_on=name == "all")
        elif name == "seed" and has_value:
            rules = replace(rules, seed=_number(int, part, value))
        elif rule not in RULE_NAMES:
            raise ValueError(f"{part!r} is no rule: name all, none, seed=N, or some of {', '.join(RULE_NAMES)}")
        elif not has_setting and value in ("", "on", "off"):
            rules = _changed(rules, rule, is_on=value != "off")
        else:
            rules = _changed(rules, rule, is_on=True, **{setting: _value(rules, rule, setting, part, value)})
    return rules


def _changed(rules: Rules, rule: str, **settings: Any) -> Rules:
    return replace(rules, **{rule: replace(getattr(rules, rule), **settings)})


def _value(rules: Rules, rule: str, setting: str, part: str, value: str) -> str | int | float:
    known = [each.name for each in fields(getattr(rules, rule)) if each.name != "is_on"]
    if setting not in known or not value:
        raise ValueError(
            f"{part!r} sets nothing: {rule} has {', '.join(known) or 'no settings'}, each as <setting>=<value>"
        )
    now = getattr(getattr(rules, rule), setting)
    return value if isinstance(now, str) else _number(type(now), part, value)


def _number(kind: type, part: str, value: str) -> Any:
    try:
        number = kind(value)
    except ValueError:
        raise ValueError(f"{part!r} wants a number") from None
    if number < 0:
        raise ValueError(f"{part!r} wants a number of 0 or more")
    return number
