"""What `cdk deploy -c name=value` changes in a stage's settings, so that you need not edit infra/settings.py."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from infra.settings import StageSettings

# the name in the context, and how its text becomes the value of the setting of that name
OVERRIDES: Mapping[str, Callable[[str], object]] = {
    "alarm_topic_arn": str,
}


def overridden(settings: StageSettings, context: Callable[[str], object]) -> StageSettings:
    """Returns the settings with the values that `context` has for the names of `OVERRIDES`.

    Raises ValueError if a value is none of its setting's.
    """
    given = {name: context(name) for name in OVERRIDES}
    changes = {name: OVERRIDES[name](str(value)) for name, value in given.items() if value is not None}
    return replace(settings, **changes)  # type: ignore[arg-type]  # OVERRIDES makes each value of its setting's type
