"""Runs `python -m localstack` as a user does, with a state directory and a port of the test's own."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials

from localstack.clients import client
from localstack.places import CHECKOUT
from localstack.stack import read_env_file
from penstock.configuration import Configuration
from penstock.http.transport import HttpTransport

COMMAND_S_MAX = 300
NOW_MS = time.time_ns() // 1_000_000  # records of 1970 have expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running local stack, and the keys of its user. This user may call every route."""

    url: str
    endpoint_url: str
    region: str
    access_key_id: str
    secret_access_key: str

    def root_client(self, service: str) -> Any:
        """Returns a boto3 client that may do everything: read tables and buckets, and change functions."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            return client(service, int(self.endpoint_url.rpartition(":")[2]))

    def create_user(self, name: str, policy: dict[str, Any]) -> tuple[str, str]:
        """Makes an IAM user with that policy document and no other. Returns its access key id and secret."""
        iam = self.root_client("iam")
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="only", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]

    def transport(self, access_key_id: str | None = None, secret_access_key: str | None = None) -> HttpTransport:
        """Returns a transport that signs requests to the API, by default with the keys of the stack's user."""
        return HttpTransport(self.configuration(access_key_id, secret_access_key))

    def configuration(self, access_key_id: str | None = None, secret_access_key: str | None = None) -> Configuration:
        """Returns the URL, region and keys of a client, by default with the keys of the stack's user."""
        credentials = Credentials(access_key_id or self.access_key_id, secret_access_key or self.secret_access_key)
        return Configuration(url=self.url, region=self.region, credentials=credentials)


def run(command: str, state_dir: Path, *options: str, checkout: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `python -m localstack <command>` of this checkout or another. Any exit code is fine."""
    return subprocess.run(
        [sys.executable, "-m", "localstack", command, "--state-dir", str(state_dir), *options],
        cwd=checkout or CHECKOUT,
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )


def up(state_dir: Path, *options: str, checkout: Path | None = None) -> Stack:
    """Starts the stack and returns it."""
    done = run("up", state_dir, *options, checkout=checkout)
    assert done.returncode == 0, done.stderr
    return stack_of(state_dir)


def stack_of(state_dir: Path) -> Stack:
    """The stack that was deployed with this state directory."""
    values = read_env_file(state_dir / "local.env")
    return Stack(
        url=values["PENSTOCK_URL"],
        endpoint_url=values["AWS_ENDPOINT_URL"],
        region=values["AWS_REGION"],
        access_key_id=values["AWS_ACCESS_KEY_ID"],
        secret_access_key=values["AWS_SECRET_ACCESS_KEY"],
    )


def free_port() -> int:
    """Returns a port of 127.0.0.1 that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
