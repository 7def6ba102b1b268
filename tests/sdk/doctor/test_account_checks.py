"""The checks of an AWS account, against canned answers in the shapes of botocore's models."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from penstock.doctor.account_checks import Account, account_checks
from penstock.doctor.finding import Finding, Verdict
from penstock.doctor.recorder import AwsCalls

URL = "https://abcdefghij.execute-api.us-east-1.amazonaws.com"
TOPIC = "arn:aws:sns:us-east-1:123456789012:operators"
ALARM = {"AlarmName": "penstock-down", "ActionsEnabled": True, "AlarmActions": [TOPIC], "StateValue": "OK"}
SERVICES = ("sts", "lambda", "apigateway", "dynamodb", "cloudformation", "cloudwatch", "sns")


class StubbedAccount:
    """An account whose calls are answered well, until a test changes an answer."""

    def __init__(self, stack: ExitStack) -> None:
        session = botocore.session.Session()
        session.set_credentials("testing", "testing")
        self.clients = {name: session.create_client(name, region_name="us-east-1") for name in SERVICES}
        self.stubs = {name: stack.enter_context(Stubber(client)) for name, client in self.clients.items()}
        self.answers: dict[tuple[str, str], dict[str, Any] | str] = {
            ("sts", "get_caller_identity"): {"Arn": "arn:aws:iam::123456789012:user/ann", "Account": "123456789012"},
            ("lambda", "get_account_settings"): {
                "AccountLimit": {"ConcurrentExecutions": 1_000, "UnreservedConcurrentExecutions": 500}
            },
            ("apigateway", "get_account"): {"throttleSettings": {"rateLimit": 10_000.0}},
            ("dynamodb", "describe_limits"): {
                "TableMaxWriteCapacityUnits": 40_000,
                "TableMaxReadCapacityUnits": 40_000,
            },
            ("cloudformation", "describe_stacks"): {
                "Stacks": [
                    {
                        "StackName": "Penstock",
                        "CreationTime": "2026-11-22T00:00:00Z",
                        "StackStatus": "CREATE_COMPLETE",
                        "Outputs": [{"OutputKey": "ApiUrl", "OutputValue": f"{URL}/"}],
                    }
                ]
            },
            ("cloudformation", "list_stack_resources"): {"StackResourceSummaries": [_resource("penstock-down")]},
            ("cloudwatch", "describe_alarms"): {"MetricAlarms": [ALARM]},
            ("sns", "get_topic_attributes"): {"Attributes": {"SubscriptionsConfirmed": "1"}},
        }

    def examine(self) -> dict[str, Finding]:
        """The findings by check."""
        for (service, operation), answer in self.answers.items():
            if isinstance(answer, str):
                self.stubs[service].add_client_error(operation, answer, "user/ann of 123456789012 may not")
            else:
                self.stubs[service].add_response(operation, answer)
        account = Account(client=self.clients.__getitem__, stack="Penstock", api_url=URL)
        return {finding.check: finding for finding in account_checks(account)}


def _resource(alarm: str) -> dict[str, str]:
    return {
        "LogicalResourceId": "Alarm",
        "PhysicalResourceId": alarm,
        "ResourceType": "AWS::CloudWatch::Alarm",
        "LastUpdatedTimestamp": "2026-11-22T00:00:00Z",
        "ResourceStatus": "CREATE_COMPLETE",
    }


@pytest.fixture
def account() -> Iterator[StubbedAccount]:
    with ExitStack() as stack:
        yield StubbedAccount(stack)


def test_account_in_order_is_well(account: StubbedAccount) -> None:
    found = account.examine()
    assert {check: finding.verdict for check, finding in found.items()} == dict.fromkeys(
        ("credentials", "Lambda concurrency", "API rate", "table units", "stack", "alarms"), Verdict.OK
    )
    assert "500 of them not reserved" in found["Lambda concurrency"].fact
    assert "10,000 requests a second" in found["API rate"].fact


def test_account_without_reserved_instances_is_well_and_says_what_may_starve(account: StubbedAccount) -> None:
    limit = {"ConcurrentExecutions": 1_000, "UnreservedConcurrentExecutions": 1_000}
    account.answers["lambda", "get_account_settings"] = {"AccountLimit": limit}
    found = account.examine()["Lambda concurrency"]
    assert (found.verdict, "account_concurrency" in found.fact) == (Verdict.OK, True)


@pytest.mark.parametrize(
    ("service", "operation", "answer", "check", "told"),
    [
        (
            "lambda",
            "get_account_settings",
            {"AccountLimit": {"ConcurrentExecutions": 10, "UnreservedConcurrentExecutions": 10}},
            "Lambda concurrency",
            "L-B99A9384",
        ),
        ("apigateway", "get_account", {"throttleSettings": {"rateLimit": 500.0}}, "API rate", "L-8A5B8E43"),
        (
            "dynamodb",
            "describe_limits",
            {"TableMaxWriteCapacityUnits": 1_000, "TableMaxReadCapacityUnits": 1_000},
            "table units",
            "Service Quotas",
        ),
        ("sns", "get_topic_attributes", {"Attributes": {"SubscriptionsConfirmed": "0"}}, "alarms", "alarm_topic_arn"),
        ("cloudwatch", "describe_alarms", {"MetricAlarms": [ALARM | {"StateValue": "ALARM"}]}, "alarms", "operate.md"),
    ],
)
def test_fault_is_to_be_mended_and_says_how(
    account: StubbedAccount, service: str, operation: str, answer: dict[str, Any], check: str, told: str
) -> None:
    account.answers[service, operation] = answer
    found = account.examine()
    assert found[check].verdict is Verdict.MEND
    assert told in found[check].remedy
    assert [name for name, finding in found.items() if finding.verdict is Verdict.MEND] == [check]


@pytest.mark.parametrize("alarm", [ALARM | {"AlarmActions": []}, ALARM | {"ActionsEnabled": False}])
def test_alarm_without_a_receiver_is_told(account: StubbedAccount, alarm: dict[str, Any]) -> None:
    account.answers["cloudwatch", "describe_alarms"] = {"MetricAlarms": [alarm, ALARM | {"AlarmName": "other"}]}
    finding = account.examine()["alarms"]
    assert (finding.verdict, finding.fact) == (Verdict.MEND, "1 of 2 alarms have no receiver")


def test_composite_alarm_with_a_receiver_speaks_for_those_below_it(account: StubbedAccount) -> None:
    child = ALARM | {"AlarmActions": []}
    composite = ALARM | {"AlarmName": "all", "AlarmRule": 'ALARM("penstock-down")'}
    account.answers["cloudwatch", "describe_alarms"] = {"MetricAlarms": [child], "CompositeAlarms": [composite]}
    assert account.examine()["alarms"].verdict is Verdict.OK


def test_stack_without_alarms_is_told(account: StubbedAccount) -> None:
    account.answers["cloudformation", "list_stack_resources"] = {"StackResourceSummaries": []}
    assert account.examine()["alarms"].fact == "the stack has none"


def test_stack_of_another_api_is_told_and_its_alarms_are_not_asked_for(account: StubbedAccount) -> None:
    other = account.answers["cloudformation", "describe_stacks"]
    assert isinstance(other, dict)
    other["Stacks"][0]["Outputs"][0]["OutputValue"] = "https://other.example"
    found = account.examine()
    assert found["stack"].verdict is Verdict.MEND
    assert "--stack" in found["stack"].remedy
    assert "alarms" not in found


@pytest.mark.parametrize(
    ("service", "operation", "check", "action"),
    [
        ("sts", "get_caller_identity", "credentials", "sts:GetCallerIdentity"),
        ("lambda", "get_account_settings", "Lambda concurrency", "lambda:GetAccountSettings"),
        ("apigateway", "get_account", "API rate", "apigateway:GET"),
        ("dynamodb", "describe_limits", "table units", "dynamodb:DescribeLimits"),
        ("cloudformation", "describe_stacks", "stack", "cloudformation:DescribeStacks"),
        ("cloudformation", "list_stack_resources", "stack", "ListStackResources"),
        ("cloudwatch", "describe_alarms", "alarms", "cloudwatch:DescribeAlarms"),
        ("sns", "get_topic_attributes", "alarms", "sns:GetTopicAttributes"),
    ],
)
def test_denied_call_names_its_action_and_nothing_of_awss_message(
    account: StubbedAccount, service: str, operation: str, check: str, action: str
) -> None:
    account.answers[service, operation] = "AccessDeniedException"
    finding = account.examine()[check]
    assert (finding.verdict, finding.fact) == (Verdict.UNKNOWN, "you may not look")
    assert action in finding.remedy
    assert "123456789012" not in finding.fact + finding.remedy


def test_other_error_of_aws_is_told_by_its_code(account: StubbedAccount) -> None:
    account.answers["dynamodb", "describe_limits"] = "ThrottlingException"
    assert account.examine()["table units"].fact == "AWS answered ThrottlingException"


def test_calls_to_aws_are_counted() -> None:
    session = botocore.session.Session()
    session.set_credentials("testing", "testing")
    client = session.create_client("sts", region_name="us-east-1")
    calls = AwsCalls()
    calls.watch(client)
    client.meta.events.register("before-send", _canned_identity)
    client.get_caller_identity()
    assert calls.count == 1


def _canned_identity(**_: Any) -> Any:
    from botocore.awsrequest import AWSResponse

    class Raw:
        def stream(self, **_: Any) -> Iterator[bytes]:
            yield b"<GetCallerIdentityResponse><GetCallerIdentityResult/></GetCallerIdentityResponse>"

    return AWSResponse("https://sts.amazonaws.com", 200, {}, Raw())
