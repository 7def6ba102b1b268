"""A stage of the run's own: `npx cdk deploy` before the rows, `npx cdk destroy` after them, from a checkout.

It has the settings of `dev`, and a storage profile. So it keeps no data, and its buckets are emptied with it.
"""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError

STACK_PREFIX = "penstock-"  # `stack_name` of infra/penstock_cdk/settings.py
DEPLOYED_USD_MAX = 0.05  # its alarms and metrics for an hour, and the calls of a deployment
DESTROY_SECONDS = 180  # of the run's time, kept for the removal
_DEPLOY_S_MAX = 1_800
_SHOWN = 2_000


def stack_of(stage: str) -> str:
    """The stack that `app.py` gives a stage of that name."""
    return STACK_PREFIX + stage


def deploy(checkout: Path, entry: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    """Deploy the stage that the entry names. Raises INVALID_CONFIG with the end of what the CDK said."""
    tell(f"deploying the stage {entry['name']} ({entry['profile']}), which takes minutes …")
    _cdk(checkout, "deploy", entry, "--require-approval", "never")


def destroy(checkout: Path, entry: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    """Remove the stage that the entry names. Raises as `deploy`."""
    tell(f"removing the stage {entry['name']} …")
    _cdk(checkout, "destroy", entry, "--force")


def _cdk(checkout: Path, command: str, entry: Mapping[str, Any], *options: str) -> None:
    stage, region = entry["name"], entry.get("region")
    context = ["-c", f"stage={stage}", "-c", "base=dev", "-c", f"profile={entry['profile']}"]
    context += ["-c", f"region={region}"] if region else []
    try:
        done = subprocess.run(  # noqa: S603  # names of ours
            ["npx", "cdk", command, *context, *options],  # noqa: S607  # the user's own npx
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=_DEPLOY_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"`npx cdk {command}` of {stage} did not end: {error}") from error
    if done.returncode != 0:
        text = f"{done.stdout}\n{done.stderr}".strip()[-_SHOWN:]
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"`npx cdk {command}` of {stage} failed:\n{text}")
