"""All checks, in order."""

from penstock.doctor.account_checks import Account, account_checks
from penstock.doctor.finding import Finding, Report, Timing, Verdict
from penstock.doctor.recorder import AwsCalls, RecordingTransport
from penstock.doctor.round_trip import round_trip
from penstock.doctor.service_checks import NEEDS_KEYS, service_checks, skipped, token_checks

AWS_ONLY = ("credentials", "Lambda concurrency", "API rate", "table units", "stack", "alarms")


def examine(
    transport: RecordingTransport, account: Account | None, aws_calls: AwsCalls, *, has_token: bool = False
) -> Report:
    """Make every check. Without an `account`, those of AWS are skipped, and the report says so.

    A caller with a token has no account, and may not ask for the zones.

    It takes 64 requests, and about ten calls to AWS.
    """
    findings: list[Finding] = []
    if account is not None:
        findings += account_checks(account)
    findings += token_checks(transport) if has_token else service_checks(transport)
    timings: list[Timing] = []
    if any(finding.check == "service" for finding in findings):  # nothing more can be asked
        fact = "the service does not answer as it should"
        findings.append(Finding(check="round trip", verdict=Verdict.SKIPPED, fact=fact))
    else:
        found, timings = round_trip(transport)
        findings += found
    if account is None:
        fact = NEEDS_KEYS if has_token else "this service runs on your machine, not in AWS"
        findings += skipped(AWS_ONLY, fact)
    return Report(findings=findings, timings=timings, cost=transport.cost(aws_calls.count))
