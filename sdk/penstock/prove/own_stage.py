"""A stage of the run's own: `npx cdk deploy` before the rows, `npx cdk destroy` after them, from a checkout.

It has the settings of `dev`, and a storage profile. So it keeps no data, and its buckets are emptied with it.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.tuning.stage import settings_in
from penstock_core.errors import ErrorCode, PenstockError

if TYPE_CHECKING:
    from penstock.deployed.aws import Aws  # which loads botocore

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


def destroy(checkout: Callable[[], Path], entry: Mapping[str, Any], aws: "Aws", tell: Callable[[str], None]) -> None:
    """Remove the stage that the entry names, in the account that it tells. An absent one counts as removed.

    Raises INVALID_CONFIG for credentials of another account, for a stack that does not tell this stage, and if the
    stack is there afterwards. `aws` is of the entry's region.
    """
    name, stack = entry["name"], stack_of(entry["name"])
    account = account_of(aws)
    if account != entry["account"]:
        raise _failed(f"the stage {name} is in account {entry['account']}, and your credentials are of {account}")
    if not _is_there(aws, stack):
        tell(f"there is no stack {stack}: nothing to remove")
        return
    template = aws.call("cloudformation", "get_template", stack, StackName=stack)["TemplateBody"]
    told = settings_in(template, stack)["name"]
    if told != stack:
        raise _failed(f"the stack {stack} is of the stage {told!r:.100}, which no run has made: remove it yourself")
    tell(f"removing the stage {name} …")
    _cdk(checkout(), "destroy", entry, "--force")
    if _is_there(aws, stack):
        raise _failed(f"the stack {stack} is still there, see `aws cloudformation describe-stack-events`")


def account_of(aws: "Aws") -> str:
    """The account of the credentials. One GetCallerIdentity."""
    return str(aws.call("sts", "get_caller_identity")["Account"])


def _is_there(aws: "Aws", stack: str) -> bool:
    """True unless CloudFormation knows no stack of that name. It answers ValidationError then."""
    return aws.find("ValidationError", "cloudformation", "describe_stacks", stack, StackName=stack) is not None


def _cdk(checkout: Path, command: str, entry: Mapping[str, Any], *options: str) -> None:
    stage, region = entry["name"], entry.get("region")
    context = ["-c", f"stage={stage}", "-c", "base=dev", "-c", f"profile={entry['profile']}"]
    context += ["-c", f"region={region}"] if region else []
    try:
        done = subprocess.Popen(  # noqa: S603  # names of ours
            ["npx", "cdk", command, *context, *options],  # noqa: S607  # the user's own npx
            cwd=checkout,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise _failed(f"`npx cdk {command}` of {stage} did not start: {error}") from error
    try:
        text, _ = done.communicate(timeout=_DEPLOY_S_MAX)
    except BaseException as error:
        os.killpg(done.pid, signal.SIGKILL)  # npx and its children: a deployment that goes on would make what is undone
        done.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise _failed(f"`npx cdk {command}` of {stage} did not end: {error}") from error
        raise
    if done.returncode != 0:
        raise _failed(f"`npx cdk {command}` of {stage} failed:\n{text.strip()[-_SHOWN:]}")


def _failed(message: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, message)
