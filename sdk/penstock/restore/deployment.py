"""The deployment of a restore: its command, and whether the app of this folder would change more than the tables.

The command has the `-c` of the stage's deployments and three of its own. So with the `-c` alone the app must give the
template that the stack has: then the command changes only what the three change. The hashes of files are left out of
the comparison, because two machines may pack the same files differently; a release is told in the template.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.deployed.stack import DeployedStack
from penstock_core.errors import ErrorCode, PenstockError

_ALL = 100  # percent: a first step below it is a canary
_SHOWN = 10
_DEPTH_MAX = 6  # of the path to a change
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_VERSION = "AWS::Lambda::Version"
_LEFT_OUT = (_VERSION, "AWS::CDK::Metadata")  # a version's id has the hash of its files


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The deployment that points a stack at restored tables. `stopped` are the handlers that it keeps stopped."""

    stack: DeployedStack
    contexts: Sequence[str]
    tables: Mapping[str, str]
    stopped: Sequence[str]

    def command(self) -> list[str]:
        """The command, with all writers still stopped.

        The template stops the writers, too, because CloudFormation may write a function's concurrency with its
        environment. A canary would leave most requests at the harmed tables, and the refusals of stopped functions
        would stop it.
        """
        if self.stack.is_of_your_app:
            return ["npx", "cdk", "deploy", self.stack.place.stack]
        canary = self.stack.settings.get("canary") or {}
        contexts = [
            *self.stack.contexts(self.contexts),
            "restored_tables=" + ",".join(f"{name}={value}" for name, value in self.tables.items()),
            *(["canary=off"] if canary.get("percent", _ALL) < _ALL else []),
            "reserved_concurrency=" + ",".join(f"{handler}=0" for handler in self.stopped),
        ]
        return ["npx", "cdk", "deploy", *(word for each in contexts for word in ("-c", each))]

    def text(self) -> str:
        """The deployment, for people."""
        command = shlex.join(self.command())
        if not self.stack.is_of_your_app:
            return command
        tables = ", ".join(f'{name}="{value}"' for name, value in self.tables.items())
        stopped = ", ".join(f'"{handler}": 0' for handler in self.stopped)
        return (
            f"set restored_tables=RestoredTables({tables}), canary=AT_ONCE if you have one, and reserved_concurrency="
            f"{{{stopped}}} in the settings of {self.stack.name}, then: {command}"
        )


def check_alike(stack: DeployedStack, template: Mapping[str, Any]) -> None:
    """Raises INVALID_CONFIG with the differences, if a template is not that of the stack."""
    found = [*differences(stack.template, template)]
    if found:
        shown = "; ".join(found[:_SHOWN]) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the deployment of this folder would change more than the tables of {stack.place.stack}: {shown}. Give "
            "the -c of the last deployment, in the checkout of the release that is deployed",
        )


def differences(deployed: Mapping[str, Any], synthesized: Mapping[str, Any]) -> Iterator[str]:
    """The places where two templates differ, but for the hashes of files: `Resources.Log.Properties.Tags`."""
    ours, theirs = _comparable(deployed), _comparable(synthesized)
    yield from _unlike(ours, theirs, ())


def _comparable(template: Mapping[str, Any]) -> dict[str, Any]:
    resources = template.get("Resources", {})
    versions = {name for name, each in resources.items() if each["Type"] == _VERSION}
    kept = {
        name: {part: value for part, value in each.items() if part != "Metadata"}
        for name, each in resources.items()
        if each["Type"] not in _LEFT_OUT
    }
    return {name: _plain(value, versions) for name, value in {**template, "Resources": kept}.items()}


def _plain(value: Any, versions: set[str]) -> Any:
    """A value without hashes of files, as CloudFormation tells it: it shows `?` for what is not ASCII."""
    match value:
        case str():
            return _HASH.sub("<hash>", value.encode("ascii", "replace").decode())
        case {"Fn::GetAtt": [str(logical_id), str(attribute)]} if logical_id in versions:
            return {"Fn::GetAtt": ["<version>", attribute]}
        case {"Ref": str(logical_id)} if logical_id in versions:
            return {"Ref": "<version>"}
        case Mapping():
            return {name: _plain(each, versions) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each, versions) for each in value]
        case _:
            return value


def _unlike(ours: Any, theirs: Any, path: tuple[str, ...]) -> Iterator[str]:
    if ours == theirs:
        return
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and len(path) < _DEPTH_MAX:
        for name in sorted({*ours, *theirs}):
            if name not in theirs:
                yield f"{'.'.join((*path, name))} would go"
            elif name not in ours:
                yield f"{'.'.join((*path, name))} would be new"
            else:
                yield from _unlike(ours[name], theirs[name], (*path, name))
        return
    yield f"{'.'.join(path)}: {_shown(ours)} -> {_shown(theirs)}"


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) and len(str(value)) < 60 else "…"
