"""The Lambda functions of a stage: one per entry of `grants_of`, each with its role, log group and environment."""

import json

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from penstock_cdk.service.function_role import function_role
from penstock_cdk.service.grants import Grants, grants_of
from penstock_cdk.service.measuring import metrics_environment
from penstock_cdk.service.push import DELIVER, PushQueues
from penstock_cdk.service.repair import RepairQueues
from penstock_cdk.service.targets import TargetsRole
from penstock_cdk.service.timers import PROMOTE, TimerQueues
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.settings import METRICS_NAMESPACE, UPKEEP, StageSettings
from penstock_cdk.storage.stage_storage import StageStorage
from penstock_cdk.walls import wait_pool
from penstock_core.acls.tokens import CLAIM_VARIABLE, DEFAULT_VARIABLE, ISSUER_VARIABLE, SUPER_VARIABLE
from penstock_core.direct.function_arn import FunctionsPlace
from penstock_core.log.inline import NO_ITEMS
from penstock_core.log.inline import VARIABLE as INLINE_VARIABLE
from penstock_core.quotas.bucket import VARIABLE as WAITS_VARIABLE
from penstock_core.quotas.bucket import format_wait_pool
from penstock_core.routes import ROUTE_BY_KEY, ROUTES
from penstock_core.stack_outputs import FUNCTIONS_VARIABLE

# Lambda then logs an invocation only if it failed. START, END and REPORT of each one would cost more than a log line.
SYSTEM_LOG_LEVEL = lambda_.SystemLogLevel.WARN
# X-Ray bills a trace of each run, and a run that waits for no caller has its log line.
_TRACED = frozenset(route.function for route in ROUTES)
# It tells clients the functions that they may invoke.
_TELLS_ADDRESSES = ROUTE_BY_KEY["GET /v1/metadata"].function
# They send messages to the queue that starts them, as long as there is work. Lambda would stop such a chain after 16
# invocations ("Use Lambda recursive loop detection to prevent infinite loops").
_STARTS_ITSELF = frozenset({DELIVER, PROMOTE})


class Functions(Construct):
    """`by_name` holds one function per entry of `grants_of`, by the name of its module.

    A function runs `handler` of `penstock_handlers.<name>`. All functions share the code `code`.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        storage: StageStorage,
        queues: RepairQueues | None,
        timers: TimerQueues,
        push: PushQueues,
        wake_ups: WakeUps,
        targets: TargetsRole,
        code: lambda_.Code,
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self._storage = storage
        self._queues = queues
        self._timers = timers
        self._push = push
        self._wake_ups = wake_ups
        self._targets = targets
        self._code = code
        self.by_name: dict[str, lambda_.Function] = {
            name: self.add(name, grants) for name, grants in grants_of(settings).items()
        }

    def add(self, name: str, grants: Grants) -> lambda_.Function:
        """Makes one more function."""
        settings = self._settings
        scope = Construct(self, construct_name(name))
        function_name = f"{settings.name}-{name.replace('_', '-')}"
        log_group = logs.LogGroup(
            scope,
            "Logs",
            log_group_name=f"/aws/lambda/{function_name}",
            retention=logs.RetentionDays[settings.log_retention],
            removal_policy=RemovalPolicy.DESTROY,
        )
        is_traced = settings.traces and name in _TRACED
        role = function_role(
            scope,
            settings=settings,
            grants=grants,
            storage=self._storage,
            queues=self._queues,
            timers=self._timers,
            push=self._push,
            wake_ups=self._wake_ups,
            targets=self._targets,
            log_group=log_group,
            function_name=function_name,
            traces=is_traced,
        )
        size = settings.function_sizes[name]
        is_arm = settings.architecture == "arm64"
        return lambda_.Function(
            scope,
            "Function",
            function_name=function_name,
            description=f"Penstock {name.replace('_', ' ')}",
            runtime=lambda_.Runtime(f"python{settings.python_version}", lambda_.RuntimeFamily.PYTHON),
            architecture=lambda_.Architecture.ARM_64 if is_arm else lambda_.Architecture.X86_64,
            code=self._code,
            handler=f"penstock_handlers.{name}.handler",
            memory_size=size.memory_mb,
            reserved_concurrent_executions=settings.reserved_concurrency.get(name),
            timeout=Duration.seconds(size.timeout_s),
            role=role.without_policy_updates() if is_traced else role,  # the CDK would repeat the rights of X-Ray
            log_group=log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            system_log_level_v2=SYSTEM_LOG_LEVEL,
            application_log_level_v2=lambda_.ApplicationLogLevel[settings.log_level],
            tracing=lambda_.Tracing.ACTIVE if is_traced else lambda_.Tracing.DISABLED,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if name in _STARTS_ITSELF else None,
            environment=self._environment(name, grants),
            # Old versions stay, so that an alias can go back to them. A release that is rolled back leaves none.
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE),
        )

    def _environment(self, name: str, grants: Grants) -> dict[str, str]:
        settings, tables = self._settings, self._storage.tables
        return {
            "PENSTOCK_TOPICS_TABLE": tables.topics.table_name,
            "PENSTOCK_LOG_TABLE": tables.log.table_name,
            "PENSTOCK_GROUPS_TABLE": tables.groups.table_name,
            "PENSTOCK_PROFILE": self._settings.profile,
            "PENSTOCK_ZONES": self._storage.zones.environment,
            "PENSTOCK_ARCHIVE": self._storage.archive.bucket_name,
            **(
                {INLINE_VARIABLE: str(settings.small_appends)}
                if settings.small_appends != NO_ITEMS and grants.writes_zones
                else {}
            ),
            **self._sessions_environment(grants),
            **({} if self._queues is None else {"PENSTOCK_REPAIR_QUEUE_URL": self._queues.repairs.queue_url}),
            "PENSTOCK_WAKE_UPS": self._wake_ups.hosts,
            **(
                {"PENSTOCK_TIMERS": self._timers.environment}
                if grants.schedules_records or grants.starts_schedules or grants.switches_timers or grants.promotes
                else {}
            ),
            **(
                {"PENSTOCK_DELIVERIES": self._push.environment}
                if grants.dispatches or grants.starts_deliveries or grants.switches_deliveries or grants.delivers
                else {}
            ),
            **({"PENSTOCK_TARGETS": self._targets.environment} if grants.reaches_targets else {}),
            **(_acl_environment(settings) if name in _TRACED else {}),
            **({"PENSTOCK_DIRECT": settings.name} if settings.direct and name in _TRACED else {}),
            **self._addresses_environment(name),
            "POWERTOOLS_SERVICE_NAME": settings.name,  # the dimension of metrics: one set for all functions
            "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
            "POWERTOOLS_LOG_LEVEL": settings.log_level,
            **({"PENSTOCK_AUDIT_RETENTION_MS": str(settings.audit_retention_ms)} if name == UPKEEP else {}),
            **metrics_environment(settings, name),
            **_wait_environment(settings, name),
            **settings.environments_of_jobs.get(name, {}),
        }

    def _addresses_environment(self, name: str) -> dict[str, str]:
        """The functions that clients may invoke, for the function that tells them."""
        is_told = self._settings.direct and name == _TELLS_ADDRESSES
        return {FUNCTIONS_VARIABLE: functions_arn(self, self._settings)} if is_told else {}

    def _sessions_environment(self, grants: Grants) -> dict[str, str]:
        """The mode of sessions with directory buckets, for a role that may only read there."""
        has_sessions = any(plan.az_id is not None for plan in self._settings.zones)
        reads_only = grants.reads_zones and not grants.writes_zones and not grants.sweeps_zones
        return {"PENSTOCK_SESSIONS": "ReadOnly"} if has_sessions and reads_only else {}


def _acl_environment(settings: StageSettings) -> dict[str, str]:
    tokens = {} if settings.jwt is None else {ISSUER_VARIABLE: settings.jwt.issuer, CLAIM_VARIABLE: settings.jwt.claim}
    return {**rights_without_rules(settings), **tokens}


def rights_without_rules(settings: StageSettings) -> dict[str, str]:
    """The variables that decide without access rules."""
    principals = {SUPER_VARIABLE: json.dumps(settings.super_principals)} if settings.super_principals else {}
    return {DEFAULT_VARIABLE: settings.acl_default, **principals}


def _wait_environment(settings: StageSettings, name: str) -> dict[str, str]:
    pool = wait_pool(name, settings)
    return {} if pool is None else {WAITS_VARIABLE: format_wait_pool(pool)}


def functions_arn(scope: Construct, settings: StageSettings) -> str:
    """The ARN by which clients name the functions of the stage."""
    stack = Stack.of(scope)
    return FunctionsPlace(
        partition=stack.partition, region=stack.region, account=stack.account, stage=settings.name
    ).arn


def construct_name(name: str) -> str:
    """The id of a function's construct: `RecoverZones` for `recover_zones`."""
    return name.title().replace("_", "")
