"""Changes a stage's settings by `cdk deploy -c name=value`, so that you need not edit settings.py."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from penstock_cdk.settings import (
    AT_ONCE,
    METRICS_OF,
    Metrics,
    RestoredTables,
    StageSettings,
    settings_of,
    with_place,
)
from penstock_cdk.settings_file import with_settings_of
from penstock_cdk.walls import Jwt, reserved_concurrency
from penstock_core.acls.rule import ALLOW, DENY, parse_principal_pattern
from penstock_core.errors import PenstockError
from penstock_core.limits import INLINE_BYTES_MAX

_SNS_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]+:[A-Za-z0-9_.-]+")
_KMS_KEY = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+")
_EMR_RELEASE = re.compile(r"emr-(spark-)?[0-9]+\.[0-9]+\.[0-9]+")
PYTHON_VERSIONS = ("3.11", "3.12", "3.13", "3.14")  # that Lambda has and our code runs on
_SCOPE = "scope="
_RESTORED = ("topics", "log", "groups", "log_stream")


def _receiver(settings: StageSettings, value: str) -> StageSettings:
    if not _SNS_TOPIC.fullmatch(value):
        allowed = "give the ARN of an SNS topic, arn:aws:sns:<region>:<account>:<name>"
        raise ValueError(f"alarm_topic_arn={value!r}: {allowed}")
    return replace(settings, alarm_topic_arn=value)


def _account(settings: StageSettings, value: str) -> StageSettings:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ValueError(f"account_concurrency={value!r}: give the instances of your account, 1 or more")
    account = int(value)
    shares = {**reserved_concurrency(account), **settings.reserved_concurrency}
    return replace(settings, account_concurrency=account, reserved_concurrency=shares)


def _reserved(settings: StageSettings, value: str) -> StageSettings:
    """Changes single functions. `off` leaves none reserved."""
    if value == "off":
        return replace(settings, reserved_concurrency={})
    named = _pairs("reserved_concurrency", value, "give off, or function=instances,function=instances")
    counts = {name: int(count) for name, count in named.items() if count.isascii() and count.isdigit()}
    if counts.keys() != named.keys():
        raise ValueError(f"reserved_concurrency={value!r}: give whole numbers of instances")
    return replace(settings, reserved_concurrency={**settings.reserved_concurrency, **counts})


def _waits(settings: StageSettings, value: str) -> StageSettings:
    if not value.isascii() or not value.isdigit():
        raise ValueError(f"waits_max={value!r}: give the instances that may wait for records at once, 0 or more")
    return replace(settings, waits_max=int(value))


def _api_rate(settings: StageSettings, value: str) -> StageSettings:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ValueError(f"api_requests_per_s={value!r}: give the rateLimit of `aws apigateway get-account`, 1 or more")
    return replace(settings, api_requests_per_s=int(value))


def _inline(settings: StageSettings, value: str) -> StageSettings:
    if value == "auto":
        return replace(settings, inline_bytes_max=None)
    if not value.isascii() or not value.isdigit():
        raise ValueError(f"inline_bytes_max={value!r}: give 0 to {INLINE_BYTES_MAX} bytes, or auto")
    return replace(settings, inline_bytes_max=int(value))


def _restored(settings: StageSettings, value: str) -> StageSettings:
    allowed = f"give {','.join(f'{name}=…' for name in _RESTORED)}"
    named = _pairs("restored_tables", value, allowed)
    if set(named) != set(_RESTORED) or not all(named.values()):
        raise ValueError(f"restored_tables={value!r}: {allowed}")
    return replace(settings, restored_tables=RestoredTables(**named))


def _canary(settings: StageSettings, value: str) -> StageSettings:
    if value != "off":
        raise ValueError(f"canary={value!r}: give off, or change the stage in infra/penstock_cdk/settings.py")
    return settings if settings.canary is None else replace(settings, canary=AT_ONCE)


def _metrics(settings: StageSettings, value: str) -> StageSettings:
    """Takes `off`, `topics` or `all`, with numbers and a dashboard behind it: `all,topics=5,consumers=50,dashboard`."""
    of, *more = (part.strip() for part in value.split(","))
    allowed = "give off, topics or all, and behind it topics=N, consumers=N or dashboard, with commas"
    numbers = [part for part in more if part != "dashboard"]
    named = _pairs("metrics", ",".join(numbers), allowed) if numbers else {}
    if named.keys() - {"topics", "consumers"} or not all(each.isascii() and each.isdigit() for each in named.values()):
        raise ValueError(f"metrics={value!r}: {allowed}")
    counts = {name: int(number) for name, number in named.items()}
    if of not in METRICS_OF:
        raise ValueError(f"metrics={value!r}: {allowed}")
    return replace(settings, metrics=Metrics(of=METRICS_OF[of], has_dashboard="dashboard" in more, **counts))


def _jwt(settings: StageSettings, value: str) -> StageSettings:
    """Takes `off`, or the issuer, its audiences and scopes: `https://login.example,penstock,scope=penstock/use`."""
    if value == "off":
        return replace(settings, jwt=None)
    issuer, *parts = (part.strip() for part in value.split(","))
    audiences = [part for part in parts if not part.startswith(_SCOPE)]
    scopes = [part.removeprefix(_SCOPE) for part in parts if part.startswith(_SCOPE)]
    try:
        return replace(settings, jwt=Jwt(issuer=issuer, audiences=audiences, scopes=scopes))
    except ValueError as error:
        raise ValueError(f"jwt={value!r:.300}: give off, or ISSUER,AUDIENCE: {error}") from error


def _direct(settings: StageSettings, value: str) -> StageSettings:
    if value not in ("on", "off"):
        raise ValueError(f"direct={value!r}: give on or off")
    return replace(settings, direct=value == "on")


def _kms_key(settings: StageSettings, value: str) -> StageSettings:
    if not _KMS_KEY.fullmatch(value):
        raise ValueError(
            f"kms_key={value!r:.300}: give the ARN of a key, arn:aws:kms:<region>:<account>:key/<id>; of an alias "
            "`aws kms describe-key --key-id alias/NAME` tells it"
        )
    return replace(settings, kms_key=value)


def _emr_release(settings: StageSettings, value: str) -> StageSettings:
    """Takes `off`, for jobs on Glue only, or a release such as `emr-spark-8.0.0`."""
    if value != "off" and not _EMR_RELEASE.fullmatch(value):
        raise ValueError(f"emr_release={value!r}: give off, or a release such as emr-spark-8.0.0")
    return replace(settings, emr_release=None if value == "off" else value)


def _python_version(settings: StageSettings, value: str) -> StageSettings:
    if value not in PYTHON_VERSIONS:
        raise ValueError(f"python_version={value!r}: give one of {', '.join(PYTHON_VERSIONS)}")
    return replace(settings, python_version=value)


def _traces(settings: StageSettings, value: str) -> StageSettings:
    if value not in ("on", "off"):
        raise ValueError(f"traces={value!r}: give on or off")
    return replace(settings, traces=value == "on")


def _acl_default(settings: StageSettings, value: str) -> StageSettings:
    if value not in (ALLOW, DENY):
        raise ValueError(f"acl_default={value!r}: give allow or deny")
    return replace(settings, acl_default="deny" if value == DENY else "allow")


def _super_principals(settings: StageSettings, value: str) -> StageSettings:
    """Takes ARNs of roles and users, with commas."""
    arns = tuple(part.strip() for part in value.split(","))
    try:
        for arn in arns:
            parse_principal_pattern(arn)
    except PenstockError as error:
        raise ValueError(f"super_principals={value!r:.300}: give ARN,ARN: {error}") from error
    return replace(settings, super_principals=arns)


def _pairs(setting: str, value: str, allowed: str) -> dict[str, str]:
    """The `name=value` parts of a text with commas. Raises ValueError for another part, and for a name given twice."""
    pairs = [part.partition("=") for part in value.split(",")]
    named = {name.strip(): each.strip() for name, has_value, each in pairs if has_value}
    if len(named) != len(pairs):
        raise ValueError(f"{setting}={value!r}: {allowed}")
    return named


# the name in the context, and what its text changes: the account goes before what is changed for single functions
OVERRIDES: Mapping[str, Callable[[StageSettings, str], StageSettings]] = {
    "alarm_topic_arn": _receiver,
    "account_concurrency": _account,
    "reserved_concurrency": _reserved,
    "waits_max": _waits,
    "api_requests_per_s": _api_rate,
    "inline_bytes_max": _inline,
    "restored_tables": _restored,
    "canary": _canary,
    "metrics": _metrics,
    "jwt": _jwt,
    "direct": _direct,
    "kms_key": _kms_key,
    "python_version": _python_version,
    "traces": _traces,
    "emr_release": _emr_release,
    "acl_default": _acl_default,
    "super_principals": _super_principals,
}
_PLACES = ("stage", "base", "settings", "ask", "region", "profile")
_CHECKED_AS_TEXT = ("alarm_topic_arn", "emr_release", "kms_key", "python_version")  # of a file, too
CONTEXT_NAMES = (*_PLACES, *OVERRIDES)

# The CDK names its own context with a colon, a slash or an @, as in `@aws-cdk/core:…`, but for these two.
_PLAIN_NAMES_OF_CDK = ("acknowledged-issue-numbers", "cli-telemetry")
_PLAIN = re.compile(r"[^:/@]*")


def settings_of_app(context: Mapping[str, Any], region: str | None) -> StageSettings:
    """Returns the settings that the whole context of a CDK app asks for. `region` is that of your credentials.

    The file `settings` changes those of the stage, and the other names of the context change those of the file. Raises
    ValueError, with the name or value and what is allowed, for a name that is neither ours nor the CDK's, for a wrong
    value, for a profile that the region cannot have, and for a stage in which nobody could make access rules.
    """
    for name, value in context.items():
        _check_name(name)
        if name in _PLACES and not (value is None or isinstance(value, str)):
            raise ValueError(f"{name}={value!r:.100}: give a text")
    settings = settings_of(context.get("stage") or "prod", context.get("base"))
    if (path := context.get("settings")) is not None:
        settings = with_settings_of(path, settings)
        overridden(settings, {name: getattr(settings, name) for name in _CHECKED_AS_TEXT}.get)
        for principal in settings.super_principals:
            _super_principals(settings, principal)
    settings = overridden(with_place(settings, context, region), context.get)
    settings.check_region()
    if settings.acl_default == DENY and not settings.super_principals:
        raise ValueError(
            f"stage {settings.name} refuses what no access rule allows, and nobody could make rules: pass -c "
            "super_principals=ARN,ARN. A stage that was open until now stays so by -c acl_default=allow "
            "(docs/how-to/acls.md)"
        )
    return settings


def asks_account(context: Mapping[str, Any]) -> bool:
    """Returns whether the deployment asks its account: `ask` is on by default, but for the stage `local`.

    Raises ValueError if `ask` is neither on nor off.
    """
    ask = context.get("ask", "off" if context.get("stage") == "local" else "on")
    if ask not in ("on", "off"):
        raise ValueError(f"ask={ask!r}: give on or off")
    return bool(ask == "on")


def overridden(settings: StageSettings, context: Callable[[str], object]) -> StageSettings:
    """Returns the settings with what `context` has for the names of `OVERRIDES`.

    Raises ValueError, with the value and what is allowed, if a value is none of its setting's.
    """
    for name, change in OVERRIDES.items():
        value = context(name)
        if value is not None:
            settings = change(settings, str(value))
    return settings


def _check_name(name: str) -> None:
    if name in CONTEXT_NAMES or name in _PLAIN_NAMES_OF_CDK or not _PLAIN.fullmatch(name):
        return
    close = get_close_matches(name.lower().replace("-", "_"), CONTEXT_NAMES, n=1)
    meant = f"do you mean {close[0]}? " if close else ""
    raise ValueError(f"{name:.100}=… is no setting: {meant}give one of {', '.join(CONTEXT_NAMES)}")
