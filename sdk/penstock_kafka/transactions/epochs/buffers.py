"""The bytes that all open transactions of a gateway hold in memory."""

from penstock_core.limits import KAFKA_TRANSACTIONS_BYTES_MAX


class Buffers:
    """A count of bytes. A transaction that finds no room stages what it has, whatever size it is."""

    def __init__(self, bytes_max: int = KAFKA_TRANSACTIONS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.held = 0

    def has_room(self, size: int) -> bool:
        """True if so many bytes more may be held."""
        return self.held + size <= self._bytes_max

    def hold(self, size: int) -> None:
        """Hold bytes more."""
        self.held += size

    def let_go(self, size: int) -> None:
        """Hold bytes less."""
        self.held -= size
