"""The settings of a stage as its template tells them, so that `penstock config show --stack` can show what holds.

They are in the template's metadata under `Penstock` and the ids of the construct, as the names of its outputs do.
CloudFormation shows them to callers who may call `cloudformation:GetTemplate`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from penstock_cdk.settings import StageSettings

METADATA_KEY = "Penstock"
_WITH_VALUES_OF_YOURS = (
    "tags",
    "alarm_topic_arn",
    "restored_tables",
    "super_principals",
    "kms_key",
    "registry_secret",
)  # names and ARNs of the account

_LATER = ("kms_key", "registry_secret", "reads_glue_schemas")


def settings_text(settings: StageSettings) -> str:
    """The settings as one text: the CDK would leave out those that are null.

    A stage without one of the `_LATER` does not tell so: its template is as it was before there was the setting.
    """
    told = told_settings(settings)
    return json.dumps({name: value for name, value in told.items() if value or name not in _LATER})


def told_settings(settings: StageSettings) -> dict[str, Any]:
    """Each setting by name, as JSON has it. Of those with names of your account it tells only whether they are set."""
    told = {name: _plain(value) for name, value in asdict(settings).items()}
    return told | {name: bool(told[name]) for name in _WITH_VALUES_OF_YOURS}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
