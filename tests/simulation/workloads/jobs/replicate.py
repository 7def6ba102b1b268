"""The function `replicate` gets the log table's stream and the repair queue while appends go on and zones fail."""

from penstock_core.errors import PenstockError
from tests.simulation.service.deliveries import Call, deliver_repairs, deliver_stream
from tests.simulation.service.simulation import Simulation

_MESSAGES_MAX = 5


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    call: Call = lambda run: simulation.call(run, is_read=False)  # noqa: E731 - a lambda says it best

    def read_stream() -> None:
        while not simulation.is_over:
            if not simulation.storage.stream:
                simulation.scheduler.pause(200.0)
                continue
            try:
                deliver_stream(call, simulation.storage.stream)
            except PenstockError as error:
                simulation.scheduler.note("stream again", error)
            simulation.scheduler.pause(random.uniform(1.0, 100.0))

    def take_messages() -> None:
        while not simulation.is_over:
            taken = simulation.repairs[:_MESSAGES_MAX]
            if not taken:
                simulation.scheduler.pause(400.0)
                continue
            del simulation.repairs[: len(taken)]
            simulation.count("repair message")
            again = taken
            try:
                again = deliver_repairs(call, taken)
            except PenstockError as error:
                simulation.scheduler.note("messages again", error)
            simulation.scheduler.pause(random.uniform(100.0, 2_000.0))
            simulation.repairs.extend(again)

    simulation.scheduler.spawn("stream", read_stream)
    for number in range(2):
        simulation.scheduler.spawn(f"queue{number}", take_messages)
