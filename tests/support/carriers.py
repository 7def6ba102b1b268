"""The transports of the SDK over one service in memory, so that one suite tests all of them.

| name       | what carries a request to the handlers                                       |
|------------|------------------------------------------------------------------------------|
| `memory`   | MemoryTransport, as the API does, without HTTP                                |
| `embedded` | EmbeddedTransport on the instance in memory                                   |
| `auto`     | AutoTransport: `memory` in place of HTTP, until it has learned the functions  |
| `lambda`   | LambdaTransport, sockets, and a Lambda and an STS that are fakes (fake_aws.py) |
"""

from collections.abc import Callable
from functools import cache
from itertools import count

from penstock.configuration import Configuration, StaticCredentials
from penstock.http.transport import Transport
from penstock.testing import MemoryTransport
from penstock.transports.by_auto import AutoTransport
from penstock.transports.by_lambda import LambdaTransport
from penstock.transports.embedded import EmbeddedService, EmbeddedTransport
from penstock.transports.ways import Ways
from penstock_core.direct.function_arn import parse_functions_place
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.instance.instance import Instance
from tests.support.fake_aws import FakeAws


def embedded_transport(instance: Instance, principal_arn: str = LOCAL_PRINCIPAL) -> EmbeddedTransport:
    """An EmbeddedTransport on `instance`, whose caller is `principal_arn`."""
    service = EmbeddedService(instance, lambda: principal_arn)
    signer = Configuration(url="https://aws", region="r", credentials=StaticCredentials("k", "s"))
    return EmbeddedTransport(lambda: service, lambda: signer)


_stages = count(1)


@cache
def _aws() -> FakeAws:
    """One for all tests of this process: each instance is a stage of its own."""
    return FakeAws()


def lambda_transport(instance: Instance, principal_arn: str = "arn:aws:iam::111122223333:user/ada") -> LambdaTransport:
    """A LambdaTransport to the functions of a stage on `instance`, whose caller is `principal_arn`."""
    aws = _aws()
    return LambdaTransport(aws.access(aws.stage(instance, f"stage{next(_stages)}"), aws.key(principal_arn)))


def auto_transport(instance: Instance, principal_arn: str = "arn:aws:iam::111122223333:user/ada") -> AutoTransport:
    """An AutoTransport to a stage on `instance`, whose caller is `principal_arn`."""
    aws = _aws()
    place, key = aws.stage(instance, f"stage{next(_stages)}"), aws.key(principal_arn)
    ways = Ways(None, lambda text: aws.access(parse_functions_place(text), key), lasts=True)
    return AutoTransport(MemoryTransport(aws.instance_of(place), principal_arn), ways)


CARRIERS: dict[str, Callable[[Instance], Transport]] = {
    "memory": MemoryTransport,
    "embedded": embedded_transport,
    "auto": auto_transport,
    "lambda": lambda_transport,
}
