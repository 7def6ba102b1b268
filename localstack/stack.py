"""The local stack as a whole: up, down and status of one state directory."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from localstack.clients import REGION, ROOT_KEY, client, endpoint_url
from localstack.deploy import deploy, stack_status, synthesize
from localstack.emulator import (
    DEFAULT_PORT,
    Emulator,
    find_emulator,
    install_ministack,
    last_port,
    ministack_python,
    start_emulator,
    stop_emulator,
)
from localstack.errors import LocalStackError
from localstack.locks import exclusive
from localstack.places import CHECKOUT, Places
from localstack.progress import Progress
from penstock_cdk.storage_profile import PROFILES, Profile
from penstock_core.stack_outputs import FUNCTIONS_OUTPUT, FUNCTIONS_VARIABLE, storage_variables

USER = "penstock-local"  # its keys sign the requests of clients: the emulator checks no root key, only users'
_POLICY_OUTPUTS = ("ProducePolicyArn", "ConsumePolicyArn", "TransactPolicyArn", "AdminPolicyArn")
_SOURCES = (
    "app.py",
    "cdk.json",
    "infra",
    "functions",
    "glue_jobs",
    "sdk",
    "requirements/dev.txt",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of a local stack. `url` is None until the first deployment; `pid` and `port` while no emulator runs."""

    is_running: bool
    is_current: bool  # the deployment has the checkout's sources
    pid: int | None
    port: int | None
    url: str | None
    endpoint_url: str | None
    state_dir: str
    env_file: str
    log: str


def up(places: Places, *, port: int | None, profile: Profile | None = None, progress: Progress) -> bool:
    """Starts the stack and deploys the checkout's sources to it. False if there was nothing to do.

    `port` None keeps the current port, or takes the last one, or 4566. `profile` None keeps the storage profile of the
    state directory, or takes `local`. Raises LocalStackError, also for another profile than that of the state.
    """
    with exclusive(places.command_lock):
        kept = kept_profile(places)
        if profile is not None and kept is not None and profile != kept:
            raise LocalStackError(
                f"the stack in {places.state_dir} has the storage profile {kept}, and its data lies in those zones: "
                f"give another --state-dir for {profile}"
            )
        profile = profile or kept or "local"
        emulator = find_emulator(places)
        if emulator is not None and port not in (None, emulator.port):
            raise LocalStackError(
                f"the stack already runs on port {emulator.port}: `penstock local down` first to move it to {port}"
            )
        has_started = emulator is None
        if emulator is None:
            emulator = _start(places, port or last_port(places) or DEFAULT_PORT, progress)
        return _deploy(places, emulator.port, profile, progress) or has_started


def deploy_to(places: Places, *, port: int, progress: Progress) -> None:
    """Deploys to an emulator on the port that another program started, such as LocalStack in Docker."""
    with exclusive(places.command_lock):
        _deploy(places, port, kept_profile(places) or "local", progress)


def kept_profile(places: Places) -> Profile | None:
    """Returns the storage profile that the state directory was deployed with, None if nothing is deployed yet."""
    deployment = _read_deployment(places)
    return next((each for each in PROFILES if each == deployment.get("profile", "local")), None) if deployment else None


def down(places: Places, *, progress: Progress) -> Emulator | None:
    """Stops the stack, keeps its state, and returns the stopped emulator. Raises LocalStackError."""
    with exclusive(places.command_lock):
        if find_emulator(places) is None:
            return None
        with progress.step("Stopping the emulator and saving its state"):
            return stop_emulator(places)


def status(places: Places) -> Status:
    """Returns the state of the stack, and changes nothing."""
    emulator = find_emulator(places)
    deployment = _read_deployment(places)
    return Status(
        is_running=emulator is not None,
        is_current=deployment.get("fingerprint") == _fingerprint(),
        pid=emulator.pid if emulator else None,
        port=emulator.port if emulator else None,
        url=_api_url(deployment["ApiId"], emulator.port) if emulator and "ApiId" in deployment else None,
        endpoint_url=endpoint_url(emulator.port) if emulator else None,
        state_dir=str(places.state_dir),
        env_file=str(places.env_file),
        log=str(places.log),
    )


def _start(places: Places, port: int, progress: Progress) -> Emulator:
    python = ministack_python()
    if python is None:
        with progress.step("Installing MiniStack in a virtual environment of its own (first time only)"):
            python = install_ministack()
    with progress.step(f"Starting the emulator on port {port}"):
        return start_emulator(places, python, port)


def _deploy(places: Places, port: int, profile: Profile, progress: Progress) -> bool:
    """Deploys if the sources changed since the last deployment. False if they did not."""
    fingerprint = _fingerprint()
    deployment = _read_deployment(places)
    is_current = deployment.get("fingerprint") == fingerprint and stack_status(port) is not None
    if not is_current:
        with progress.step("Synthesizing the CDK app"):
            synthesize(places.cloud_assembly, profile)
        with progress.step("Deploying it"):
            deployment = deploy(places.cloud_assembly, port) | {"fingerprint": fingerprint, "profile": profile}
    _write_env(places, deployment, port)
    places.deployment.write_text(json.dumps(deployment, indent=2))
    return not is_current


def _write_env(places: Places, deployment: dict[str, str], port: int) -> None:
    known = read_env_file(places.env_file)
    keys = ensure_user(client("iam", port), [deployment[name] for name in _POLICY_OUTPUTS], known)
    values = {
        "PENSTOCK_URL": _api_url(deployment["ApiId"], port),
        FUNCTIONS_VARIABLE: deployment[FUNCTIONS_OUTPUT],
        "AWS_ENDPOINT_URL": endpoint_url(port),
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,  # the one that boto3 reads
        **keys,
    }
    if values != known:
        write_env_file(places.env_file, values)
    jobs = storage_variables(deployment) | {
        "AWS_ENDPOINT_URL": endpoint_url(port),
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ROOT_KEY,
        "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
    }
    if jobs != read_env_file(places.jobs_env_file):
        write_env_file(places.jobs_env_file, jobs)


def _api_url(api_id: str, port: int) -> str:
    """Returns a URL with the API in its path, because names below localhost do not resolve everywhere."""
    return f"{endpoint_url(port)}/_aws/execute-api/{api_id}"


def _read_deployment(places: Places) -> dict[str, str]:
    return dict(json.loads(places.deployment.read_text())) if places.deployment.exists() else {}


def _fingerprint() -> str:
    """Returns a hash of all sources of the deployed stack."""
    digest = hashlib.sha256()
    for path in _source_files():
        digest.update(f"{path.relative_to(CHECKOUT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _source_files() -> Iterator[Path]:
    for source in _SOURCES:
        path = CHECKOUT / source
        if path.is_file():
            yield path
        yield from (file for file in sorted(path.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)


def ensure_user(iam: Any, policy_arns: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Makes the user, attaches the policies, and returns its keys as environment variables.

    Keeps the key in `known` if it belongs to the user. Otherwise makes a new key, because IAM tells a secret only once.
    """
    try:
        iam.create_user(UserName=USER)
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityAlreadyExists":
            raise
    for arn in policy_arns:
        iam.attach_user_policy(UserName=USER, PolicyArn=arn)
    keys = [key["AccessKeyId"] for key in iam.list_access_keys(UserName=USER)["AccessKeyMetadata"]]
    if known.get("AWS_ACCESS_KEY_ID") in keys and known.get("AWS_SECRET_ACCESS_KEY"):
        return {name: known[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    for key in keys:
        iam.delete_access_key(UserName=USER, AccessKeyId=key)
    made = iam.create_access_key(UserName=USER)["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": made["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"]}


def read_env_file(path: Path) -> dict[str, str]:
    """Reads the KEY=value lines of a file. Empty if there is no file."""
    if not path.exists():
        return {}
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


def write_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Writes KEY=value lines to a file that only its owner can read."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
