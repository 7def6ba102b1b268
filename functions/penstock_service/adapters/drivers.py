"""The clients that reach AWS, behind one form: botocore's, or those of the room `direct`."""

from collections.abc import Callable
from typing import Any, Protocol

from penstock_service.adapters.direct.places import Keys


class Drivers(Protocol):
    """The clients of one process. Making them sends no call.

    Those of DynamoDB and S3 raise the errors of `driver_errors`, the others botocore's.
    """

    @property
    def dynamodb(self) -> Any:
        """A client of DynamoDB that repeats nothing."""

    @property
    def region(self) -> str:
        """The region of the clients."""

    def s3(self) -> Any:
        """The client of S3, always the same one."""

    def control(self, service: str) -> Any:
        """The client of another service, such as `sqs` or `lambda`."""

    def keys(self) -> Keys:
        """The keys of this moment. Raises DriverError if there are none."""

    def clients_of_role(self, role_arn: str) -> Callable[[str, Any], Any]:
        """Makes the client of a service with a configuration, under a role that the process assumes."""
