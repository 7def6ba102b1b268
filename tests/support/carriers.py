"""The transports of the SDK over one service in memory, so that one suite tests all of them.

| name       | what carries a request to the handlers                                       |
|------------|------------------------------------------------------------------------------|
| `memory`   | MemoryTransport, as the API does, without HTTP                                |
| `embedded` | EmbeddedTransport on the instance in memory                                   |
"""

from collections.abc import Callable

from penstock.configuration import Configuration, StaticCredentials
from penstock.http.transport import Transport
from penstock.testing import MemoryTransport
from penstock.transports.embedded import EmbeddedService, EmbeddedTransport
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.instance.instance import Instance


def embedded_transport(instance: Instance, principal_arn: str = LOCAL_PRINCIPAL) -> EmbeddedTransport:
    """An EmbeddedTransport on `instance`, whose caller is `principal_arn`."""
    service = EmbeddedService(instance, lambda: principal_arn)
    signer = Configuration(url="https://aws", region="r", credentials=StaticCredentials("k", "s"))
    return EmbeddedTransport(lambda: service, lambda: signer)


CARRIERS: dict[str, Callable[[Instance], Transport]] = {"memory": MemoryTransport, "embedded": embedded_transport}
