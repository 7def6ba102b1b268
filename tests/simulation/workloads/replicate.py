"""The function `replicate` is handed the log table's stream and the repair queue while appends go on and zones fail."""

from penstock_core.errors import PenstockError
from tests.simulation.deliveries import Call, deliver_repairs, deliver_stream
from tests.simulation.world import World

_MESSAGES_MAX = 5


def install(world: World) -> None:
    random = world.scheduler.random
    call: Call = lambda run: world.call(run, is_read=False)  # noqa: E731 - a lambda says it best

    def read_stream() -> None:
        while not world.is_over:
            if not world.stream:
                world.scheduler.pause(200.0)
                continue
            try:
                deliver_stream(call, world.stream)
            except PenstockError as error:
                world.scheduler.note("stream again", error)
            world.scheduler.pause(random.uniform(1.0, 100.0))

    def take_messages() -> None:
        while not world.is_over:
            taken = world.repairs[:_MESSAGES_MAX]
            if not taken:
                world.scheduler.pause(400.0)
                continue
            del world.repairs[: len(taken)]
            world.count("repair message")
            again = taken
            try:
                again = deliver_repairs(call, taken)
            except PenstockError as error:
                world.scheduler.note("messages again", error)
            world.scheduler.pause(random.uniform(100.0, 2_000.0))
            world.repairs.extend(again)

    world.scheduler.spawn("stream", read_stream)
    for number in range(2):
        world.scheduler.spawn(f"queue{number}", take_messages)
