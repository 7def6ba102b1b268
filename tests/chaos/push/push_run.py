"""The push side of a run: targets and subscriptions at its begin, torment meanwhile, and a calm endpoint at its end."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from penstock import Admin
from tests.chaos.clients.clients import Target
from tests.chaos.clients.stop_file import StopFile
from tests.chaos.push.endpoint import run_endpoint
from tests.chaos.push.function_torment import FunctionTorment, disturbing, tormenting_functions
from tests.chaos.push.recording_target import CONTROL, control
from tests.chaos.push.subscriptions import BY_ENDPOINT, FIRST, FUNCTIONS, PushOperator
from tests.chaos.push.targets import DELIVER, deploy_targets, function_name
from tests.chaos.push.timeouts import tell_timeouts
from tests.chaos.tormenting import ENDED, Torment, tormenting
from tests.end_to_end.local_stack import Stack, free_port
from tests.history.recorder import Recorder

_SLOT = "endpoint"
ENDPOINT_ENDED = f"{_SLOT}: {ENDED}"
_TORMENT = Torment(life_s=(6.0, 20.0), stands_s=(2.0, 6.0))
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRun:
    """The subscriptions of a run. `targets` has the target of each, as the API has it."""

    stack: Stack
    target: Target
    seed: int
    recorder: Recorder
    port: int
    targets: Mapping[str, Mapping[str, Any]]

    @contextmanager
    def attacked(self) -> Iterator[Counter[str]]:
        """Torment the endpoint, the functions that are targets, and `deliver`. The counter tells what was done."""
        end = StopFile(self.target.folder / "stop-endpoint")
        functions = FunctionTorment(
            endpoint_url=self.stack.endpoint_url,
            victims={DELIVER: None, **{function_name(each): each for each in FUNCTIONS}},
            targets=(*FUNCTIONS, *BY_ENDPOINT),
            control=self.target.folder / CONTROL,
        )
        with (
            tormenting_functions(functions, self.seed, self.recorder) as done,
            tormenting((_SLOT,), self.seed, self._start(end), end.set, _TORMENT, self._disturbing) as endpoint,
        ):
            yield done
        done.update({f"{_SLOT}: {what}": count for what, count in endpoint.items()})

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Serve the endpoint, undisturbed."""
        end = StopFile(self.target.folder / "stop-calm-endpoint")
        process = _SPAWN.Process(target=run_endpoint, args=(self.target, self.port, "calm", end))
        process.start()
        try:
            yield
        finally:
            end.set()
            process.join()

    def tell_timeouts(self, log: Path) -> None:
        """Tell the history of deliveries and targets that the emulator has ended, as its log has them."""
        names = DELIVER, *(function_name(each) for each in FUNCTIONS)
        tell_timeouts(log, self.target.folder / "timeouts.history.jsonl", names)

    def _start(self, end: StopFile) -> Any:
        def start(_slot: str, life: int) -> SpawnProcess:
            return _SPAWN.Process(target=run_endpoint, args=(self.target, self.port, str(life), end))

        return start

    def _disturbing(self, slot: str) -> AbstractContextManager[None]:
        return disturbing(self.recorder, f"{slot} killed or frozen", None)


def begin_push(stack: Stack, target: Target, seed: int, recorder: Recorder) -> PushRun:
    """Deploy the targets, and create the topics and the first subscriptions."""
    port = free_port()
    control(target.folder / CONTROL, {})
    targets = deploy_targets(stack, target.folder, port)
    with Admin(transport=stack.transport()) as admin:
        operator = PushOperator(admin=admin, recorder=recorder, targets=targets)
        operator.create_topics(target.partitions)
        for name in FIRST:
            operator.create(name)
    return PushRun(stack=stack, target=target, seed=seed, recorder=recorder, port=port, targets=targets)
