"""The environment variables that Penstock reads, by the program that reads them."""

from penstock.configuration import ALLOW_HTTP
from penstock.http.named_transport import AUTO, TRANSPORT
from penstock.tokens import TOKEN, TOKEN_FILE
from penstock.tuning.setting import Section, Setting

DEFAULT_STACK = "Penstock"

CONNECTION = Section(
    name="connection",
    title="Connection",
    how="Environment variables of clients and commands, or the file `.penstock/local.env`; arguments go before both.",
    settings=(
        Setting(
            name="PENSTOCK_URL",
            default=None,
            effect="The URL of the API, an output of `cdk deploy`; without it clients look for a local service.",
        ),
        Setting(name=TRANSPORT, default=AUTO, effect="What carries calls: `auto`, `http`, `lambda` or `embedded`."),
        Setting(name=ALLOW_HTTP, default=None, effect="With `1`, a URL of `http://` may lead to another machine."),
        Setting(
            name="PENSTOCK_STACK",
            default=DEFAULT_STACK,
            effect="The stack of jobs, `doctor`, `prove`, `console`, `lambda` and `embedded`.",
        ),
        Setting(
            name="PENSTOCK_FUNCTIONS",
            default=None,
            effect="The functions that `lambda` invokes, the output `FunctionsArn`; for `auto` with a URL, a hint.",
        ),
        Setting(
            name="AWS_REGION",
            default=None,
            effect="The region to sign for, unless the URL tells it; AWS_DEFAULT_REGION and the profile come next.",
        ),
        Setting(name="AWS_ENDPOINT_URL", default=None, effect="Jobs and commands call AWS at this URL: the emulator."),
        Setting(name="AWS_ENDPOINT_URL_LAMBDA", default=None, effect="Clients invoke functions at this URL."),
        Setting(name="AWS_ENDPOINT_URL_STS", default=None, effect="Clients sign proofs for this URL of STS."),
        Setting(
            name="AWS_ACCESS_KEY_ID",
            default=None,
            effect="The key to sign with; without it AWS's chain of profiles and roles decides.",
            is_secret=True,
        ),
        Setting(name="AWS_SECRET_ACCESS_KEY", default=None, effect="The secret of that key.", is_secret=True),
        Setting(
            name=TOKEN_FILE,
            default=None,
            effect="The file with a token (JWT) to send in place of a signature; clients read it anew in time.",
        ),
        Setting(name=TOKEN, default=None, effect="The token itself, if there is no such file.", is_secret=True),
        Setting(
            name="PENSTOCK_REGISTRY_AUTH",
            default=None,
            effect="The user and the password, `user:password`, of the registry that `consume --registry` names.",
            is_secret=True,
        ),
        Setting(name="AWS_PROFILE", default=None, effect="The profile of AWS's configuration files to sign with."),
    ),
)

# The stack sets these for its functions and jobs. A job on your own machine finds some of them in a file.
STORAGE = Section(
    name="storage",
    title="Functions and jobs",
    how="The stack sets these for its functions and jobs, `.penstock/jobs.env` for a job on your machine.",
    settings=(
        Setting(name="PENSTOCK_TOPICS_TABLE", default=None, effect="The table of topics."),
        Setting(name="PENSTOCK_LOG_TABLE", default=None, effect="The table of heads, pages and timers."),
        Setting(name="PENSTOCK_GROUPS_TABLE", default=None, effect="The table of groups and subscriptions."),
        Setting(name="PENSTOCK_REPAIR_QUEUE_URL", default=None, effect="The queue of repairs, if there are zones."),
        Setting(name="PENSTOCK_ZONES", default=None, effect="The zones and their buckets, in the order of their bits."),
        Setting(name="PENSTOCK_ARCHIVE", default=None, effect="The bucket of compacted and moved segments."),
        Setting(
            name="PENSTOCK_INLINE_BYTES_MAX",
            default="0",
            effect="Appends of up to so many bytes become items of the log table; functions that append have it.",
        ),
        Setting(name="PENSTOCK_RESULTS", default=None, effect="The bucket of results and archived tables."),
        Setting(name="PENSTOCK_CATALOG", default=None, effect="The catalog that archived tables are registered in."),
        Setting(
            name="PENSTOCK_REGISTRY_SECRET", default=None, effect="The secret that opens the archive's schema registry."
        ),
        Setting(name="PENSTOCK_PROFILE", default="local", effect="The storage profile that `GET /v1/zones` tells."),
        Setting(name="PENSTOCK_WAKE_UPS", default=None, effect="The event API that wakes consumers."),
        Setting(
            name="PENSTOCK_TIMERS",
            default=None,
            effect="The queue and the rule that bring delayed records, which a program refuses without them.",
        ),
        Setting(
            name="PENSTOCK_DELIVERIES", default=None, effect="The queue of deliveries, and the switch of its rule."
        ),
        Setting(name="PENSTOCK_TARGETS", default=None, effect="The role that deliveries run under, and its networks."),
        Setting(name="PENSTOCK_JWT_ISSUER", default=None, effect="The issuer of the tokens that name callers."),
        Setting(name="PENSTOCK_JWT_CLAIM", default="sub", effect="The claim of a token that names its principal."),
        Setting(name="PENSTOCK_AUDIT_RETENTION_MS", default=None, effect="The retention that the topic `_audit` gets."),
        Setting(name="PENSTOCK_ACL_DEFAULT", default=None, effect="Whether rights without a rule are given."),
        Setting(name="PENSTOCK_DIRECT", default=None, effect="The stage's name, if functions take direct calls."),
        Setting(name="PENSTOCK_SUPER_PRINCIPALS", default=None, effect="Principals that may do everything."),
        Setting(name="PENSTOCK_WAITS", default=None, effect="The pool of instances that may wait, and how many may."),
        Setting(name="PENSTOCK_SESSIONS", default=None, effect="`ReadOnly` if the role only reads directory buckets."),
        Setting(name="PENSTOCK_METRICS", default="off", effect="The metrics of the stage: `off`, `topics` or `all`."),
        Setting(name="PENSTOCK_METRIC_SERIES", default=None, effect="How many topics and consumers have own series."),
        Setting(name="PENSTOCK_METRICS_ALWAYS", default=None, effect="The consumers with alarms, which have series."),
        Setting(
            name="PENSTOCK_BUDGET_MS", default=None, effect="A run of `promote` or `sweep` begins nothing after it."
        ),
        Setting(name="PENSTOCK_RETENTION_BUDGET_MS", default=None, effect="The same of a run of `retention`."),
        Setting(name="PENSTOCK_SCRUB_BUDGET_MS", default=None, effect="The same of a run of `scrub`."),
        Setting(name="PENSTOCK_TIER_BUDGET_MS", default=None, effect="The same of a run of `tier`."),
        Setting(name="PENSTOCK_CLEAN_BUDGET_MS", default=None, effect="The same of a run of `clean`."),
        Setting(name="PENSTOCK_CLEAN_BYTES_PER_DAY", default=None, effect="The runs of `clean` clean so many a day."),
        Setting(name="PENSTOCK_SCRUB_BYTES", default=None, effect="One run of `scrub` reads so many bytes."),
        Setting(
            name="PENSTOCK_LOG_START_GRACE_MS",
            default=None,
            effect="Retention keeps the segments of removed offsets for so long, for readers under way.",
        ),
        Setting(
            name="PENSTOCK_SWEEP_GRACE_MS",
            default=None,
            effect="The sweep removes an object that nothing refers to when it is so old.",
        ),
    ),
)

# What sets them is no person, or what they hold is no setting: a record for `penstock work`, a shell's completion.
NOT_SETTINGS = ("PENSTOCK_RECORD_", "PENSTOCK_RECORD_IS_NULL", "PENSTOCK_RECORD_TOPIC", "PENSTOCK_COMPLETE")
