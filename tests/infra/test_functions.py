"""The Lambda functions: sizes, environment, log groups."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Template

from penstock_cdk.overrides import overridden
from penstock_cdk.service.functions import construct_name, rights_without_rules
from penstock_cdk.service.tasks import TASKS, tasks_of
from penstock_cdk.settings import STAGES, StageSettings
from penstock_cdk.walls import pollers_max, wait_pool
from penstock_core.limits import FETCH_WAIT_MS_MAX, LOG_START_GRACE_MS, TIERED_SWEEP_GRACE_MS
from penstock_core.log.inline import BOUNDS_OF_PROFILES, NO_ITEMS
from penstock_core.quotas.bucket import format_wait_pool
from penstock_core.routes import ROUTES
from penstock_core.zones.zone_state import FUNCTION_MS_MAX
from penstock_handlers import hourly, upkeep
from penstock_service.adapters.direct.places import places_of
from tests.infra.conftest import Resources, entry_of, resources_of, settings_named, zones_in_environment
from tests.infra.powers import JOBS, permissions_of_roles
from tests.infra.templates import functions_in, name_of, of_type

pytestmark = pytest.mark.synth

OF_ROUTES = {route.function for route in ROUTES}

FUNCTIONS = (
    "admin",
    "deliver",
    "dispatch",
    "fetch",
    "groups",
    "hourly",
    "produce",
    "promote",
    "replicate",
    "share",
    "sweep",
    "transactions",
    "upkeep",
)
HANDLERS = Path(__file__).parents[2] / "functions" / "penstock_handlers"


def functions_of(stage: str) -> list[str]:
    """A stage with one zone has nothing to repair."""
    left_out = () if STAGES[stage].repairs_zones else ("replicate",)
    return [name for name in FUNCTIONS if name not in left_out]


JOB_ENVIRONMENTS = {
    "promote": {"PENSTOCK_BUDGET_MS": "45000"},
    "upkeep": {"PENSTOCK_RETENTION_BUDGET_MS": "200000", "PENSTOCK_LOG_START_GRACE_MS": "60000"},
    "hourly": {
        "PENSTOCK_SCRUB_BUDGET_MS": "180000",
        "PENSTOCK_SCRUB_BYTES": "1073741824",
        "PENSTOCK_TIER_BUDGET_MS": "720000",
        "PENSTOCK_CLEAN_BUDGET_MS": "720000",
        "PENSTOCK_CLEAN_BYTES_PER_DAY": "8589934592",
    },
    "sweep": {
        "PENSTOCK_BUDGET_MS": "720000",
        "PENSTOCK_LOG_START_GRACE_MS": "60000",
        "PENSTOCK_SWEEP_GRACE_MS": "86400000",
    },
}


def test_files_of_the_handlers_are_the_functions() -> None:
    files = {path.stem.replace("_", "-") for path in HANDLERS.glob("*.py")} - {"--init--", "router"}
    assert files == {*FUNCTIONS, "provision"}
    assert len(files) <= 16


def test_functions_are_the_handlers_with_their_settings(resources: Resources, stage: str) -> None:
    settings = STAGES[stage]
    found = functions_in(resources).values()
    assert sorted(function["FunctionName"] for function in found) == [
        f"{settings.name}-{name}" for name in functions_of(stage)
    ]
    for function in found:
        name = function["FunctionName"].removeprefix(f"{settings.name}-").replace("-", "_")
        size = settings.function_sizes[name]
        assert function["Handler"] == f"penstock_handlers.{name}.handler"
        assert function["Runtime"] == f"python{settings.python_version}"
        assert function["Architectures"] == [settings.architecture]
        assert (function["MemorySize"], function["Timeout"]) == (size.memory_mb, size.timeout_s)
        assert function.get("ReservedConcurrentExecutions") == settings.reserved_concurrency.get(name)
        is_called = name in {route.function for route in ROUTES}
        assert (function.get("TracingConfig") == {"Mode": "Active"}) is (settings.traces and is_called)


def test_nothing_is_reserved_unless_the_account_is_known(resources: Resources) -> None:
    """Lambda refuses to reserve the last hundred instances, and a new account may have 10."""
    assert not any("ReservedConcurrentExecutions" in each for each in functions_in(resources).values())


@pytest.mark.parametrize("account", [10, 100, 199, 200, 399, 1_000, 5_000])
def test_walls_fit_into_the_account(account: int) -> None:
    reserved = overridden(STAGES["prod"], {"account_concurrency": str(account)}.get).reserved_concurrency
    polls, writes = {"fetch", "share"}, {"produce", "transactions", "groups"}
    assert reserved.keys() == (polls | writes if account >= 200 else set())
    assert all(instances >= 6 for instances in reserved.values())
    assert sum(reserved[name] for name in polls & reserved.keys()) <= account // 2
    assert account - sum(reserved.values()) >= min(account, max(100, account // 4))


@pytest.mark.parametrize(
    ("context", "pools"),
    [
        ({}, {"fetch": "stage=2", "share": "stage=2"}),  # as in a new account
        ({"account_concurrency": "10"}, {"fetch": "stage=2", "share": "stage=2"}),
        ({"account_concurrency": "1000"}, {"fetch": "fetch=135", "share": "share=67"}),
        (
            {"account_concurrency": "1000", "reserved_concurrency": "fetch=1"},
            {"fetch": "fetch=1", "share": "share=67"},
        ),
        ({"account_concurrency": "1000", "waits_max": "0"}, {"fetch": "stage=0", "share": "stage=0"}),
    ],
)
def test_waiting_requests_leave_instances_to_others(context: dict[str, str], pools: dict[str, str]) -> None:
    settings = overridden(STAGES["prod"], context.get)
    found = {name: pool for name in settings.function_sizes if (pool := wait_pool(name, settings)) is not None}
    assert {name: format_wait_pool(pool) for name, pool in found.items()} == pools


@pytest.mark.parametrize(
    ("account", "deliver", "promote"),
    [(None, 2, 2), (10, 2, 2), (200, 20, 10), (1_000, 100, 50), (50_000, 1_000, 1_000)],
)
def test_pollers_of_queues_leave_instances_to_others(account: int | None, deliver: int, promote: int) -> None:
    settings = replace(STAGES["prod"], account_concurrency=account)
    assert [pollers_max(name, settings) for name in ("deliver", "promote", "replicate")] == [deliver, promote, promote]


def test_lambda_holds_each_queue_to_its_instances(resources: Resources, stage: str) -> None:
    found = {
        name: mapping.get("ScalingConfig", {}).get("MaximumConcurrency")
        for name, mapping in of_type(resources, "AWS::Lambda::EventSourceMapping").items()
        if "StreamArn" not in str(mapping["EventSourceArn"])
    }
    assert len(found) == (3 if settings_named(stage).repairs_zones else 2)
    assert all(found.values())


@pytest.mark.parametrize("name", ["prod", "dev@eu-central-1"])
def test_function_whose_role_only_reads_directory_buckets_asks_for_sessions_that_read(
    template: Callable[[str], dict[str, Any]], name: str
) -> None:
    resources = resources_of(template(name))
    may_write = {each.holder for each in permissions_of_roles(resources) if each.power() == ("open to change", "zones")}
    may_read = {each.holder for each in permissions_of_roles(resources) if each.power() == ("read", "zones")}
    readers = may_read - may_write - JOBS if name == "prod" else set()  # no other stage has directory buckets
    for function in functions_in(resources).values():
        variables = {key: value for key, value in function["Environment"]["Variables"].items() if "SESSIONS" in key}
        found = places_of({"AWS_REGION": "us-east-1", **variables})
        assert found is not None
        assert found.reads_only is (construct_name(function["Handler"].split(".")[1]) in readers)
    assert bool(readers) == (name == "prod")


def test_functions_that_append_and_programs_know_the_bound_of_inline_segments_when_the_stage_has_one(
    make_stack_of: Callable[[StageSettings], Stack],
) -> None:
    settings = replace(settings_named("dev"), inline_bytes_max=960)
    template = Template.from_stack(make_stack_of(settings)).to_json()
    found = {
        each["FunctionName"].removeprefix("penstock-dev-")
        for each in functions_in(template["Resources"]).values()
        if each["Environment"]["Variables"].get("PENSTOCK_INLINE_BYTES_MAX") == "960"
    }
    assert found == THAT_APPEND
    assert template["Outputs"]["InlineBytesMax"]["Value"] == "960"


def test_bounds_of_small_appends_are_by_default_those_at_which_the_profile_costs_less() -> None:
    dev = settings_named("dev")
    assert dev.small_appends == BOUNDS_OF_PROFILES["standard1"]
    assert replace(dev, inline_bytes_max=0).small_appends == settings_named("local").small_appends == NO_ITEMS
    for profile in ("express3", "express2", "standard1"):
        assert replace(dev, storage_profile=profile).small_appends == BOUNDS_OF_PROFILES[profile]


def test_reserved_instances_are_in_the_template(make_stack_of: Callable[[StageSettings], Stack]) -> None:
    context = {"account_concurrency": "1000", "reserved_concurrency": "produce=250,admin=20"}
    settings = overridden(settings_named("dev"), context.get)
    template = Template.from_stack(make_stack_of(settings)).to_json()
    found = {
        each["FunctionName"].removeprefix("penstock-dev-").replace("-", "_"): each.get("ReservedConcurrentExecutions")
        for each in functions_in(template["Resources"]).values()
    }
    assert {name: instances for name, instances in found.items() if instances is not None} == {
        "fetch": 270,
        "share": 135,
        "produce": 250,
        "transactions": 45,
        "groups": 75,
        "admin": 20,
    }


WITH_TIMERS = ("admin", "produce", "transactions", "promote", "upkeep")
THAT_APPEND = {"produce", "transactions", "share", "admin", "deliver", "promote", "upkeep"}

WITH_DELIVERIES = ("dispatch", "admin", "deliver", "upkeep")


def targets_of(stage: str) -> str:
    """The role that calls targets, and on the local stage the networks of your own machine."""
    role = f"arn:<AWS::Partition>:iam::<AWS::AccountId>:role/{STAGES[stage].name}-targets-"
    region = settings_named(stage).region or "<AWS::Region>"
    networks = ",127.0.0.0/8,::1/128" if stage == "local" else ""
    return f"{role}{region}{networks}"


def triggers_of_timers(stage: str) -> str:
    """The queue's URL, the rule, the queue's ARN, and the function of a first run: none where triggers are on."""
    settings = STAGES[stage]
    called = "" if settings.timers_always_on else f"{settings.name}-promote{':live' if settings.canary else ''}"
    return f"<TimersSeconds>,{settings.name}-promote,<TimersSeconds>,{called}"


def triggers_of_deliveries(stage: str) -> str:
    """The queue's URL and ARN, and the rule of the look."""
    return f"<PushDeliveries>,<PushDeliveries>,{STAGES[stage].name}-look-at-subscriptions"


def functions_of_stage(stage: str) -> str:
    """The ARN by which clients name the functions."""
    region = settings_named(stage).region or "<AWS::Region>"
    return f"arn:<AWS::Partition>:lambda:{region}:<AWS::AccountId>:function:{STAGES[stage].name}"


def metrics_in_environment(stage: str, function: str) -> dict[str, str]:
    """The local stage has all metrics, and the others have none, because each series costs."""
    if stage != "local":
        return {}
    return {"PENSTOCK_METRICS": "all", **({"PENSTOCK_METRIC_SERIES": "10,20"} if function == "upkeep" else {})}


def bounds_of_items(stage: str, function: str) -> dict[str, str]:
    """Small appends are items in each stage but the local one."""
    bounds = settings_named(stage).small_appends
    copiers = {"hourly", "replicate"} if settings_named(stage).tiers_zones else set()  # they write zones, too
    if stage == "local" or function not in THAT_APPEND | copiers:
        return {}
    return {"PENSTOCK_INLINE_BYTES_MAX": f"{bounds.expiring_bytes},{bounds.swept_bytes}"}


def test_environment_names_tables_and_zones(resources: Resources, stage: str) -> None:
    waits = "stage=50" if stage == "local" else "stage=2"
    for function in functions_in(resources).values():
        environment = {name: name_of(value) for name, value in function["Environment"]["Variables"].items()}
        own = function["Handler"].split(".")[1]
        environment.pop("PENSTOCK_SESSIONS", None)  # it has a test of its own
        assert environment == {
            "PENSTOCK_TOPICS_TABLE": "<TablesTopics>",
            "PENSTOCK_LOG_TABLE": "<TablesLog>",
            "PENSTOCK_GROUPS_TABLE": "<TablesGroups>",
            **({"PENSTOCK_REPAIR_QUEUE_URL": "<RepairQueuesRepairs>"} if STAGES[stage].repairs_zones else {}),
            "PENSTOCK_PROFILE": settings_named(stage).profile,
            "PENSTOCK_ZONES": zones_in_environment(stage),
            "PENSTOCK_ARCHIVE": "<ArchiveBucket>",
            "PENSTOCK_WAKE_UPS": "<WakeUpsEventApi.Dns.Http>,<WakeUpsEventApi.Dns.Realtime>",
            **({"PENSTOCK_TIMERS": triggers_of_timers(stage)} if own in WITH_TIMERS else {}),
            **({"PENSTOCK_DELIVERIES": triggers_of_deliveries(stage)} if own in WITH_DELIVERIES else {}),
            **({"PENSTOCK_TARGETS": targets_of(stage)} if own in ("admin", "deliver") else {}),
            "POWERTOOLS_SERVICE_NAME": STAGES[stage].name,
            "POWERTOOLS_METRICS_NAMESPACE": "Penstock",
            "POWERTOOLS_LOG_LEVEL": STAGES[stage].log_level,
            **({"PENSTOCK_AUDIT_RETENTION_MS": "31536000000"} if own == "upkeep" else {}),
            **metrics_in_environment(stage, own),
            **bounds_of_items(stage, own),
            **(rights_without_rules(STAGES[stage]) if own in OF_ROUTES else {}),
            **({"PENSTOCK_DIRECT": STAGES[stage].name} if STAGES[stage].direct and own in OF_ROUTES else {}),
            **({"PENSTOCK_FUNCTIONS": functions_of_stage(stage)} if STAGES[stage].direct and own == "admin" else {}),
            **({"PENSTOCK_WAITS": waits} if own in ("fetch", "share") else {}),
            **JOB_ENVIRONMENTS.get(own, {}),
            **({"PENSTOCK_SWEEP_GRACE_MS": "43200000"} if own == "sweep" and STAGES[stage].tiers_zones else {}),
        }


@pytest.mark.parametrize("name", ["fetch", "share"])
def test_fetch_may_wait_as_long_as_the_api_promises_and_ends_before_the_gateway_does(name: str, stage: str) -> None:
    assert FETCH_WAIT_MS_MAX / 1000 + 5 <= STAGES[stage].function_sizes[name].timeout_s < 30


@pytest.mark.parametrize("name", ["produce", "transactions", "share", "admin"])
def test_writers_end_within_the_time_that_a_zone_which_catches_up_counts_on(name: str, stage: str) -> None:
    assert STAGES[stage].function_sizes[name].timeout_s * 1_000 <= FUNCTION_MS_MAX


def test_recover_zones_runs_each_minute(zoned_resources: Resources, zoned_stage: str) -> None:
    rules = of_type(zoned_resources, "AWS::Events::Rule")
    [rule] = [rule for rule in rules.values() if rule["Name"].endswith("-recover-zones")]
    [target] = rule["Targets"]
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert name_of(target["Arn"]) == entry_of(zoned_stage, "Upkeep")
    assert target["Input"] == '{"task":"recover_zones"}'


@pytest.mark.parametrize("name", ["audit", "look_at_subscriptions", "measure", "recover_zones"])
def test_task_ends_by_its_budget_before_its_next_run(name: str) -> None:
    assert TASKS[name].rate.to_milliseconds() > upkeep.BUDGET_MS


def test_each_task_has_a_rule_that_tells_it_to_its_function(resources: Resources, stage: str) -> None:
    rules = [each for each in of_type(resources, "AWS::Events::Rule").values() if "ScheduleExpression" in each]
    told = {}
    for rule in rules:
        [target] = rule["Targets"]
        name = rule["Name"].removeprefix(f"{STAGES[stage].name}-").replace("-", "_")
        told[name] = name_of(target["Arn"])
        is_shared = told[name] != entry_of(stage, construct_name(name))
        assert target.get("Input") == (f'{{"task":"{name}"}}' if is_shared else None)
        assert target["RetryPolicy"] == {"MaximumRetryAttempts": 0}
    tasks = tasks_of(STAGES[stage])
    assert told == {name: entry_of(stage, construct_name(task.function)) for name, task in tasks.items()}


def test_each_function_of_several_tasks_has_all_that_the_schedules_tell_it() -> None:
    for function, module in {"upkeep": upkeep, "hourly": hourly}.items():
        runs = {name.removeprefix("run_") for name in vars(module) if name.startswith("run_")}
        assert runs == {name for name, task in TASKS.items() if task.function == function}


def test_every_function_logs_to_a_group_of_its_own_that_forgets(resources: Resources) -> None:
    groups = of_type(resources, "AWS::Logs::LogGroup")
    functions = functions_in(resources)
    used = {name_of(function["LoggingConfig"]["LogGroup"]) for function in functions.values()}
    groups = {name: group for name, group in groups.items() if name != "EmptyingLogs"}
    assert used == {f"<{name}>" for name in groups if name.startswith("Functions")}
    assert len(used) == len(functions)
    assert all(group["RetentionInDays"] > 0 for group in groups.values())


def test_lambda_logs_an_invocation_only_if_it_failed(resources: Resources, stage: str) -> None:
    for function in functions_in(resources).values():
        logging = function["LoggingConfig"]
        assert (logging["LogFormat"], logging["SystemLogLevel"]) == ("JSON", "WARN")
        assert logging["ApplicationLogLevel"] == function["Environment"]["Variables"]["POWERTOOLS_LOG_LEVEL"]


def test_graces_of_retention_and_sweep_outlast_every_function_of_the_api(stage: str) -> None:
    sizes = STAGES[stage].function_sizes
    longest_s = max(sizes[route.function].timeout_s for route in ROUTES)
    assert longest_s * 1000 + 30_000 <= LOG_START_GRACE_MS
    assert max(size.timeout_s for size in sizes.values()) * 1000 * 10 <= TIERED_SWEEP_GRACE_MS

    for name, environment in JOB_ENVIRONMENTS.items():
        budgets = [int(value) for variable, value in environment.items() if variable.endswith("BUDGET_MS")]
        assert budgets
        assert max(budgets) < sizes[name].timeout_s * 1000 * 0.9


def test_lambda_stops_no_function_that_sends_to_its_own_queue(resources: Resources) -> None:
    """Lambda stops such a chain after 16 invocations by default. `replicate` sends what it finds, and no chain."""
    functions = functions_in(resources)
    endless = {name for name, function in functions.items() if function.get("RecursiveLoop") == "Allow"}
    assert endless == {"FunctionsPromoteFunction", "FunctionsDeliverFunction"} & functions.keys()
    assert endless
