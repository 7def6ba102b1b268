"""Requests past boto3, so that a test sees the bytes of an answer."""

import urllib.error
import urllib.request
from collections.abc import Mapping

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from localstack.clients import REGION, endpoint_url

ROOT = Credentials("test", "test")


def raw_call(
    port: int,
    service: str,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    credentials: Credentials = ROOT,
) -> tuple[int, dict[str, str], bytes]:
    """The status, headers (lower case) and body of the answer to a signed request, by default of the root user."""
    url = endpoint_url(port) + path
    signed = AWSRequest(method=method, url=url, data=body, headers=dict(headers or {}))
    SigV4Auth(credentials, service, REGION).add_auth(signed)
    request = urllib.request.Request(url, data=body or None, method=method, headers=dict(signed.headers))
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read()
