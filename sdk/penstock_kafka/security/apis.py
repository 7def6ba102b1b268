"""The APIs of this room."""

from collections.abc import Iterable

from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.security.sasl import Sasl
from penstock_kafka.security.users import Users

_BYTES_MAX = 16 * 1024


def login_apis(users: Users) -> Iterable[Api]:
    """SaslHandshake and SaslAuthenticate."""
    sasl = Sasl(users)
    yield Api(
        key=ApiKey.SASL_HANDSHAKE, versions=(1, 1), handler=sasl.handshake, bytes_max=_BYTES_MAX, is_before_login=True
    )
    yield Api(
        key=ApiKey.SASL_AUTHENTICATE,
        versions=(0, 2),
        handler=sasl.authenticate,
        bytes_max=_BYTES_MAX,
        is_before_login=True,
    )
