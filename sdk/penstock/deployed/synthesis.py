"""The template that a deployment from this folder would have, by `npx cdk synth`."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.deployed.stack import DeployedStack
from penstock_core.errors import ErrorCode, PenstockError

_STDERR = 2
_STACK = "aws:cloudformation:stack"


def synthesized(stack: DeployedStack, contexts: Sequence[str]) -> Mapping[str, Any]:
    """The template. The first time it builds the files of the functions, in a minute.

    Raises INVALID_CONFIG if the app does not synthesize, or has no stack of that name.
    """
    with TemporaryDirectory() as folder:
        command = ["npx", "cdk", "synth", "--quiet", "--output", folder]
        command += [word for each in stack.contexts(contexts) for word in ("-c", each)]
        try:
            done = subprocess.run(command, stdout=_STDERR, check=False)  # noqa: S603 - the user's own app
        except OSError as error:
            raise _failed(f"npx did not start ({error}): install Node.js") from error
        if done.returncode:
            raise _failed(f"`npx cdk synth` failed with exit code {done.returncode}: give the -c of your deployments")
        return _template(Path(folder), stack.place.stack)


def _template(folder: Path, name: str) -> Mapping[str, Any]:
    manifest = json.loads((folder / "manifest.json").read_text())
    names = []
    for artifact_id, artifact in manifest["artifacts"].items():
        if artifact["type"] == _STACK:
            properties = artifact["properties"]
            names.append(properties.get("stackName", artifact_id))
            if names[-1] == name:
                template: Mapping[str, Any] = json.loads((folder / properties["templateFile"]).read_text())
                return template
    raise _failed(f"this app has no stack {name}, it has {', '.join(names)}: give the -c of your deployments")


def _failed(message: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, message)
