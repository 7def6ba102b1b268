"""boto3 clients of the emulator with its root key, which it never checks, by localstack-client."""

import os
from typing import Any

from localstack_client.config import get_service_ports
from localstack_client.session import Session

HOST = "127.0.0.1"
REGION = "us-east-1"
ACCOUNT = "000000000000"
ROOT_KEY = "test"


def client(service: str, port: int) -> Any:
    """Returns a client of one service of the emulator on that port. The client may do everything."""
    return _Session(port).client(service)


def endpoint_url(port: int) -> str:
    """Returns the URL at which the emulator answers for every service."""
    return f"http://{HOST}:{port}"


def forget_aws_environment() -> None:
    """Removes AWS_* from this process, so that no profile, endpoint or region of yours reaches the local stack."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull


class _Session(Session):  # type: ignore[misc]  # localstack-client has no types
    """A session of the emulator on that port. AWS_ENDPOINT_URL plays no part: it may name another stack."""

    def __init__(self, port: int) -> None:
        super().__init__(ROOT_KEY, ROOT_KEY, None, REGION, localstack_host=f"{HOST}:{port}")
        self._service_endpoint_mapping = dict.fromkeys(get_service_ports(), endpoint_url(port))
