"""RepairQueue in memory."""

from penstock_core.log.repair import Look, Repair


class MemoryRepairQueue:
    """RepairQueue: the port documents its method. `repairs` and `looks` were sent, and nobody has taken them yet.

    The taker of a look waits for its time, or does not.
    """

    def __init__(self) -> None:
        self.repairs: list[Repair] = []
        self.looks: list[Look] = []

    def send(self, message: Repair | Look) -> None:
        if isinstance(message, Look):
            self.looks.append(message)
        else:
            self.repairs.append(message)
