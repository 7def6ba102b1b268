"""The settings of each stage. No other module of infra knows which stage it builds."""

import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from ipaddress import ip_network
from typing import Any, Literal

from penstock_cdk.storage_profile import PROFILES, Profile, ZonePlan, profile_of_region, zone_plans
from penstock_cdk.walls import REQUEST_RATE, ROUTE_RATES, Jwt, RequestRate, account_rate, check_reserved, scaled
from penstock_core.limits import (
    AUDIT_RETENTION_MS_DEFAULT,
    COMPACTION_BYTES_PER_DAY_DEFAULT,
    LOG_START_GRACE_MS,
    METRIC_CONSUMERS_MAX,
    METRIC_TOPICS_MAX,
    SCRUB_BYTES,
    SWEEP_GRACE_MS,
    TIERED_SWEEP_GRACE_MS,
)
from penstock_core.log.inline import InlineBounds, bounds_of_setting
from penstock_core.routes import ROUTES

Architecture = Literal["arm64", "x86_64"]
AclDefault = Literal["allow", "deny"]

MetricsOf = Literal["off", "topics", "all"]

METRICS_NAMESPACE = "Penstock"
METRICS_OF: Mapping[str, MetricsOf] = {"off": "off", "topics": "topics", "all": "all"}
SERIES_OF_TOPIC, SERIES_OF_CONSUMER, CONSUMER_KINDS = 6, 2, 3
SERIES_USD, DASHBOARD_USD = 0.30, 3.00  # a month, list price of us-east-1
UPKEEP = "upkeep"  # the function of the tasks that run every one to fifteen minutes
HOURLY = "hourly"  # that of the tasks that run each hour
# "EMR Serverless emr-spark-8.0.0" in its guide, read 2026-11-28: in all regions of EMR Serverless, except these.
_WITHOUT_EMR = ("me-south-1", "me-central-1")
_LEAST = {
    "waits_max": 0,
    "api_requests_per_s": 1,
    "account_concurrency": 1,
    "emr_vcpus_max": 1,
    "repair_retry_s": 1,
    "timer_retry_s": 1,
    "audit_retention_ms": -1,
    "topic_retention_ms": -1,
    "warm_log_writes": 1,
    "compaction_bytes_per_day": 0,
}
LIVE = "live"  # the alias that callers reach, where a stage has versions
_SECRET = re.compile(r"[\w/+=.@-]{1,512}", re.ASCII)  # CreateSecret's names
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")
_KEY_REGION = re.compile(r"arn:[a-z-]+:kms:([a-z0-9-]+):")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME_LENGTH_MAX = 40  # a rule has 64 characters, and the longest is <name>-job-runs-failed-glue
_PREFIX = "penstock-"  # of the names of stages that are not in STAGES
_BASES = ("prod", "dev")  # the stages whose settings others take


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSize:
    """The memory and time that a Lambda function may use. CPU comes with memory: 1,769 MB is one core."""

    memory_mb: int
    timeout_s: int

    def __post_init__(self) -> None:
        """Raises ValueError for what Lambda would refuse."""
        if not (128 <= self.memory_mb <= 10_240 and 1 <= self.timeout_s <= 900):
            raise ValueError(f"{self}: give 128 to 10,240 MB, and 1 to 900 s")


# fetch and share wait up to FETCH_WAIT_MS_MAX (20 s) for records. API Gateway hangs up after 30 s. A warm produce or
# fetch takes 2 to 3.5 ms of a core: 7 to 12 ms at 512 MB, and waits for storage the rest. bench/memory.py prices each
# hot function over the memories. A delivery waits for its target, so memory costs it most.
FUNCTION_SIZES: Mapping[str, FunctionSize] = {
    "produce": FunctionSize(memory_mb=512, timeout_s=15),
    "fetch": FunctionSize(memory_mb=512, timeout_s=28),
    "transactions": FunctionSize(memory_mb=512, timeout_s=15),
    "groups": FunctionSize(memory_mb=512, timeout_s=15),
    "share": FunctionSize(memory_mb=1024, timeout_s=28),
    "admin": FunctionSize(memory_mb=512, timeout_s=28),
    "replicate": FunctionSize(memory_mb=512, timeout_s=60),
    "promote": FunctionSize(memory_mb=512, timeout_s=58),
    "dispatch": FunctionSize(memory_mb=512, timeout_s=20),
    "deliver": FunctionSize(memory_mb=512, timeout_s=64),  # a slice and the longest invocation; less than its lock
    "upkeep": FunctionSize(memory_mb=1024, timeout_s=240),
    "hourly": FunctionSize(memory_mb=1769, timeout_s=900),  # one core: tier and clean check and write batches anew
    "sweep": FunctionSize(memory_mb=1024, timeout_s=900),  # 2,000,000 segment ids are about 220 MB
    "provision": FunctionSize(memory_mb=512, timeout_s=50),  # CloudFormation waits for a minute
}

_ALL = 100  # percent
_CANARY_MINUTES_MAX = 2_880  # two days, CodeDeploy's limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The steps by which a new version of each API function takes over from the old one (docs/adr/0035).

    `percent` of a function's requests, 1 to 99, reach the new version for `minutes`. All do afterwards, unless an alarm
    has rung: then none do. With 100 percent, all do at once, and no alarm is asked.
    """

    percent: int
    minutes: int

    def __post_init__(self) -> None:
        """Raises ValueError for a canary that CodeDeploy would refuse."""
        if (self.percent, self.minutes) == (_ALL, 0):
            return
        if not (1 <= self.percent < _ALL and 1 <= self.minutes <= _CANARY_MINUTES_MAX):
            raise ValueError(f"{self}: give 1 to 99 percent for 1 to {_CANARY_MINUTES_MAX:,} minutes, or AT_ONCE")

    @property
    def is_gradual(self) -> bool:
        """True if CodeDeploy moves the requests."""
        return self.percent < _ALL


AT_ONCE = Canary(percent=_ALL, minutes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The metrics of topics and consumers, and how many series CloudWatch bills for them, $0.30 a month each.

    `of` is `off`, `topics` or `all`, which has consumers, too: groups, share groups and subscriptions. The `topics`
    that take the most bytes have 6 series each, and the `consumers` that are the oldest behind have 2 each. All others
    share one more set of each kind. A series without a value in an hour costs nothing for it. With `has_dashboard`,
    the stage has a dashboard, which costs $3 a month beyond the account's first three.
    """

    of: MetricsOf = "off"
    topics: int = 10
    consumers: int = 20
    has_dashboard: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for numbers out of bounds, and for a dashboard without metrics."""
        for name, number, most in (
            ("topics", self.topics, METRIC_TOPICS_MAX),
            ("consumers", self.consumers, METRIC_CONSUMERS_MAX),
        ):
            if not 1 <= number <= most:
                raise ValueError(f"metrics with {name}={number}: give 1 to {most}")
        if self.of not in METRICS_OF:
            raise ValueError(f"metrics of {self.of!r}: give off, topics or all")
        if self.has_dashboard and not self.is_on:
            raise ValueError("a dashboard without metrics would be empty: set metrics of topics or all")

    @property
    def is_on(self) -> bool:
        """True if the functions count the traffic of topics."""
        return self.of != "off"

    @property
    def series_max(self) -> int:
        """The number of series in an hour in which each topic and consumer is busy."""
        of_topics = SERIES_OF_TOPIC * (self.topics + 1)
        of_consumers = SERIES_OF_CONSUMER * (self.consumers + CONSUMER_KINDS)
        return {"off": 0, "topics": of_topics, "all": of_topics + of_consumers}[self.of]

    @property
    def usd_max(self) -> float:
        """The price of a month of `series_max`, and of the dashboard."""
        return self.series_max * SERIES_USD + (DASHBOARD_USD if self.has_dashboard else 0.0)


# A budget is shorter than its function's timeout: a task finishes the step that it is in when its budget ends.
JOB_ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "promote": {"PENSTOCK_BUDGET_MS": "45000"},
    UPKEEP: {"PENSTOCK_RETENTION_BUDGET_MS": "200000", "PENSTOCK_LOG_START_GRACE_MS": str(LOG_START_GRACE_MS)},
    HOURLY: {
        "PENSTOCK_SCRUB_BUDGET_MS": "180000",
        "PENSTOCK_SCRUB_BYTES": str(SCRUB_BYTES),
        "PENSTOCK_TIER_BUDGET_MS": "720000",
        "PENSTOCK_CLEAN_BUDGET_MS": "720000",
    },
    "sweep": {
        "PENSTOCK_BUDGET_MS": "720000",
        "PENSTOCK_LOG_START_GRACE_MS": str(LOG_START_GRACE_MS),
        "PENSTOCK_SWEEP_GRACE_MS": str(SWEEP_GRACE_MS),
    },
}
# Where zones are directory buckets, so that moved segments are out of them within a day (docs/adr/0030).
TIERED_JOB_ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    **JOB_ENVIRONMENTS,
    "sweep": {**JOB_ENVIRONMENTS["sweep"], "PENSTOCK_SWEEP_GRACE_MS": str(TIERED_SWEEP_GRACE_MS)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTables:
    """The names of three tables that DynamoDB restored, and the label of the stream of the log table."""

    topics: str
    log: str
    groups: str
    log_stream: str

    def __post_init__(self) -> None:
        """Raises ValueError for an empty name."""
        if not (self.topics and self.log and self.groups and self.log_stream):
            raise ValueError(f"{self}: give a name for each table, and the label of the stream")

    @property
    def tables(self) -> tuple[str, str, str]:
        """The names of the tables."""
        return self.topics, self.log, self.groups

    def key_commands(self, key_arn: str) -> list[str]:
        """The commands that give the tables a key: they are no resources of the stack, so it cannot."""
        change = f"Enabled=true,SSEType=KMS,KMSMasterKeyId={key_arn}"
        return [f"aws dynamodb update-table --table-name {name} --sse-specification {change}" for name in self.tables]


_ROLE_ARN = re.compile(r"arn:[\w-]+:iam::\d{12}:role/[\w+=,.@/-]{1,512}", re.ASCII)


def _check_roles(roles: Sequence[str]) -> None:
    for role in roles:
        if not _ROLE_ARN.fullmatch(role):
            raise ValueError(f"mirror role {role!r:.100}: give an ARN such as arn:aws:iam::123456789012:role/mirror")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """One deployment of Penstock.

    `name` begins every physical name, so that stages can share an account: `penstock` gives the function
    `penstock-produce` and the policy `PenstockProduce`. `region` None takes the region of your credentials.

    `storage_profile` decides about zones (storage_profile.py). None takes the profile of the region, so the region must
    be known then. Never change the profile of a stage that holds data. `has_directory_buckets` is false where there are
    none, as on the emulator: ordinary buckets stand in for them.

    Appends of up to `inline_bytes_max` bytes become an item of the log table, and go into no zone. None, the default,
    takes the bounds at which an item costs less than the puts of the profile (docs/adr/0064), and alone gives items a
    TTL. 0 puts all into zones: give it to a stage of release 0.1.0 until no function and no embedded program of that
    release is left (docs/how-to/upgrade.md).

    `pip_platforms` are the platform tags that wheels may have, None for the machine that synthesizes.
    `account_concurrency` is the number of instances that your account has in the region, None if you do not know it.
    `reserved_concurrency` has instances by function, which that function may use, and no other. A function without an
    entry shares the rest of the account. By default there are none: AWS would refuse them in a new account, which may
    have 10 instances. `waits_max` is the number of instances that may wait for records at once, those of all functions
    together; None takes what `wait_pool` says (walls.py). An account of unknown size counts as a new one, with 10
    instances: 2 of them wait, and the pollers of each queue start 2.
    `request_rate` applies to each route; None leaves the account's own. `route_rates` has lower ones by handler, for
    each of its routes (penstock_core/routes.py). Both are for an account of 10,000 requests a second.
    `api_requests_per_s` is the number that yours has in the region, None for AWS's default there: if it is lower, all
    rates go down with it.
    `job_environments` changes variables of those that the storage profile has.
    `timers_always_on` lets the first delayed records of the stage come on time, and costs $0.26 a month for the pollers
    of their queue (docs/adr/0039). `timer_retry_s` is the wait before a failed promotion is tried again.
    `private_targets` are private networks whose endpoints a subscription may have as targets. Give none on a stage that
    runs on AWS: a caller could reach what only the service reaches.
    `mirror_roles` are the ARNs of roles of other stages under which this one may push its mirrors.
    `repair_retry_s` is the wait before the next attempt of a failed repair. `empties_buckets`, on a stage that keeps no
    data, lets a function empty its buckets when you delete the stack. `log_retention` is a name of
    aws_logs.RetentionDays, for the logs of functions and jobs; `audit_log_retention` is one for the API's access log.
    `audit_retention_ms` is the retention of the topic `_audit`, -1 for no end.
    With `traces`, X-Ray traces the functions that callers reach, for $5 a million traces. Lambda traces one request a
    second and 5 percent of the others, for each function, and nobody can change that: a quiet stage costs up to twice
    as much. The SDK's spans need none of it (docs/how-to/tracing.md).
    `metrics` has those of topics and consumers, which are off by default: each series costs (`Metrics`).
    `alarm_topic_arn` is the SNS topic that alarms publish to. `tags` are on every resource, on top of `penstock:stage`:
    name your cost centre there.

    Each day a function cleans `compaction_bytes_per_day` of the logs of topics with `cleanup_policy=compact` at most, 0
    for none: the Spark job `compact` cleans what is larger (docs/protocol/retention.md).
    `topic_retention_ms` is the retention of the topics that the CDK app declares without one. None leaves the service's
    default.
    `warm_log_writes` is the number of write units a second that the log table takes from its first minute on. None
    leaves the 4,000 of a new table, which doubles them when it needs more. AWS charges once for what exceeds them.
    With `restored_tables`, the stack uses these and has none of its own (docs/how-to/restore.md).

    With `canary`, each function has versions and an alias `live`, which callers reach. None has neither: a deployment
    then replaces the functions.

    `acl_default` decides about a right that no access rule is about: None, as `allow`, gives it. Unless it is None, the
    grants of the construct write rules. `super_principals` may do everything, whatever the
    rules say: a stage that denies by default needs one, to make the first rules (docs/how-to/acls.md).
    With `jwt`, the stage has a second API, for callers with tokens (docs/how-to/jwt.md).
    With `direct`, clients may also invoke the functions by Lambda's API, which costs less: each policy of clients has
    an alias of its own (docs/how-to/transports.md).
    `kms_key` is the ARN of a KMS key of yours, by which tables, buckets, queues and logs are encrypted. A directory
    bucket takes one key in its life: never change the key of a stage that has such zones (docs/how-to/encrypt.md).

    `emr_release` is the release of the EMR Serverless application, None for no application. All its runs together use
    `emr_vcpus_max` vCPU at most, each with 4 GB. With `has_catalog`, jobs archive topics into tables of Glue's catalog,
    else into Parquet. The job archive may read the secret `registry_secret` of Secrets Manager, which opens a schema
    registry, and with `reads_glue_schemas` the schemas of AWS Glue's (docs/how-to/archive.md). `scheduled_jobs` names
    the jobs whose schedules are on. By default no schedule is on, because each run costs.
    """

    name: str
    region: str | None = None
    storage_profile: Profile | None = None
    has_directory_buckets: bool = True
    inline_bytes_max: int | None = None
    python_version: str = "3.14"
    architecture: Architecture = "arm64"
    pip_platforms: tuple[str, ...] | None = (
        "manylinux_2_28_aarch64",
        "manylinux_2_17_aarch64",
        "manylinux2014_aarch64",
    )
    function_sizes: Mapping[str, FunctionSize] = field(default_factory=lambda: FUNCTION_SIZES)
    account_concurrency: int | None = None
    reserved_concurrency: Mapping[str, int] = field(default_factory=dict)
    waits_max: int | None = None
    request_rate: RequestRate | None = REQUEST_RATE
    route_rates: Mapping[str, RequestRate] = field(default_factory=lambda: ROUTE_RATES)
    api_requests_per_s: int | None = None
    timer_retry_s: int = 60  # a promotion that failed: not shorter than the timeout of promote
    timers_always_on: bool = False
    private_targets: tuple[str, ...] = ()
    mirror_roles: tuple[str, ...] = ()
    repair_retry_s: int = 360  # six times the timeout of replicate, as the Lambda guide asks for
    job_environments: Mapping[str, Mapping[str, str]] | None = None
    keeps_data_on_delete: bool = True
    empties_buckets: bool = True
    enforces_tls: bool = True
    tells_item_keys: bool = True
    traces: bool = False
    log_level: str = "INFO"
    log_retention: str = "THREE_MONTHS"
    audit_log_retention: str = "ONE_YEAR"
    audit_retention_ms: int = AUDIT_RETENTION_MS_DEFAULT
    emr_release: str | None = "emr-spark-8.0.0"
    emr_vcpus_max: int = 64
    glue_version: str = "5.1"
    has_catalog: bool = True
    scheduled_jobs: frozenset[str] = frozenset()
    metrics: Metrics = field(default_factory=Metrics)
    has_alarms: bool = True
    alarm_topic_arn: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    warm_log_writes: int | None = None
    compaction_bytes_per_day: int = COMPACTION_BYTES_PER_DAY_DEFAULT
    topic_retention_ms: int | None = None
    restored_tables: RestoredTables | None = None
    canary: Canary | None = None
    acl_default: AclDefault = "deny"
    super_principals: tuple[str, ...] = ()
    jwt: Jwt | None = None
    direct: bool = True
    kms_key: str | None = None
    registry_secret: str | None = None
    reads_glue_schemas: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError if nothing could stop the canary, and for wrong reserves, sizes and super principals."""
        if self.canary is not None and self.canary.is_gradual and not self.has_alarms:
            raise ValueError(f"stage {self.name} has a canary and no alarms that could stop it: set canary=AT_ONCE")
        for name, least in _LEAST.items():
            number = getattr(self, name)
            if number is not None and number < least:
                raise ValueError(f"{name}={number}: give {least} or more")
        for network in self.private_targets:
            ip_network(network)  # raises
        _check_roles(self.mirror_roles)
        is_other = "aarch64" if self.architecture == "x86_64" else "x86_64"
        if wrong := next((tag for tag in self.pip_platforms or () if is_other in tag), None):
            raise ValueError(f"architecture={self.architecture!r} with pip_platforms {wrong!r}: give tags of that kind")
        bounds_of_setting(self.inline_bytes_max)  # raises
        if token := next((each for each in self.super_principals if each.startswith("jwt:")), None):
            raise ValueError(f"super principal {token!r:.100}: a token is none, add rules for it (penstock acls add)")
        check_reserved(self.reserved_concurrency, self.function_sizes, self.account_concurrency)
        handlers = {route.handler for route in ROUTES}
        for setting, given, known in (
            ("function_sizes", self.function_sizes, FUNCTION_SIZES.keys()),
            ("route_rates", self.route_rates, handlers),
            ("job_environments", self.job_environments or {}, self.function_sizes.keys()),
        ):
            if unknown := next(iter(given.keys() - known), None):
                raise ValueError(f"{setting} has {unknown!r:.100}: name some of {', '.join(sorted(known))}")

    def check_region(self) -> None:
        """Raises ValueError, with the way out, for zones, a key and a release of EMR that the region cannot have."""
        _ = self.zones
        if self.registry_secret is not None and not _SECRET.fullmatch(self.registry_secret):
            raise ValueError(
                f"registry_secret={self.registry_secret!r:.300}: give the name of a secret, which has letters, digits "
                "and /_+=.@- only; an ARN ends with it and six letters"
            )
        key_region = _KEY_REGION.match(self.kms_key or "")
        if key_region is not None and self.region is not None and key_region[1] != self.region:
            raise ValueError(
                f"kms_key={self.kms_key!r} is a key of {key_region[1]}, and the stage is in {self.region}: a service "
                "takes keys of its own region, so give one of there, such as the replica of a multi-Region key"
            )
        if self.emr_release is not None and self.region in _WITHOUT_EMR:
            raise ValueError(
                f"region {self.region} has no {self.emr_release}, and CloudFormation would roll the whole stack back: "
                "pass -c emr_release=off (the jobs then run on Glue only), or take another region"
            )

    def rate(self, rate: RequestRate) -> RequestRate:
        """The rate as the account has room for it."""
        return scaled(rate, self.api_requests_per_s or account_rate(self.region))

    @property
    def profile(self) -> Profile:
        """The profile that is set, else that of the region. Raises ValueError if neither is known."""
        if self.storage_profile is not None:
            return self.storage_profile
        if self.region is None:
            raise ValueError(
                f"stage {self.name} has neither a region nor a storage profile: give the stack a region, "
                f"set AWS_REGION, or pass -c profile=NAME, one of {', '.join(PROFILES)}"
            )
        return profile_of_region(self.region)

    @property
    def zones(self) -> tuple[ZonePlan, ...]:
        """The zones, in the order of their bits. Raises ValueError if the region cannot have them."""
        return zone_plans(self.profile, self.region, has_directory_buckets=self.has_directory_buckets)

    @property
    def repairs_zones(self) -> bool:
        """True if there are several zones, so that one may be behind another. S3 repairs a single bucket by itself."""
        return len(self.zones) > 1

    @property
    def environments_of_jobs(self) -> Mapping[str, Mapping[str, str]]:
        """Variables of scheduled functions by function: those of the profile, changed by `job_environments`."""
        usual = TIERED_JOB_ENVIRONMENTS if self.tiers_zones else JOB_ENVIRONMENTS
        bound = {HOURLY: {"PENSTOCK_CLEAN_BYTES_PER_DAY": str(self.compaction_bytes_per_day)}}
        given = self.job_environments or {}
        return {
            name: {**usual.get(name, {}), **bound.get(name, {}), **given.get(name, {})} for name in {**usual, **given}
        }

    @property
    def small_appends(self) -> InlineBounds:
        """The bounds of the appends that become items."""
        return bounds_of_setting(self.inline_bytes_max, self.profile)

    @property
    def tiers_zones(self) -> bool:
        """True if the zones cost more for each byte than the archive, so that old segments move there."""
        return self.profile in ("express3", "express2")


def _host_architecture() -> Architecture:
    return "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"


STAGES: Mapping[str, StageSettings] = {
    # The emulator runs functions with the machine's Python, speaks plain HTTP and has no directory buckets.
    "local": StageSettings(
        name="penstock",
        storage_profile="local",
        has_directory_buckets=False,
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        architecture=_host_architecture(),
        pip_platforms=None,
        function_sizes={**FUNCTION_SIZES, "replicate": FunctionSize(memory_mb=512, timeout_s=10)},
        request_rate=None,  # the emulator enforces none
        route_rates={},
        repair_retry_s=10,
        account_concurrency=100,  # what a laptop bears
        waits_max=50,
        timers_always_on=True,
        private_targets=("127.0.0.0/8", "::1/128"),  # endpoints of your own machine
        keeps_data_on_delete=False,
        empties_buckets=False,  # `penstock local` removes the emulator's state as a whole
        enforces_tls=False,
        log_level="DEBUG",  # the emulator takes 50 ms longer for a call that logs nothing
        log_retention="ONE_DAY",
        audit_log_retention="ONE_DAY",
        emr_release=None,
        has_catalog=False,
        metrics=Metrics(of="all"),  # the emulator bills no series
        tells_item_keys=False,
        acl_default="allow",
        super_principals=("arn:aws:iam::000000000000:user/penstock-local",),  # the user of the clients
        has_alarms=False,
    ),
    "dev": StageSettings(
        name="penstock-dev",
        storage_profile="standard1",
        keeps_data_on_delete=False,
        log_level="DEBUG",
        log_retention="ONE_WEEK",
        audit_log_retention="ONE_WEEK",
        acl_default="allow",
    ),
    # The alarms ring after three bad minutes, and CloudWatch is up to two minutes late: five minutes would be too few.
    "prod": StageSettings(name="penstock", region="us-east-1", canary=Canary(percent=10, minutes=10)),
}


def settings_of(stage: str, base: str | None = None) -> StageSettings:
    """Returns the settings of a stage by its name.

    A name that is not in `STAGES` is that of a stage of yours. It has the settings of `base`, by default prod, its
    resources begin with `penstock-<stage>`, and its region is that of your credentials. Raises ValueError for a text
    that cannot be a name, and for a base that is none or that the stage cannot have.
    """
    if base is not None and (base not in _BASES or stage in STAGES):
        raise ValueError(
            f"base={base!r} of stage={stage!r}: give {' or '.join(_BASES)}, to a stage that is none of "
            f"{', '.join(STAGES)}"
        )
    if stage in STAGES:
        return STAGES[stage]
    try:
        check_name(_PREFIX + stage)
    except ValueError as error:
        raise ValueError(f"stage={stage!r} is none of {', '.join(STAGES)}, and no name of yours: {error}") from error
    return replace(STAGES[base or "prod"], name=_PREFIX + stage, region=None)


def stack_name(settings: StageSettings) -> str:
    """Returns the name of the stack of `app.py`. No two stages share one, as `orders-2` and `orders2` might."""
    of_stages = {stage.name: stage.name.title().replace("-", "") for stage in STAGES.values()}
    return of_stages.get(settings.name, settings.name)


def check_name(name: str) -> None:
    """Raises ValueError for a text that cannot begin the names of resources."""
    if len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise ValueError(
            f"name={name!r}: give lower-case letters and digits, in words that `-` joins, {NAME_LENGTH_MAX} at most"
        )


def settings_of_context(context: Mapping[str, str | None], region: str | None) -> StageSettings:
    """Returns the settings of `stage` (by default prod), with `region` and `profile` where the CDK context has them.

    `region` is that of your credentials, which a stage without a region takes. Raises ValueError, with the value and
    what is allowed, for a wrong stage, base or profile and for a text that names no region.
    """
    return with_place(settings_of(context.get("stage") or "prod", context.get("base")), context, region)


def with_place(settings: StageSettings, context: Mapping[str, str | None], region: str | None) -> StageSettings:
    """Returns the settings with the region and the profile of the context. Raises as `settings_of_context`."""
    given, profile = context.get("region"), context.get("profile")
    named = settings.region if given is None else given
    if named is not None and not _REGION.fullmatch(named):
        raise ValueError(f"region={named!r} is no region: give one like eu-central-1")
    known = {name: name for name in PROFILES}
    if profile is not None and profile not in known:
        raise ValueError(f"profile={profile!r} does not exist: choose one of {', '.join(PROFILES)}")
    return replace(
        settings,
        region=named or region,
        storage_profile=settings.storage_profile if profile is None else known[profile],
    )


METADATA_KEY = "Penstock"
_WITH_VALUES_OF_YOURS = (
    "tags",
    "alarm_topic_arn",
    "restored_tables",
    "super_principals",
    "kms_key",
    "registry_secret",
)  # names and ARNs of the account

_LATER = ("kms_key", "registry_secret", "reads_glue_schemas")


def settings_text(settings: StageSettings) -> str:
    """The settings as one text: the CDK would leave out those that are null.

    A stage without one of the `_LATER` does not tell so: its template is as it was before there was the setting.
    """
    told = told_settings(settings)
    return json.dumps({name: value for name, value in told.items() if value or name not in _LATER})


def told_settings(settings: StageSettings) -> dict[str, Any]:
    """Each setting by name, as JSON has it. Of those with names of your account it tells only whether they are set."""
    told = {name: _plain(value) for name, value in asdict(settings).items()}
    return told | {name: bool(told[name]) for name in _WITH_VALUES_OF_YOURS}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
