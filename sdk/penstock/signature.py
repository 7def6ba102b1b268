"""AWS Signature Version 4 of a request, for every transport."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError

from penstock.configuration import Configuration
from penstock.errors import NotConfiguredError

SERVICE = "execute-api"


class SignedRequest(NamedTuple):
    """What goes on the wire, with the body: exactly this URL, and at least these headers."""

    url: str
    headers: dict[str, str]


def sign(
    configuration: Configuration,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> SignedRequest:
    """The request, signed now. Hashes the body; may call for fresh credentials, so it may take its time.

    Raises NotConfiguredError if the credentials can not be refreshed.
    """
    url = configuration.url + quote(path)
    if query:
        url += "?" + urlencode(query, quote_via=quote)
    request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    try:
        # Frozen: key, secret and token of one moment; refreshed here when they are about to expire.
        credentials = configuration.credentials.get_frozen_credentials()
    except BotoCoreError as error:
        raise NotConfiguredError(f"the AWS credentials could not be refreshed: {error}") from error
    SigV4Auth(credentials, SERVICE, configuration.region).add_auth(request)
    return SignedRequest(url, dict(request.headers.items()))
