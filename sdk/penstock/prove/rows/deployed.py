"""Rows about the deployed resources: pollers, versions, quotas, throttles, metrics, alarms, and the functions' logs."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.doctor.account_checks import account_checks, described_alarms
from penstock.doctor.finding import Verdict
from penstock.prove.proof import Emulator, Proof, ProofRow, Steps, left_out, ruled, unknown
from penstock.prove.proven_stage import ProvenStage, log_lines
from penstock.system import monotonic_ms, wall_clock_ms
from penstock.tuning.stage import settings_in
from penstock_core.stack_outputs import parse_stack_place

_ON = "Enabled"
_SWITCHED = ("promote", "deliver")  # off until a stage has delayed records, and subscriptions
_DAY_S = 86_400
_QUOTAS = ("Lambda concurrency", "API rate", "table units")
_METRICS = ("requests_served", "request_duration", "storage_calls_sent")
_LIVE = "live"
_LINES_SHOWN, _LINES_MS = 3, 25_000  # of all functions
_METRIC_LOOKS, _METRIC_LOOK_MS = 5, 30_000


def pollers(stage: ProvenStage) -> Proof:
    """The event source mappings of the stage: their states, and how often `dispatch` tries again."""
    found = [stage.client("lambda").get_event_source_mapping(UUID=each) for each in stage.mappings]
    wrong, states = [], []
    for each in found:
        function = _function_of(stage, each["FunctionArn"])
        states.append(f"{function} {each['State']}")
        may_be_off = function in _SWITCHED and ":sqs:" in each["EventSourceArn"]
        if each["State"] != _ON and not may_be_off:
            wrong.append(f"{function} is {each['State']}")
        if function == "dispatch":
            tries = each.get("MaximumRetryAttempts"), each.get("MaximumRecordAgeInSeconds")
            if tries != (-1, _DAY_S) or not each.get("FilterCriteria", {}).get("Filters"):
                wrong.append(f"dispatch has attempts and age {tries}, and {each.get('FilterCriteria')}")
    fact = f"{len(found)} mappings: {', '.join(sorted(states))}" + (f"; wrong: {'; '.join(wrong)}" if wrong else "")
    return ruled(bool(found) and not wrong, fact, mappings=len(found), wrong=len(wrong))


def _function_of(stage: ProvenStage, arn: str) -> str:
    return arn.partition(":function:")[2].partition(":")[0].removeprefix(f"{stage.name}-")


def releases(stage: ProvenStage) -> Proof:
    """The alias `live` of each function, and the newest version behind it."""
    if not stage.has_versions:
        return left_out("this stage has no versions: a deployment replaces its functions")
    lambda_ = stage.client("lambda")
    wrong = []
    aliases = [each for each in stage.functions if not each.endswith("-provision")]
    for name in aliases:
        alias = lambda_.get_alias(FunctionName=name, Name=_LIVE)
        pages = lambda_.get_paginator("list_versions_by_function").paginate(FunctionName=name)
        versions = [int(each["Version"]) for page in pages for each in page["Versions"] if each["Version"].isdigit()]
        weights = (alias.get("RoutingConfig") or {}).get("AdditionalVersionWeights")
        if int(alias["FunctionVersion"]) != max(versions) or weights:
            at = f"{name} is at {alias['FunctionVersion']}, the newest is {max(versions)}"
            wrong.append(f"{at}, weights {weights or 'none'}")
    fact = f"{len(aliases)} functions have an alias"
    return ruled(not wrong, fact + (f"; {'; '.join(wrong)}" if wrong else ", each at its newest version"))


def scheduled_runs(stage: ProvenStage) -> Proof:
    """Lambda's tries of a scheduled run that fails, and its patience with functions that start themselves."""
    lambda_ = stage.client("lambda")
    wrong, asked = [], 0
    for task in ("upkeep", "hourly", "sweep", "promote"):
        if (name := f"{stage.name}-{task}") in stage.functions:
            asked += 1
            attempts = _attempts(stage, name)
            wrong += [f"{name} is tried {attempts} times more"] if attempts else []
    for task in _SWITCHED:
        asked += 1
        loop = lambda_.get_function_recursion_config(FunctionName=f"{stage.name}-{task}")["RecursiveLoop"]
        wrong += [f"{task}: RecursiveLoop is {loop}"] if loop != "Allow" else []
    return ruled(not wrong, "; ".join(wrong) or f"{asked} functions are set as they should be", functions=asked)


def _attempts(stage: ProvenStage, name: str) -> int:
    """Lambda's further tries of an event: two, unless a function says otherwise."""
    from botocore.exceptions import ClientError

    qualifier = {"Qualifier": _LIVE} if stage.has_versions else {}
    try:
        found = stage.client("lambda").get_function_event_invoke_config(FunctionName=name, **qualifier)
    except ClientError as error:
        if stage.is_local or error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return 2
    return int(found.get("MaximumRetryAttempts", 2))


def quotas(stage: ProvenStage) -> Proof:
    """The doctor's checks of quotas, and what the stage was told of its account."""
    assert stage.account is not None
    findings = [each for each in account_checks(stage.account) if each.check in _QUOTAS]
    denied = [each for each in findings if each.verdict is Verdict.UNKNOWN]
    if denied:
        return unknown("; ".join(f"{each.check}: {each.fact}, {each.remedy}" for each in denied))
    wrong = [f"{each.check}: {each.fact}" for each in findings if each.verdict is Verdict.MEND]
    limits = stage.client("lambda").get_account_settings()["AccountLimit"]
    rate = int(stage.client("apigateway").get_account()["throttleSettings"]["rateLimit"])
    template = stage.client("cloudformation").get_template(StackName=parse_stack_place(stage.account.stack).stack)
    told = settings_in(template["TemplateBody"], stage.account.stack)
    instances = limits["ConcurrentExecutions"]
    if (told["account_concurrency"] or 0) > instances:
        wrong.append(
            f"the stage was told account_concurrency={told['account_concurrency']}: the account has {instances}"
        )
    if (told["api_requests_per_s"] or 0) > rate:
        wrong.append(f"the stage was told api_requests_per_s={told['api_requests_per_s']}: the account has {rate}")
    fact = "; ".join(wrong) or f"{instances:,} instances and {rate:,} requests a second; the stage was told no more"
    return ruled(not wrong, fact, instances=instances, api_requests_per_s=rate)


def throttles(stage: ProvenStage) -> Proof:
    """The rates that API Gateway has for the stage and its routes, against the account's."""
    found = stage.client("apigatewayv2").get_stage(ApiId=stage.outputs["ApiId"], StageName="$default")
    account = stage.client("apigateway").get_account()["throttleSettings"]["rateLimit"]
    rates = {route: each["ThrottlingRateLimit"] for route, each in found.get("RouteSettings", {}).items()}
    default = found.get("DefaultRouteSettings", {}).get("ThrottlingRateLimit")
    fact = (
        f"POST /v1/fetch has {rates.get('POST /v1/fetch')}, others {default}, and the account {account:,.0f} a second"
    )
    is_so = "POST /v1/fetch" in rates and default is not None and max([default, *rates.values()]) <= account
    return ruled(is_so, fact, routes=len(rates))


def stream(stage: ProvenStage) -> Proof:
    """The view type of the log table's stream, which `dispatch` and `replicate` filter."""
    found = stage.client("dynamodb").describe_table(TableName=stage.outputs["LogTable"])["Table"]
    view = found.get("StreamSpecification", {}).get("StreamViewType")
    return ruled(view == "NEW_AND_OLD_IMAGES", f"the stream has {view}")


def share_words(stage: ProvenStage) -> Proof:
    """An update of a missing item that names the words of share items: its condition fails, and no word is reserved."""
    from botocore.exceptions import ClientError

    try:
        stage.client("dynamodb").update_item(
            TableName=stage.outputs["GroupsTable"],
            Key={"pk": {"S": "none"}, "sk": {"S": "none"}},
            UpdateExpression="SET #l.#a = :a REMOVE waiter",
            ConditionExpression="generation = :a AND size(#l) <= :a AND attribute_not_exists(#l.#a)",
            ExpressionAttributeNames={"#l": "locks", "#a": "nonce-01.0"},
            ExpressionAttributeValues={":a": {"N": "0"}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code not in ("ConditionalCheckFailedException", "ValidationException"):
            raise
        return ruled(code == "ConditionalCheckFailedException", f"DynamoDB answered {code}")
    return ruled(False, "DynamoDB made the update, though its condition is false")


def directory_lists(stage: ProvenStage) -> Proof:
    """Two lists of a directory bucket: its folders, and a prefix without a slash."""
    from botocore.exceptions import ClientError

    bucket = next((each for each in stage.zone_buckets.values() if each.endswith("--x-s3")), None)
    if bucket is None:
        return left_out("the stage has no directory bucket")
    s3 = stage.client("s3")
    folders = [each["Prefix"] for each in s3.list_objects_v2(Bucket=bucket, Delimiter="/").get("CommonPrefixes", ())]
    is_by_hour = bool(folders) and all(each.count("-") == 3 and each.endswith("/") for each in folders)
    try:
        s3.list_objects_v2(Bucket=bucket, Prefix="2")
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code.startswith("AccessDenied"):
            raise
        fact = f"{len(folders)} folders such as {folders[:1]}; a prefix without a slash gets {code}"
        return ruled(is_by_hour and code == "InvalidRequest", fact, folders=len(folders))
    return ruled(False, f"{len(folders)} folders; a prefix without a slash gets a list")


def access_log(stage: ProvenStage) -> Proof:
    """The resource policies of the account's logs that name the stage's access log."""
    policies = stage.client("logs").describe_resource_policies().get("resourcePolicies", [])
    named = [each["policyName"] for each in policies if f"/aws/vendedlogs/{stage.name}/" in each["policyDocument"]]
    return ruled(not named, f"{len(policies)} policies, {len(named)} name the access log", policies=len(policies))


def metrics(stage: ProvenStage) -> Steps:
    """The metrics of the stage that have had values since the run began. CloudWatch is two minutes late."""
    counts: dict[str, float] = {}
    for left in reversed(range(_METRIC_LOOKS)):
        counts = {name: _values(stage, name) for name in _METRICS}
        if all(counts.values()) or not left:
            break
        yield _METRIC_LOOK_MS
    told = ", ".join(f"{name} {count:.0f}" for name, count in counts.items())
    return ruled(all(counts.values()), f"values since the run began: {told}", **counts)


def _values(stage: ProvenStage, name: str) -> float:
    answer = stage.client("cloudwatch").get_metric_statistics(
        Namespace="Penstock",
        MetricName=name,
        Dimensions=[{"Name": "service", "Value": stage.name}],
        StartTime=datetime.fromtimestamp(stage.began_at_ms // 60_000 * 60, UTC),
        EndTime=datetime.fromtimestamp(wall_clock_ms() / 1_000, UTC),
        Period=60,
        Statistics=["SampleCount"],
    )
    return float(sum(each["SampleCount"] for each in answer["Datapoints"]))


def alarms(stage: ProvenStage) -> Proof:
    """The states of the stack's alarms."""
    found = list(described_alarms(stage.client("cloudwatch"), stage.alarms))
    if not found:
        return left_out("the stack has no alarms")
    states = Counter(each["StateValue"] for each in found)
    ringing = sorted(each["AlarmName"] for each in found if each["StateValue"] == "ALARM")
    fact = ", ".join(f"{count} {state}" for state, count in states.items())
    return ruled(not ringing, fact + (f"; ringing: {', '.join(ringing)}" if ringing else ""), alarms=len(found))


def denied_lines(stage: ProvenStage) -> Proof:
    """Lines of the functions' logs, since the run began, that tell of a call that AWS denied.

    DynamoDB and KMS say AccessDeniedException, S3 AccessDenied. A plain term of CloudWatch is a whole word, so the
    pattern is a regular expression.
    """
    return _no_lines(stage, "%AccessDenied%", "tell of a denied call")


def failed_invocations(stage: ProvenStage) -> Proof:
    """Lines of Lambda itself since the run began about invocations that raised, ran out of time or died."""
    pattern = '{ $.type = "platform.report" && $.record.status != "success" }'
    return _no_lines(stage, pattern, "are Lambda's own of failed invocations")


def _no_lines(stage: ProvenStage, pattern: str, what: str) -> Proof:
    end_ms = monotonic_ms() + _LINES_MS
    found, unread = [], []
    for name in stage.functions:
        lines, is_whole = log_lines(stage, f"/aws/lambda/{name}", stage.began_at_ms, pattern, end_ms)
        found += [f"{name}: {line}" for line in lines]
        unread += [] if is_whole else [name]
    fact = f"{len(found)} lines of {len(stage.functions)} functions {what}"
    shown: Sequence[str] = [each[:200] for each in found[:_LINES_SHOWN]]
    if unread and not found:
        return unknown(f"no line yet, and the logs of {', '.join(unread)} are not read to their end in the row's time")
    return ruled(not found, fact + (f": {'; '.join(shown)}" if shown else ""), lines=len(found))


def deployed_rows() -> list[ProofRow]:
    """The rows about what the deployment has made. None of them appends or reads records."""
    stack = "cloudformation:DescribeStacks and ListStackResources"
    return [
        ProofRow(
            name="pollers",
            expects="each mapping is enabled, but those of promote and deliver where the stage never used them",
            ask=pollers,
            action=f"lambda:GetEventSourceMapping, {stack}",
        ),
        ProofRow(
            name="stream of the log table",
            expects="NEW_AND_OLD_IMAGES",
            ask=stream,
            action=f"dynamodb:DescribeTable, {stack}",
        ),
        ProofRow(
            name="words of share items",
            expects="ConditionalCheckFailedException, not ValidationException",
            ask=share_words,
            action=f"dynamodb:UpdateItem on the groups table, {stack}",
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="releases",
            expects="each alias `live` is at the newest version, and no canary is on its way",
            ask=releases,
            seconds_max=20,
            action=f"lambda:GetAlias and ListVersionsByFunction, {stack}",
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="scheduled runs and loops",
            expects="Lambda repeats no failed run, and stops no function that starts itself",
            ask=scheduled_runs,
            action=f"lambda:GetFunctionEventInvokeConfig and GetFunctionRecursionConfig, {stack}",
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="quotas of the account",
            expects="the doctor finds them large enough, and the stage was told no more than there is",
            ask=quotas,
            seconds_max=20,
            action="lambda:GetAccountSettings, apigateway:GET, dynamodb:DescribeLimits, cloudformation:GetTemplate",
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="throttles of routes",
            expects="POST /v1/fetch has its own, and none is above the account's",
            ask=throttles,
            action=f"apigateway:GET, {stack}",
            emulator=Emulator.LACKS,
        ),
        ProofRow(
            name="lists of directory buckets",
            expects="folders by hour; InvalidRequest for a prefix without a slash",
            ask=directory_lists,
            action=f"s3express:CreateSession on the zones, {stack}",
            emulator=Emulator.LACKS,
        ),
        ProofRow(
            name="policy of the access log",
            expects="no resource policy names it",
            ask=access_log,
            action=f"logs:DescribeResourcePolicies, {stack}",
            emulator=Emulator.RUNS,
        ),
    ]


def last_rows() -> list[ProofRow]:
    """The rows that look back on the run."""
    stack = "cloudformation:DescribeStacks and ListStackResources"
    return [
        ProofRow(
            name="metrics",
            expects=f"{', '.join(_METRICS)} have values",
            ask=metrics,
            seconds_max=150,
            action=f"cloudwatch:GetMetricStatistics, {stack}",
            emulator=Emulator.LACKS,
        ),
        ProofRow(
            name="alarms",
            expects="none rings",
            ask=alarms,
            action=f"cloudwatch:DescribeAlarms, {stack}",
        ),
        ProofRow(
            name="denied calls in the logs",
            expects="no line since the run began",
            ask=denied_lines,
            seconds_max=30,
            action=f"logs:FilterLogEvents, {stack}",
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="failed invocations in the logs",
            expects="no line since the run began",
            ask=failed_invocations,
            seconds_max=30,
            action=f"logs:FilterLogEvents, {stack}",
            emulator=Emulator.LACKS,
        ),
    ]
