"""Rights: an operation on one resource, which a principal may have."""

from dataclasses import dataclass
from enum import Enum

from penstock_core.ids import is_reserved


class Operation(Enum):
    """The work of a caller on a resource."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DESCRIBE = "describe"
    ALTER = "alter"
    DELETE = "delete"


class Kind(Enum):
    """The kinds of resources. There is one service, so that one has no name."""

    TOPIC = "topic"
    GROUP = "group"
    SHARE_GROUP = "share_group"
    SUBSCRIPTION = "subscription"
    TRANSACTIONAL_ID = "transactional_id"
    SERVICE = "service"


# The caller of each of these sees the resource anyway. As in Kafka, an allowance of one is an allowance to describe.
IMPLY_DESCRIBE = frozenset({Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DELETE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One operation on one resource. `name` is "" for the service."""

    operation: Operation
    kind: Kind
    name: str = ""

    @property
    def resource(self) -> str:
        """The resource as a rule writes it: `topic:orders`, or `service`."""
        return self.kind.value if self.kind is Kind.SERVICE else f"{self.kind.value}:{self.name}"

    @property
    def is_reserved(self) -> bool:
        """True for the right to read a topic of the service's own, such as the audit trail."""
        return self.operation is Operation.READ and self.kind is Kind.TOPIC and is_reserved(self.name)
