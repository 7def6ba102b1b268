"""All checks, in order, and those of the service by one call of its API: clock, release, storage profile and zones."""

from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime

from penstock.doctor.account_checks import Account, account_checks
from penstock.doctor.finding import Finding, Report, Timing, Verdict, remedy_of
from penstock.doctor.recorder import AwsCalls, RecordingTransport
from penstock.doctor.round_trip import round_trip
from penstock.errors import AccessDeniedError
from penstock.http.client import Client
from penstock.http.http_message import Document, json_document, json_request
from penstock_core.errors import PenstockError
from penstock_core.version import VERSION

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


SKEW_MS_MAX = 60_000  # AWS refuses a signature that is 300,000 away
_DATE_RESOLUTION_MS = 1_000
_IN_SYNC = "in_sync"
_OF_ZONES = ("release", "storage profile", "zones")
NEEDS_KEYS = "this needs AWS keys, and the caller has a token"


def service_checks(transport: RecordingTransport) -> list[Finding]:
    """Ask for the zones, once. Never raises an error of the service."""
    answer = _asked(transport, "/v1/zones")
    if isinstance(answer, Finding):
        return [answer, *_clock(transport)]
    return [*_clock(transport), _release(answer), _profile(answer), _zones(answer)]


def token_checks(transport: RecordingTransport) -> list[Finding]:
    """As `service_checks`, for a token, which may list topics and not zones."""
    answer = _asked(transport, "/v1/topics", {"limit": "1"})
    refused = [answer] if isinstance(answer, Finding) else []
    return [*refused, *_clock(transport), *skipped(_OF_ZONES, NEEDS_KEYS)]


def skipped(checks: Sequence[str], fact: str) -> list[Finding]:
    """A finding for each check that is not made, for the reason that `fact` tells."""
    return [Finding(check=check, verdict=Verdict.SKIPPED, fact=fact) for check in checks]


def _asked(transport: RecordingTransport, path: str, query: Mapping[str, str] | None = None) -> Document | Finding:
    """The answer, or the finding that there is none."""
    request = json_request("GET", path, query=query)
    try:
        return json_document(request, Client(transport).try_once(request))
    except AccessDeniedError as error:
        return _refused(error, path)
    except PenstockError as error:
        fact = f"GET {path} failed: {error}"
        remedy = "docs/how-to/troubleshoot.md has the code"
        return Finding(check="service", verdict=Verdict.MEND, fact=fact, remedy=remedy)


def _refused(error: AccessDeniedError, path: str) -> Finding:
    by_iam = f"attach the stack's AdminPolicyArn to the caller, or allow execute-api:Invoke on GET {path}"
    return Finding(
        check="service",
        verdict=Verdict.MEND,
        fact=f"the service refused these credentials: {error.code.name}",
        remedy=remedy_of(error, by_iam),
    )


def _clock(transport: RecordingTransport) -> list[Finding]:
    """The distance of this machine's clock from the service's, by the `Date` of the last answer."""
    if not transport.exchanges:
        return []
    exchange = transport.exchanges[-1]
    date = {name.lower(): value for name, value in exchange.response.headers.items()}.get("date")
    if date is None:
        fact = "the service's answers have no Date"
        return [Finding(check="clock", verdict=Verdict.SKIPPED, fact=fact)]
    service_ms = parsedate_to_datetime(date).timestamp() * 1_000 + _DATE_RESOLUTION_MS / 2
    here_ms = exchange.began_at_ms + exchange.duration_ms / 2
    doubt_ms = (exchange.duration_ms + _DATE_RESOLUTION_MS) / 2
    skew_ms = here_ms - service_ms
    if abs(skew_ms) - doubt_ms <= SKEW_MS_MAX:
        fact = f"within {(abs(skew_ms) + doubt_ms) / 1_000:.1f} s of the service's"
        return [Finding(check="clock", verdict=Verdict.OK, fact=fact)]
    fact = f"{abs(skew_ms) / 1_000:.0f} s {'ahead of' if skew_ms > 0 else 'behind'} the service's"
    remedy = "set this machine's clock (NTP): AWS refuses signatures from 300 s on, and records carry wrong times"
    return [Finding(check="clock", verdict=Verdict.MEND, fact=fact, remedy=remedy)]


def _release(document: Document) -> Finding:
    deployed = document.get("version")
    if deployed == VERSION:
        return Finding(check="release", verdict=Verdict.OK, fact=f"{VERSION}, here and there")
    if not isinstance(deployed, str):
        fact = f"the service does not tell its release, so it is older than this command's, {VERSION}"
    else:
        fact = f"the service runs {deployed}, and this command is of {VERSION}"
    remedy = "deploy the release of this command, or install the one of the service"
    return Finding(check="release", verdict=Verdict.MEND, fact=fact, remedy=remedy)


def _profile(document: Document) -> Finding:
    profile = document.get("profile")
    if not isinstance(profile, str):
        fact = "the service does not tell its storage profile"
        return Finding(check="storage profile", verdict=Verdict.UNKNOWN, fact=fact, remedy="deploy a newer release")
    count = len(document["zones"])
    return Finding(
        check="storage profile", verdict=Verdict.OK, fact=f"{profile}, {count} zone{'s' if count > 1 else ''}"
    )


def _zones(document: Document) -> Finding:
    behind = [f"{each['zone']} is {each['state']}" for each in document["zones"] if each["state"] != _IN_SYNC]
    if not behind:
        return Finding(check="zones", verdict=Verdict.OK, fact="all in sync")
    remedy = "docs/how-to/operate.md: bring a zone back"
    return Finding(check="zones", verdict=Verdict.MEND, fact=", ".join(behind), remedy=remedy)
