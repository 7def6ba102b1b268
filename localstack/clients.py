"""boto3 clients of the emulator with its root key, which it never checks, by localstack-client.

`set_rules` and `read_rules` switch the rules of AWS in a running emulator (like_aws/), and read what they did.
"""

import json
import os
import urllib.error
import urllib.request
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from localstack_client.config import get_service_ports
from localstack_client.session import Session

from localstack.errors import LocalStackError

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


def set_rules(port: int, text: str) -> dict[str, Any]:
    """Makes the rules hold that the text names, and no other (like_aws/rules.py). Returns what `read_rules` returns.

    Counts, buckets and sessions begin anew. Raises LocalStackError with the part of the text that is wrong.
    """
    return _call(port, "PUT", text.encode())


def read_rules(port: int) -> dict[str, Any]:
    """Returns the rules that hold, and counts of what they did: `{"rules": {...}, "counts": {...}}`."""
    return _call(port, "GET", b"")


def _call(port: int, method: str, body: bytes) -> dict[str, Any]:
    url = f"{endpoint_url(port)}/_like_aws"
    signed = AWSRequest(method=method, url=url, data=body)
    SigV4Auth(Credentials(ROOT_KEY, ROOT_KEY), "like-aws", REGION).add_auth(signed)
    headers = dict(signed.headers)
    request = urllib.request.Request(url, data=body or None, method=method, headers=headers)  # noqa: S310  # http
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return dict(json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        raise LocalStackError(str(json.loads(error.read())["message"])) from error
