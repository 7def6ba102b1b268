"""The function `replicate` gets the log table's stream and the repair queue while appends go on and zones fail."""

from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.log.repair import Look, Repair
from tests.simulation.service.deliveries import Call, deliver_messages, deliver_stream
from tests.simulation.service.simulation import Simulation

_MESSAGES_MAX = 5
_LOOK_MS_MAX = 3_000.0  # sooner than SQS delivers looks, so that they meet rolls, late puts and failing zones


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

    def take_messages(queue: list[Repair] | list[Look], delay_ms_max: float) -> None:
        while not simulation.is_over:
            taken: list[Repair | Look] = [*queue[:_MESSAGES_MAX]]
            if not taken:
                simulation.scheduler.pause(400.0)
                continue
            del queue[: len(taken)]
            simulation.count("look" if queue is simulation.looks else "repair message")
            simulation.scheduler.pause(random.uniform(0.0, delay_ms_max))
            again = taken
            try:
                again = deliver_messages(call, taken)
            except PenstockError as error:
                simulation.scheduler.note("messages again", error)
            simulation.scheduler.pause(random.uniform(100.0, 2_000.0))
            for message in again:
                simulation.stores.repair_queue.send(message)

    simulation.scheduler.spawn("stream", read_stream)
    for number in range(2):
        simulation.scheduler.spawn(f"queue{number}", partial(take_messages, simulation.repairs, 0.0))
        simulation.scheduler.spawn(f"looks{number}", partial(take_messages, simulation.looks, _LOOK_MS_MAX))
