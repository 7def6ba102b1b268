"""Deploys the CDK app of this checkout: synthesizes it, uploads its assets and creates or updates its stack.

It does the work of the CDK's command line with the same template and assets, in half the time. It makes no bootstrap
stack, only the bucket for assets and the version parameter that templates ask for.
"""

import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from localstack.clients import ACCOUNT, REGION, client, endpoint_url
from localstack.errors import LocalStackError
from localstack.places import CHECKOUT
from penstock_cdk.storage_profile import Profile

STAGE = "local"
STACK_NAME = "Penstock"
_PACKAGE_FOLDERS = tuple(str(CHECKOUT / each) for each in ("functions", "sdk", "glue_jobs", "infra"))
_BOOTSTRAP_VERSION_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
_BOOTSTRAP_VERSION = "30"
_DEPLOY_S_MAX = 300
_POLL_S = 0.1
_STATES_TO_REPLACE = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED")


def synthesize(folder: Path, profile: Profile) -> None:
    """Runs app.py for the local stage with that storage profile.

    Raises LocalStackError with the end of its output if it fails.
    """
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "app.py")],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((*_PACKAGE_FOLDERS, os.environ.get("PYTHONPATH", ""))),
            "CDK_OUTDIR": str(folder),
            "CDK_CONTEXT_JSON": json.dumps(_context(profile)),
            "CDK_VALIDATION": "false",  # the check against CloudFormation's schema takes seconds, and tests do it
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "18,20",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LocalStackError(f"the CDK app does not synthesize:\n{done.stderr.strip()[-4000:]}")


def deploy(folder: Path, port: int, name: str = STACK_NAME) -> dict[str, str]:
    """Deploys the stack of a synthesized app in `folder`, and returns the stack's outputs.

    Raises LocalStackError with the first resource that failed, and the reason.
    """
    _bootstrap(port)
    s3 = client("s3", port)
    template_url = ""
    for source, bucket, key in _assets(folder, name):
        _upload(s3, source, bucket, key)
        if source.name == f"{name}.template.json":
            template_url = f"{endpoint_url(port)}/{bucket}/{key}"
    cloudformation = client("cloudformation", port)
    status = stack_status(port, name)
    if status in _STATES_TO_REPLACE:
        cloudformation.delete_stack(StackName=name)
        _wait(cloudformation, name)
        status = None
    put = cloudformation.create_stack if status is None else cloudformation.update_stack
    try:
        put(StackName=name, TemplateURL=template_url, Capabilities=["CAPABILITY_NAMED_IAM"])
    except ClientError as error:
        if "No updates are to be performed" not in str(error):
            raise LocalStackError(f"the emulator refuses the template: {error}") from error
    return _wait(cloudformation, name)


def stack_status(port: int, name: str = STACK_NAME) -> str | None:
    """Returns CloudFormation's status of the stack, None if there is no stack."""
    stack = _describe(client("cloudformation", port), name)
    return None if stack is None else str(stack["StackStatus"])


def _context(profile: Profile) -> Mapping[str, Any]:
    """Returns the context that the CDK's command line would pass: cdk.json's context, the stage and its profile."""
    context: dict[str, Any] = json.loads((CHECKOUT / "cdk.json").read_text())["context"]
    return context | {"stage": STAGE, "profile": profile}


def _bootstrap(port: int) -> None:
    client("ssm", port).put_parameter(
        Name=_BOOTSTRAP_VERSION_PARAMETER, Value=_BOOTSTRAP_VERSION, Type="String", Overwrite=True
    )


def _assets(folder: Path, name: str) -> Iterator[tuple[Path, str, str]]:
    """Yields every file to upload, with its bucket and key."""
    manifest = json.loads((folder / f"{name}.assets.json").read_text())
    for asset in manifest["files"].values():
        for destination in asset["destinations"].values():
            bucket = destination["bucketName"].replace("${AWS::AccountId}", ACCOUNT).replace("${AWS::Region}", REGION)
            yield folder / asset["source"]["path"], bucket, destination["objectKey"]


def _upload(s3: Any, source: Path, bucket: str, key: str) -> None:
    """Uploads a file, or a folder as a zip, if it is missing.

    Its key is a hash of its content, so an existing object is the right one.
    """
    try:
        s3.head_object(Bucket=bucket, Key=key)
    except ClientError:
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key=key, Body=_zip(source) if source.is_dir() else source.read_bytes())


def _zip(folder: Path) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return data.getvalue()


def _wait(cloudformation: Any, name: str) -> dict[str, str]:
    deadline = time.monotonic() + _DEPLOY_S_MAX
    while time.monotonic() < deadline:
        stack = _describe(cloudformation, name)
        if stack is None or stack["StackStatus"] == "DELETE_COMPLETE":
            return {}
        status = stack["StackStatus"]
        if status in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
        if not status.endswith("_IN_PROGRESS"):
            raise LocalStackError(f"the stack ended as {status}: {_first_failure(cloudformation, name)}")
        time.sleep(_POLL_S)
    raise LocalStackError(f"the stack was not deployed within {_DEPLOY_S_MAX} s")


def _describe(cloudformation: Any, name: str) -> Any:
    try:
        return cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":  # does not exist
            return None
        raise


def _first_failure(cloudformation: Any, name: str) -> str:
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    failures = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
    if not failures:
        return "no resource says why"
    first = min(failures, key=lambda event: event["Timestamp"])
    return f"{first['LogicalResourceId']} ({first['ResourceType']}): {first.get('ResourceStatusReason', 'no reason')}"
