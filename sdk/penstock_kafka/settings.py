"""The gateway's settings, and its limits."""

from dataclasses import dataclass

from penstock_core.limits import FETCH_WAIT_MS_MAX, KAFKA_CONNECTIONS_DEFAULT_MAX

DEFAULT_PORT = 9092
CLUSTER_ID = "penstock"
NODE_ID = 1  # every gateway is the only broker of its clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The choices of the operator.

    Clients are told to connect to `advertised`. `security_protocol` says how they do, in Kafka's words.
    """

    advertised: Address
    security_protocol: str = "PLAINTEXT"
    creates_topics: bool = False  # of names that a producer or a consumer asks for
    created_partitions: int = 1
    share_start: str = "latest"  # of share groups that the gateway creates: Kafka's share.auto.offset.reset
    refuses_unknown_settings: bool = False  # of topics and groups, that have no effect here
    connections_max: int = KAFKA_CONNECTIONS_DEFAULT_MAX
    poll_ms_max: int = FETCH_WAIT_MS_MAX  # of one long poll, where the service has no wake-ups
