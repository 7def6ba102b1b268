"""A file with settings of a stage: `cdk deploy -c settings=stage.json`. It may have each field of `StageSettings`."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import to_json

from penstock_cdk.jobs.job_schedules import RATES
from penstock_cdk.settings import StageSettings, check_name
from penstock_cdk.walls import reserved_concurrency

_TYPES = get_type_hints(StageSettings)
_KNOWN: Mapping[str, Collection[str]] = {
    "log_level": lambda_.ApplicationLogLevel.__members__,
    "log_retention": logs.RetentionDays.__members__,
    "audit_log_retention": logs.RetentionDays.__members__,
    "scheduled_jobs": RATES,
}
_SIZE_MAX = 1_000_000  # bytes of a file


def with_settings_of(path: str, settings: StageSettings) -> StageSettings:
    """Returns the settings with what the JSON object of the file says.

    A mapping, such as `function_sizes` or `tags`, changes the entries that it names. Any other value takes the place of
    the stage's. Raises ValueError, with the file, the name and the way out, for a file that cannot be read, a name that
    is no setting, and a value that its setting cannot have.
    """
    changes = _object_of(path)
    for name in changes:
        if name not in _TYPES:
            close = get_close_matches(name.lower().replace("-", "_"), _TYPES, n=1)
            meant = f"do you mean {close[0]}? " if close else ""
            raise ValueError(f"{path} has {name:.100}, which is no setting: {meant}give some of {', '.join(_TYPES)}")
    read = {name: _value(path, name, value, getattr(settings, name)) for name, value in changes.items()}
    try:
        changed = replace(settings, **_with_what_follows(settings, read))
        check_name(changed.name)
        return changed
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _with_what_follows(settings: StageSettings, read: dict[str, Any]) -> dict[str, Any]:
    """The changes, with the platforms of an architecture and the shares of an account, unless the file has them."""
    follow: dict[str, Any] = {}
    if "architecture" in read and settings.pip_platforms is not None:
        machine = "aarch64" if read["architecture"] == "arm64" else "x86_64"
        follow["pip_platforms"] = tuple(re.sub("aarch64|x86_64", machine, tag) for tag in settings.pip_platforms)
    if read.get("account_concurrency") is not None:
        shares = reserved_concurrency(read["account_concurrency"])
        read = {**read, "reserved_concurrency": {**shares, **read.get("reserved_concurrency", {})}}
    return {**follow, **read}


def _object_of(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_SIZE_MAX + 1)
    except OSError as error:
        raise ValueError(f"settings={path!r:.300}: give a JSON file that can be read: {error.strerror}") from error
    if len(text) > _SIZE_MAX:
        raise ValueError(f"settings={path!r:.300}: give a JSON file of at most {_SIZE_MAX:,} bytes")
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise ValueError(f"settings={path!r:.300}: give a file with a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f'settings={path!r:.300}: give a JSON object, such as {{"emr_release": null}}')
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"one of {', '.join(found)} stands twice")
    return found


def _value(path: str, name: str, value: object, old: object) -> Any:
    """The value as the field has it. Lists become tuples and sets, and objects the classes of the field."""
    try:
        read = _adapter(name).validate_json(to_json(value), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, (name, *first["loc"])))
        raise ValueError(f"{path} has a wrong {place}={first['input']!r:.100}: {first['msg']}") from error
    known = _KNOWN.get(name)
    texts = [read] if isinstance(read, str) else read
    if known is not None and (unknown := [each for each in texts if each not in known]):
        raise ValueError(f"{path} has a wrong {name}={unknown[0]!r:.100}: give {', '.join(known)}")
    return {**old, **read} if isinstance(old, Mapping) and isinstance(read, Mapping) else read


def _adapter(name: str) -> TypeAdapter[Any]:
    for each in (_TYPES[name], *_parts(_TYPES[name])):
        if is_dataclass(each):
            with_config(ConfigDict(extra="forbid"))(cast(Any, each))
    return TypeAdapter(_TYPES[name])


def _parts(hint: Any) -> list[Any]:
    return [part for each in get_args(hint) for part in (each, *_parts(each))]
