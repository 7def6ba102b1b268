"""Switches the rules of AWS on and off in a running emulator (like_aws/), and reads what they did."""

import json
import urllib.error
import urllib.request
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from localstack.clients import REGION, ROOT_KEY, endpoint_url
from localstack.errors import LocalStackError


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
