"""What `cdk deploy -c name=value` changes in a stage's settings, so that you need not edit infra/settings.py."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from infra.settings import AT_ONCE, RestoredTables, StageSettings, reserved_concurrency


def _receiver(settings: StageSettings, value: str) -> StageSettings:
    return replace(settings, alarm_topic_arn=value)


def _account(settings: StageSettings, value: str) -> StageSettings:
    return replace(settings, reserved_concurrency=reserved_concurrency(int(value)))


def _restored(settings: StageSettings, value: str) -> StageSettings:
    named = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
    if set(named) != {"topics", "log", "groups", "log_stream"}:
        raise ValueError(f"restored_tables={value!r}: give topics=…,log=…,groups=…,log_stream=…")
    return replace(settings, restored_tables=RestoredTables(**named))


def _canary(settings: StageSettings, value: str) -> StageSettings:
    if value != "off":
        raise ValueError(f"canary={value!r}: give off, or change the stage in infra/settings.py")
    return settings if settings.canary is None else replace(settings, canary=AT_ONCE)


# the name in the context, and what its text changes
OVERRIDES: Mapping[str, Callable[[StageSettings, str], StageSettings]] = {
    "alarm_topic_arn": _receiver,
    "account_concurrency": _account,
    "restored_tables": _restored,
    "canary": _canary,
}


def overridden(settings: StageSettings, context: Callable[[str], object]) -> StageSettings:
    """Returns the settings with what `context` has for the names of `OVERRIDES`.

    Raises ValueError if a value is none of its setting's.
    """
    for name, change in OVERRIDES.items():
        value = context(name)
        if value is not None:
            settings = change(settings, str(value))
    return settings
