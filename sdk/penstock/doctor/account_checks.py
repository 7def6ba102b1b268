"""Checks of the AWS account: the caller, the quotas, and who hears the stack's alarms.

Each check that the caller may not make says which IAM action it needs. No message of AWS is passed on, because it may
name accounts and users.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.doctor.finding import Finding, Verdict
from penstock_core.limits import SDK_PAGES_MAX
from penstock_core.stack_outputs import outputs_of, parse_stack_place

_DENIED = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")
_DESCRIBED_MAX = 100  # alarms of one DescribeAlarms

CONCURRENCY_MIN = 100  # produce, fetch and groups share it
API_REQUESTS_PER_S_MIN = 2_500
TABLE_WRITE_UNITS_MIN = 4_000
_LAMBDA_QUOTA = "L-B99A9384"
_API_QUOTA = "L-8A5B8E43"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The clients of an account: `client` makes one by the name of its service. `stack` is the stack's name."""

    client: Callable[[str], Any]
    stack: str
    api_url: str


def account_checks(account: Account) -> list[Finding]:
    """About ten calls, all of them reads."""
    checks = (_caller, _concurrency, _api_rate, _table_units, _alarms)
    return [finding for check in checks for finding in check(account)]


def _caller(account: Account) -> list[Finding]:
    def check() -> Finding:
        found = account.client("sts").get_caller_identity()
        return Finding(check="credentials", verdict=Verdict.OK, fact=f"{found['Arn']} of account {found['Account']}")

    return [_guarded("credentials", "sts:GetCallerIdentity", check)]


def _concurrency(account: Account) -> list[Finding]:
    def check() -> Finding:
        limit = account.client("lambda").get_account_settings()["AccountLimit"]
        total, unreserved = limit["ConcurrentExecutions"], limit["UnreservedConcurrentExecutions"]
        fact = f"{total:,} instances at once, {unreserved:,} of them not reserved by a function"
        if unreserved == total:
            fact += ". Readers that poll may starve producers: see account_concurrency in docs/how-to/deploy.md"
        if unreserved >= CONCURRENCY_MIN:
            return Finding(check="Lambda concurrency", verdict=Verdict.OK, fact=fact)
        return Finding(
            check="Lambda concurrency",
            verdict=Verdict.MEND,
            fact=fact,
            remedy=f"ask for more: aws service-quotas request-service-quota-increase --service-code lambda "
            f"--quota-code {_LAMBDA_QUOTA} --desired-value 1000",
        )

    return [_guarded("Lambda concurrency", "lambda:GetAccountSettings", check)]


def _api_rate(account: Account) -> list[Finding]:
    def check() -> Finding:
        # Service Quotas shows 10,000 in regions where the account has 2,500.
        found = account.client("apigateway").get_account()["throttleSettings"]["rateLimit"]
        fact = f"{found:,.0f} requests a second, for all APIs of the region together"
        if found >= API_REQUESTS_PER_S_MIN:
            return Finding(check="API rate", verdict=Verdict.OK, fact=fact)
        remedy = f"ask for more: quota {_API_QUOTA} of apigateway"
        return Finding(check="API rate", verdict=Verdict.MEND, fact=fact, remedy=remedy)

    return [_guarded("API rate", "apigateway:GET", check)]


def _table_units(account: Account) -> list[Finding]:
    def check() -> Finding:
        limits = account.client("dynamodb").describe_limits()
        writes, reads = limits["TableMaxWriteCapacityUnits"], limits["TableMaxReadCapacityUnits"]
        fact = f"{writes:,} write and {reads:,} read units a second at most"
        if writes >= TABLE_WRITE_UNITS_MIN:
            return Finding(check="table units", verdict=Verdict.OK, fact=fact)
        remedy = "ask for more table-level throughput of DynamoDB in Service Quotas"
        return Finding(check="table units", verdict=Verdict.MEND, fact=fact, remedy=remedy)

    return [_guarded("table units", "dynamodb:DescribeLimits", check)]


def _alarms(account: Account) -> list[Finding]:
    names: list[str] = []

    def find() -> Finding:
        cloudformation = account.client("cloudformation")
        place = parse_stack_place(account.stack)
        [stack] = cloudformation.describe_stacks(StackName=place.stack)["Stacks"]
        outputs = outputs_of(stack, place)
        names.extend(_alarm_names(cloudformation, place.stack))
        if outputs.get("ApiUrl", "").rstrip("/") != account.api_url:
            fact = f"the stack {account.stack} has another API than the one that answered"
            return Finding(check="stack", verdict=Verdict.MEND, fact=fact, remedy="name the API's stack with --stack")
        return Finding(check="stack", verdict=Verdict.OK, fact=f"{account.stack} is {stack['StackStatus']}")

    action = "cloudformation:DescribeStacks and ListStackResources"
    found = _guarded("stack", f"{action} on stack {account.stack} (else name it with --stack)", find)
    if found.verdict is not Verdict.OK:
        return [found]
    action = "cloudwatch:DescribeAlarms and sns:GetTopicAttributes"
    return [found, _guarded("alarms", action, lambda: _receivers(account, names))]


def _alarm_names(cloudformation: Any, stack: str) -> Iterator[str]:
    """The names of the stack's alarms."""
    token: dict[str, str] = {}
    for _ in range(SDK_PAGES_MAX):
        page = cloudformation.list_stack_resources(StackName=stack, **token)
        for each in page["StackResourceSummaries"]:
            if each["ResourceType"] in ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"):
                yield each["PhysicalResourceId"]
        if "NextToken" not in page:
            return
        token = {"NextToken": page["NextToken"]}


def _receivers(account: Account, names: Sequence[str]) -> Finding:
    alarms = list(described_alarms(account.client("cloudwatch"), names))
    if not alarms:
        fact = "the stack has none"
        return Finding(
            check="alarms", verdict=Verdict.MEND, fact=fact, remedy="deploy with alarms (docs/how-to/deploy.md)"
        )
    topics = {action for alarm in alarms for action in alarm["AlarmActions"] if ":sns:" in action}
    heard = {topic for topic in topics if _has_subscribers(account, topic)}
    deaf = [
        alarm
        for alarm in alarms
        if not (alarm["ActionsEnabled"] and any(":sns:" not in each or each in heard for each in alarm["AlarmActions"]))
    ]
    # The action of a composite alarm speaks for the alarms below it.
    speaking = [alarm["AlarmRule"] for alarm in alarms if "AlarmRule" in alarm and alarm not in deaf]
    deaf = [alarm for alarm in deaf if not any(alarm["AlarmName"] in rule for rule in speaking)]
    ringing = sorted(alarm["AlarmName"] for alarm in alarms if alarm["StateValue"] == "ALARM")
    if ringing:
        return Finding(
            check="alarms",
            verdict=Verdict.MEND,
            fact=f"ringing: {', '.join(ringing[:10])}",
            remedy="docs/how-to/operate.md has a line for each",
        )
    if deaf:
        return Finding(
            check="alarms",
            verdict=Verdict.MEND,
            fact=f"{len(deaf)} of {len(alarms)} alarms have no receiver",
            remedy="set alarm_topic_arn to a topic with a confirmed subscription (docs/how-to/deploy.md)",
        )
    return Finding(check="alarms", verdict=Verdict.OK, fact=f"all {len(alarms)} have a receiver, and none rings")


def described_alarms(cloudwatch: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The alarms of these names, as CloudWatch describes them. One DescribeAlarms for each hundred."""
    for start in range(0, len(names), _DESCRIBED_MAX):
        page = cloudwatch.describe_alarms(
            AlarmNames=list(names[start : start + _DESCRIBED_MAX]),
            AlarmTypes=["MetricAlarm", "CompositeAlarm"],
            MaxRecords=_DESCRIBED_MAX,
        )
        yield from page.get("MetricAlarms", ())
        yield from page.get("CompositeAlarms", ())


def _has_subscribers(account: Account, topic_arn: str) -> bool:
    attributes = account.client("sns").get_topic_attributes(TopicArn=topic_arn)["Attributes"]
    return int(attributes.get("SubscriptionsConfirmed", "0")) > 0


def _guarded(check: str, action: str, make: Callable[[], Finding]) -> Finding:
    """The finding, or one that says what AWS would have to allow."""
    from botocore.exceptions import BotoCoreError, ClientError  # 0.1 s, which other commands need not wait for

    try:
        return make()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        fact = "you may not look" if code in _DENIED else f"AWS answered {code}"
    except BotoCoreError as error:
        fact = f"AWS could not be asked: {type(error).__name__}"
    return Finding(check=check, verdict=Verdict.UNKNOWN, fact=fact, remedy=f"needs {action}")
