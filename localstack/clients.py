"""boto3 clients of the emulator with its root key, which it never checks.

AWS_ENDPOINT_URL plays no part: it may name another stack.
"""

import os
from typing import Any

import boto3

HOST = "127.0.0.1"
REGION = "us-east-1"
ACCOUNT = "000000000000"
ROOT_KEY = "test"


def client(service: str, port: int) -> Any:
    """Returns a client of one service of the emulator on that port. The client may do everything."""
    return boto3.client(
        service,
        aws_access_key_id=ROOT_KEY,
        aws_secret_access_key=ROOT_KEY,
        region_name=REGION,
        endpoint_url=endpoint_url(port),
    )


def endpoint_url(port: int) -> str:
    """Returns the URL at which the emulator answers for every service."""
    return f"http://{HOST}:{port}"


def forget_aws_environment() -> None:
    """Removes AWS_* from this process, so that no profile, endpoint or region of yours reaches the local stack."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
