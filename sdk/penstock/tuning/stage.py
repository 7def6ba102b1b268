"""The settings of a stage: those of `StageSettings` in infra/penstock_cdk/settings.py, which the SDK does not import.

A test holds that names and defaults are the same. Values come from the service (`GET /v1/zones` tells the profile) and
from the metadata of the deployed template, where the construct has put them.
"""

import json
from collections.abc import Mapping
from typing import Any

from penstock.tuning.setting import Section, Setting
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import AUDIT_RETENTION_MS_DEFAULT, COMPACTION_BYTES_PER_DAY_DEFAULT
from penstock_core.stack_outputs import parse_stack_place

_METADATA = "Penstock"
_DEFAULTS = "the default"  # of a table in settings.py
_SETTINGS: tuple[tuple[str, Any, str], ...] = (
    ("name", None, "Every physical name begins with it, so stages can share an account."),
    ("region", None, "The region of the stage; without it that of your credentials."),
    ("storage_profile", None, "The zones: `express3`, `express2` or `standard1`; without it the region decides."),
    ("has_directory_buckets", True, "Zones are directory buckets where the region has them."),
    (
        "inline_bytes_max",
        None,
        "Appends of up to so many bytes become items of the log table; without it those that cost less so.",
    ),
    ("python_version", "3.14", "The Python of the functions."),
    ("architecture", "arm64", "The processors of the functions."),
    (
        "pip_platforms",
        ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"],
        "The platforms whose wheels the functions may have.",
    ),
    ("function_sizes", _DEFAULTS, "The memory and the time of each function."),
    ("account_concurrency", None, "The instances that your account has in the region; functions get shares of them."),
    ("reserved_concurrency", {}, "Instances by function that it may use, and no other."),
    (
        "waits_max",
        None,
        "So many instances may wait for records; else half of the reserved ones, or a quarter of all.",
    ),
    ("request_rate", _DEFAULTS, "Requests a second that API Gateway lets through for each route."),
    ("route_rates", _DEFAULTS, "Lower rates by function, for each of its routes."),
    ("api_requests_per_s", None, "Requests a second of your account, if AWS's default is not yours; rates follow it."),
    ("timer_retry_s", 60, "A promotion of delayed records that failed is tried again after so long."),
    ("timers_always_on", False, "The first delayed records of the stage come on time, for $0.26 a month."),
    ("private_targets", [], "Private networks whose endpoints a subscription may have as targets."),
    ("mirror_roles", [], "ARNs of roles of other stages under which this one may push its mirrors."),
    ("repair_retry_s", 360, "A repair that failed is tried again after so long."),
    ("job_environments", None, "Budgets of scheduled functions; without them those of the storage profile."),
    ("keeps_data_on_delete", True, "Tables and buckets stay when the stack is deleted."),
    ("empties_buckets", True, "A stage that keeps no data empties its buckets when its stack is deleted."),
    ("enforces_tls", True, "Buckets refuse requests without TLS."),
    ("tells_item_keys", True, "IAM learns the keys of items in calls to DynamoDB; the emulator tells none."),
    ("traces", False, "X-Ray traces the functions of routes, for $5 a million traces."),
    ("log_level", "INFO", "Functions log lines of this level and above."),
    ("log_retention", "THREE_MONTHS", "CloudWatch keeps the logs of functions and jobs for so long."),
    ("audit_log_retention", "ONE_YEAR", "CloudWatch keeps the access log of the API for so long."),
    ("audit_retention_ms", AUDIT_RETENTION_MS_DEFAULT, "The retention of the topic `_audit`; -1 keeps it for ever."),
    ("emr_release", "emr-spark-8.0.0", "The release of the EMR Serverless application; without one there is none."),
    ("emr_vcpus_max", 64, "All runs of jobs together use so many vCPU at most."),
    ("glue_version", "5.1", "The version of Glue for jobs that run there."),
    ("has_catalog", True, "Jobs archive into tables of Glue's catalog, else into Parquet."),
    ("scheduled_jobs", [], "The jobs whose schedules are on; each run costs."),
    (
        "metrics",
        {"of": "off", "topics": 10, "consumers": 20, "has_dashboard": False},
        "The metrics of topics and consumers, how many series CloudWatch bills for them, and a dashboard.",
    ),
    ("has_alarms", True, "The stage has alarms."),
    ("alarm_topic_arn", False, "The SNS topic that alarms publish to."),
    ("tags", False, "Tags of every resource."),
    ("warm_log_writes", None, "Write units a second that a new log table takes from its first minute on."),
    (
        "compaction_bytes_per_day",
        COMPACTION_BYTES_PER_DAY_DEFAULT,
        "Each day a function cleans so many bytes of topics with `cleanup_policy=compact`; 0 cleans none.",
    ),
    ("topic_retention_ms", None, "The retention of topics that the CDK app declares without one."),
    ("restored_tables", False, "The stack uses tables that DynamoDB has restored."),
    ("canary", None, "The share of requests that a new version gets at first, and for how long."),
    ("acl_default", "deny", "Rights that no access rule is about are given (`allow`) or refused (`deny`)."),
    ("super_principals", False, "Principals that may do everything, whatever the rules say."),
    ("jwt", None, "Issuer, audiences and claim of the tokens that a second API takes; without it there is none."),
    ("direct", True, "Let clients invoke the functions by Lambda's API, too: the transports `auto` and `lambda`."),
    ("kms_key", False, "A KMS key of yours encrypts tables, buckets, queues and logs."),
    ("registry_secret", False, "A secret of Secrets Manager that opens the schema registry of typed archives."),
    ("reads_glue_schemas", False, "Let the job archive read the schemas of AWS Glue's registries."),
)
STAGE = Section(
    name="stage",
    title="Stage",
    how="`StageSettings`, or the context of `cdk deploy -c NAME=VALUE` (docs/how-to/deploy.md).",
    settings=tuple(Setting(name=name, default=default, effect=effect) for name, default, effect in _SETTINGS),
)


def read_stage(stack: str, region: str | None) -> Mapping[str, Any]:
    """The settings that the template of a deployed stack tells. One GetTemplate.

    Raises INVALID_CONFIG if the stack cannot be read, or tells no settings.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # slow to import, and other sections need none of it

    from penstock.jobs.deployed import client

    place = parse_stack_place(stack)
    try:
        template = client("cloudformation", region).get_template(StackName=place.stack)["TemplateBody"]
    except (BotoCoreError, ClientError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"the template of stack {stack!r} could not be read: {error}"
        ) from error
    return settings_in(template, stack)


def settings_in(template: Mapping[str, Any] | str, stack: str) -> Mapping[str, Any]:
    """The settings in a template's metadata. Raises INVALID_CONFIG if there are none of this Penstock.

    A template that is no JSON is a text, and none of Penstock's.
    """
    metadata = {} if isinstance(template, str) else template.get("Metadata", {})
    text = metadata.get(f"{_METADATA}{parse_stack_place(stack).prefix}")
    if text is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"stack {stack!r} tells no settings: deploy this version of Penstock, or name the construct as Shop/Queue",
        )
    told: Mapping[str, Any] = json.loads(text)
    return told
