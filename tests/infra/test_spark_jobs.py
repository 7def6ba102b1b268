"""The Spark jobs: one per script, each with a role for its own work, and no cost between runs."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from penstock_cdk.alarms.job_run_alarms import JobRunAlarms
from penstock_cdk.jobs.job_packages import job_scripts
from penstock_cdk.jobs.job_role import JOB_GRANTS
from penstock_cdk.jobs.job_schedules import RATES
from penstock_cdk.settings import STAGES, StageSettings
from penstock_cdk.sources import installed_sources
from penstock_core.storage.keys import CURSORS, ZONES
from tests.infra.conftest import Resources, resources_of, zones_in_environment
from tests.infra.templates import as_list, name_of, of_type, permissions, policies_of_roles

pytestmark = pytest.mark.synth

JOBS = tuple(job_scripts(installed_sources()))


def statements_of(resources: Resources, job: str) -> list[dict[str, Any]]:
    return policies_of_roles(resources)[f"<Jobs{job.title()}MayRole>"]


def actions_on(resources: Resources, job: str, resource: str) -> set[str]:
    return {action for action, on in permissions(statements_of(resources, job)) if on == resource}


def database_of(stage: str) -> str:
    return STAGES[stage].name.replace("-", "_")


def test_every_script_is_a_job_and_none_without_a_script_is() -> None:
    assert "sweep" in JOBS
    assert set(JOBS) <= set(JOB_GRANTS)
    assert set(RATES) < set(JOB_GRANTS)


def test_every_job_has_a_role_of_its_own_that_only_spark_s_services_assume(resources: Resources) -> None:
    roles = of_type(resources, "AWS::IAM::Role")
    for job in JOBS:
        role = roles[f"Jobs{job.title()}MayRole"]
        statements = role["AssumeRolePolicyDocument"]["Statement"]
        assert {statement["Principal"]["Service"] for statement in statements} == {
            "emr-serverless.amazonaws.com",
            "glue.amazonaws.com",
        }
        for statement in statements:
            assert name_of(statement["Condition"]["StringEquals"]["aws:SourceAccount"]) == "<AWS::AccountId>"
        assert "ManagedPolicyArns" not in role


def test_sweep_may_repair_and_delete_segments_and_keep_a_cursor(resources: Resources, stage: str) -> None:
    def on(resource: str) -> set[str]:
        return {action.partition(":")[2] for action in actions_on(resources, "sweep", resource)}

    assert on("<TablesTopics>") == {"GetItem", "Scan", "PutItem", "DeleteItem"}
    assert on("<TablesLog>") == {"GetItem", "BatchGetItem", "Query", "UpdateItem", "BatchWriteItem"}
    assert on("<TablesGroups>") == set()
    assert on("<RepairQueuesRepairs>") == ({"SendMessage"} if STAGES[stage].repairs_zones else set())
    assert on("<ArchiveBucket>/*") == {"GetObject"}
    assert on("<ArchiveBucket>/??/*") == {"DeleteObject"}
    assert on("<ArchiveBucket>") == {"ListBucket"}
    if stage == "prod":
        assert on("<ZonesZoneA>") == {"CreateSession"}
    else:
        assert on("<ZonesZoneA>/*") == {"GetObject", "PutObject", "DeleteObject"}
    assert on("*") == {"DescribeLogGroups"}
    [cursors] = [each for each in statements_of(resources, "sweep") if "dynamodb:PutItem" in each["Action"]]
    assert cursors["Condition"] == only_items(CURSORS, stage)


def only_items(pk: str, stage: str) -> dict[str, Any]:
    """The condition that admits the items with that `pk`. The emulator of the stage local tells IAM no keys."""
    told = {"Null": {"dynamodb:LeadingKeys": "false"}} if STAGES[stage].tells_item_keys else {}
    return {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [pk]}, **told}


def test_archive_may_read_topics_and_write_tables_and_nothing_else(resources: Resources, stage: str) -> None:
    def on(resource: str) -> set[str]:
        return {action.partition(":")[2] for action in actions_on(resources, "archive", resource)}

    assert on("<TablesTopics>") == {"GetItem", "Scan"}
    assert on("<TablesLog>") == {"GetItem", "BatchGetItem", "Query"}
    assert on("<JobsResultsBucket>/lake/*") == {"GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload"}
    assert on("<ArchiveBucket>/*") == {"GetObject"}
    if stage != "prod":
        assert on("<ZonesZoneA>/*") == {"GetObject"}
    tables = f":table/{database_of(stage)}/*"
    on_tables = {action for action, on in permissions(statements_of(resources, "archive")) if on.endswith(tables)}
    writes = {"GetDatabase", "GetTable", "GetTables", "CreateDatabase", "CreateTable", "UpdateTable"}
    assert on_tables == ({f"glue:{action}" for action in writes} if STAGES[stage].has_catalog else set())


def test_archive_alone_may_read_the_secret_and_the_schemas_that_the_settings_name(
    make_stack_of: Callable[[StageSettings], Stack],
) -> None:
    settings = replace(STAGES["dev"], registry_secret="shop/registry", reads_glue_schemas=True)
    found = resources_of(dict(Template.from_stack(make_stack_of(settings)).to_json()))
    granted = {
        job: {
            (action, resource.rpartition("<AWS::AccountId>:")[2])
            for action, resource in permissions(statements_of(found, job))
            if action.startswith("secretsmanager:") or "Schema" in action
        }
        for job in JOBS
    }
    assert granted == {job: set() for job in JOBS} | {
        "archive": {
            ("secretsmanager:GetSecretValue", "secret:shop/registry-??????"),
            ("glue:GetSchemaVersion", "registry/*"),
            ("glue:GetSchemaVersion", "schema/*"),
        }
    }
    [options] = [
        json.loads(name_of(job["DefaultArguments"]["--penstock-storage"]))
        for job in of_type(found, "AWS::Glue::Job").values()
        if job["Name"].endswith("-archive")
    ]
    assert options[options.index("--registry-secret") + 1] == "shop/registry"


def test_analyze_reads_all_and_writes_reports_only(resources: Resources) -> None:
    def on(resource: str) -> set[str]:
        return {action.partition(":")[2] for action in actions_on(resources, "analyze", resource)}

    assert on("<TablesTopics>") == {"GetItem", "Scan"}
    assert on("<TablesLog>") == {"GetItem", "BatchGetItem", "Query"}
    assert on("<TablesGroups>") == {"GetItem", "BatchGetItem", "Query"}
    assert on("<ArchiveBucket>/*") == {"GetObject"}
    assert on("<JobsResultsBucket>/reports/*") == {"GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload"}
    [listing] = [
        each
        for each in statements_of(resources, "analyze")
        if [name_of(on) for on in as_list(each["Resource"])] == ["<JobsResultsBucket>"]
    ]
    assert (listing["Action"], listing["Condition"]) == (
        "s3:ListBucket", {"StringLike": {"s3:prefix": ["reports/*", "reports"]}},
    )  # fmt: skip


def test_replay_may_append_as_produce_does_and_read_tables(resources: Resources, stage: str) -> None:
    def on(resource: str) -> set[str]:
        return {action.partition(":")[2] for action in actions_on(resources, "replay", resource)}

    has_zones = STAGES[stage].repairs_zones
    assert on("<TablesTopics>") == {"GetItem", "Scan", *(["PutItem", "UpdateItem"] if has_zones else [])}
    assert on("<TablesLog>") == {"GetItem", "BatchGetItem", "Query", "UpdateItem", "PutItem"}
    assert on("<JobsResultsBucket>/lake/*") >= {"GetObject", "PutObject"}
    if stage != "prod":
        assert on("<ZonesZoneA>/*") == {"GetObject", "PutObject"}
    changes = ["dynamodb:PutItem", "dynamodb:UpdateItem"]
    states = [
        each
        for each in statements_of(resources, "replay")
        if each["Action"] == changes and name_of(each["Resource"]) == "<TablesTopics>"
    ]
    assert [each["Condition"] for each in states] == ([only_items(ZONES, stage)] if has_zones else [])


def test_no_job_may_act_on_every_resource_except_to_find_log_groups(resources: Resources) -> None:
    for job in JOBS:
        for statement in statements_of(resources, job):
            for resource in map(name_of, as_list(statement["Resource"])):
                assert resource != "*" or statement["Action"] == "logs:DescribeLogGroups"


def test_application_keeps_no_workers_and_stops_when_idle(resources: Resources, stage: str) -> None:
    applications = list(of_type(resources, "AWS::EMRServerless::Application").values())
    assert len(applications) == (0 if STAGES[stage].emr_release is None else 1)
    for application in applications:
        assert application["ReleaseLabel"] == STAGES[stage].emr_release
        assert application["Architecture"] == "ARM64"
        assert "InitialCapacity" not in application
        assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 5}
        assert application["MaximumCapacity"] == {"Cpu": "64 vCPU", "Memory": "256 GB"}
        logging = application["MonitoringConfiguration"]["CloudWatchLoggingConfiguration"]
        assert (logging["Enabled"], name_of(logging["LogGroupName"])) == (True, "<JobsLogs>")


@pytest.mark.parametrize("stage", ["prod"], indirect=False)
def test_runs_on_the_application_find_python_packages_and_storage(resources: Resources, stage: str) -> None:
    [application] = of_type(resources, "AWS::EMRServerless::Application").values()
    [defaults] = application["RuntimeConfiguration"]
    properties = defaults["Properties"]
    assert defaults["Classification"] == "spark-defaults"
    assert name_of(properties["spark.submit.pyFiles"]).endswith(".zip")
    archive, _, folder = name_of(properties["spark.archives"]).partition("#")
    assert archive.endswith(".zip")
    for place in ("spark.emr-serverless.driverEnv", "spark.executorEnv"):
        assert properties[f"{place}.PYTHONPATH"] == f"./{folder}"
        assert properties[f"{place}.PYSPARK_PYTHON"] == "/usr/bin/python3.11"
    given = {
        name.removeprefix("spark.emr-serverless.driverEnv."): name_of(value)
        for name, value in properties.items()
        if ".PENSTOCK_" in name
    }
    assert given == {
        "PENSTOCK_TOPICS_TABLE": "<TablesTopics>",
        "PENSTOCK_LOG_TABLE": "<TablesLog>",
        "PENSTOCK_GROUPS_TABLE": "<TablesGroups>",
        "PENSTOCK_REPAIR_QUEUE_URL": "<RepairQueuesRepairs>",
        "PENSTOCK_ZONES": zones_in_environment("prod"),
        "PENSTOCK_ARCHIVE": "<ArchiveBucket>",
        "PENSTOCK_WAKE_UPS": "<WakeUpsEventApi.Dns.Http>,<WakeUpsEventApi.Dns.Realtime>",
        "PENSTOCK_RESULTS": "<JobsResultsBucket>",
        "PENSTOCK_CATALOG": "glue:penstock",
    }


def test_glue_has_every_job_with_the_options_that_its_script_takes(resources: Resources, stage: str) -> None:
    jobs = {job["Name"]: job for job in of_type(resources, "AWS::Glue::Job").values()}
    assert set(jobs) == {f"{STAGES[stage].name}-{name}" for name in JOBS}
    for job in jobs.values():
        assert job["GlueVersion"] == "5.1"
        assert job["MaxRetries"] == 0
        assert job["DefaultArguments"]["--custom-logGroup-prefix"] == f"/penstock/{STAGES[stage].name}/jobs"
        assert name_of(job["Command"]["ScriptLocation"]).endswith(".py")
        storage = json.loads(name_of(job["DefaultArguments"]["--penstock-storage"]))
        assert dict(zip(storage[::2], storage[1::2], strict=True)) == {
            "--topics-table": "<TablesTopics>",
            "--log-table": "<TablesLog>",
            "--groups-table": "<TablesGroups>",
            **({"--repair-queue-url": "<RepairQueuesRepairs>"} if STAGES[stage].repairs_zones else {}),
            "--wake-ups": "<WakeUpsEventApi.Dns.Http>,<WakeUpsEventApi.Dns.Realtime>",
            "--zones": zones_in_environment(stage),
            "--archive": "<ArchiveBucket>",
            "--results": "<JobsResultsBucket>",
            **({"--catalog": f"glue:{database_of(stage)}"} if STAGES[stage].has_catalog else {}),
        }


def test_every_job_may_write_the_log_groups_that_emr_and_glue_write_to(resources: Resources, stage: str) -> None:
    groups = {
        f"<{name}>": group["LogGroupName"]
        for name, group in of_type(resources, "AWS::Logs::LogGroup").items()
        if name_of(group.get("LogGroupName", "")).startswith(f"/penstock/{STAGES[stage].name}/jobs")
    }
    assert sorted(groups.values()) == [
        f"/penstock/{STAGES[stage].name}/jobs{each}" for each in ("", "/error", "/output")
    ]
    for job in JOBS:
        [logging] = [each for each in statements_of(resources, job) if "logs:PutLogEvents" in each["Action"]]
        assert set(map(name_of, logging["Resource"])) == set(groups)


def test_schedules_are_off_unless_the_settings_name_the_job(resources: Resources, stage: str) -> None:
    schedules = {each["Name"]: each for each in of_type(resources, "AWS::Scheduler::Schedule").values()}
    settings = STAGES[stage]
    due = {name for name in JOBS if name in RATES} if settings.emr_release else set()
    assert set(schedules) == {f"{settings.name}-{name}" for name in due}
    for name in due:
        schedule = schedules[f"{settings.name}-{name}"]
        assert (schedule["State"], schedule["ScheduleExpression"]) == ("DISABLED", RATES[name])
        assert (
            name_of(schedule["Target"]["Arn"]) == "arn:<AWS::Partition>:scheduler:::aws-sdk:emrserverless:startJobRun"
        )


@pytest.mark.parametrize("stage", ["dev"], indirect=False)
def test_scheduler_may_start_runs_on_the_application_as_the_jobs_that_are_due(resources: Resources, stage: str) -> None:
    roles = {("iam:PassRole", f"<Jobs{name.title()}MayRole>") for name in JOBS if name in RATES}
    allowed = permissions(policies_of_roles(resources)["<JobSchedulesRole>"])
    assert allowed == roles | {("emr-serverless:StartJobRun", "<JobsSparkApplication>")}


def test_alarm_rings_when_a_run_fails(resources: Resources, stage: str) -> None:
    settings = STAGES[stage]
    alarms = of_type(resources, "AWS::CloudWatch::Alarm").values()
    found = [alarm for alarm in alarms if alarm["AlarmName"] == f"{settings.name}-job-runs-failed"]
    assert len(found) == settings.has_alarms
    if not settings.has_alarms:
        return
    [rule] = [each for each in of_type(resources, "AWS::Events::Rule").values() if "EventPattern" in each]
    glue, emr = rule["EventPattern"]["$or"]  # at least two, or EventBridge reads a field of that name
    assert (glue["source"], emr["source"]) == (["aws.glue"], ["aws.emr-serverless"])
    assert glue["detail"]["jobName"] == [f"{settings.name}-{name}" for name in JOBS]
    assert [name_of(each) for each in emr["detail"]["applicationId"]] == ["<JobsSparkApplication.ApplicationId>"]
    assert all("FAILED" in each["detail"]["state"] for each in (glue, emr))
    assert [name_of(target["Arn"]) for target in rule["Targets"]] == ["<JobRunAlarmsFailedRuns>"]


def test_alarm_watches_glue_alone_when_the_stage_has_no_application() -> None:
    stack = Stack(App(), "GlueOnly", env={"region": "eu-west-1"})
    JobRunAlarms(stack, "Alarms", settings=STAGES["prod"], application=None, jobs={})
    rules = of_type(Template.from_stack(stack).to_json()["Resources"], "AWS::Events::Rule").values()
    assert [each["EventPattern"]["source"] for each in rules] == [["aws.glue"]]


def test_outputs_name_the_role_script_and_glue_job_of_every_job(
    template: Callable[[str], dict[str, Any]], make_stack: Callable[[str], Stack], stage: str
) -> None:
    found = {name for name in template(stage)["Outputs"] if name.startswith("Job")}
    expected = {f"Job{name.title()}{what}" for name in JOBS for what in ("Role", "Script", "Glue")} | {"JobsLogGroup"}
    assert found == expected | ({"JobsApplicationId"} if STAGES[stage].emr_release else set())
