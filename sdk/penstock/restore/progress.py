"""What is left of each step of a restore, read off AWS: it changes nothing.

```
 stop ▶ restore ▶ settings ▶ jump ▶ expiry ▶ deploy ▶ look ▶ release ▶ sweep
                                               └ from here on the stage uses the restored tables: no way back
```
So any call goes on where another one ended. `stage_restore.py` does the steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.deployed.aws import Aws
from penstock.deployed.stack import DeployedStack
from penstock.restore.deployment import Deployment
from penstock.restore.note import TABLE_OUTPUTS, NoteStore, RestoreNote, TableRestore, second_text
from penstock.restore.switches import Switch, is_at
from penstock.restore.tables import LOG, check_source, describe, lacking, lacking_expiry, restored_usd
from penstock_core.errors import ErrorCode, PenstockError

STEPS = ("stop", "restore", "settings", "jump", "expiry", "deploy", "look", "release", "sweep")
JUMP = "jump"
RELEASING = "releasing"  # noted before the first writer comes back: from then on the log grows, and jumps no more


class Jumps(Protocol):
    """The jump of the restored heads."""

    def left(self, stack: DeployedStack, note: RestoreNote) -> list[str]:
        """The plan."""

    def make(self, stack: DeployedStack, note: RestoreNote) -> Iterator[str]:
        """Does it, and yields a line for each topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """A step of the plan: what is left of it, nothing for a step that is done."""

    step: str
    is_done: bool
    changes: tuple[str, ...]


class RestoreProgress:
    """A restore of the stage of a stack to one second, begun or not: how far it is.

    `note` is the note of the one that is under way, or the one that would be written. `contexts` are the `-c` of the
    stage's deployments, as the operator gives them: a note could have them from anybody who writes to the bucket.
    """

    def __init__(self, aws: Aws, stack: DeployedStack, note: RestoreNote, *, notes: NoteStore, jumps: Jumps) -> None:
        self.note = note
        self.stack = stack
        self.contexts: Sequence[str] = ()
        self._aws = aws
        self._jumps = jumps
        self._notes = notes

    @property
    def has_begun(self) -> bool:
        """The restore is noted."""
        return self._notes.has_begun

    @property
    def is_deployed(self) -> bool:
        """The stack uses the restored tables."""
        return self._uses({name: each.restored for name, each in self.note.tables.items()})

    def plan(self) -> list[StepState]:
        """All steps in order. A step is done only if those before it are."""
        found: list[StepState] = []
        is_reached = True
        for step in STEPS:
            changes = tuple(_LEFT[step](self, is_reached))
            is_reached = is_reached and not changes
            found.append(StepState(step=step, is_done=is_reached, changes=changes))
        return found

    def left(self, step: str) -> tuple[str, ...]:
        """The rest of a step whose predecessors are done."""
        return tuple(_LEFT[step](self, True))

    @property
    def restore_usd(self) -> float:
        """The price of restoring the three tables, by their sizes."""
        return sum(restored_usd(describe(self._aws, each.harmed) or {}) for each in self.note.tables.values())

    @property
    def longest_run_s(self) -> int:
        """A function that runs when it is stopped may write for so long."""
        return max((each.timeout_s for each in self.note.switches), default=0)

    def deployment(self) -> Deployment:
        """The deployment that points the stack at the restored tables. Raises INVALID_CONFIG without their stream."""
        log = self.note.tables["log"].restored
        label = (describe(self._aws, log) or {}).get("LatestStreamLabel")
        if label is None:
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"table {log} has no stream any more: run the command again")
        return Deployment(
            stack=self.stack,
            contexts=self.contexts,
            tables={**{name: each.restored for name, each in self.note.tables.items()}, "log_stream": label},
            stopped=[each.handler for each in self.note.switches if each.handler],
        )

    def _uses(self, tables: Mapping[str, str]) -> bool:
        return all(self.stack.outputs[TABLE_OUTPUTS[name]] == table for name, table in tables.items())

    @property
    def _warm_writes(self) -> int | None:
        writes: int | None = self.stack.settings.get("warm_log_writes")
        return writes

    def _is_there(self, table: TableRestore) -> bool:
        found = describe(self._aws, table.restored)
        if found is not None:
            check_source(found, table)
        return found is not None and found["TableStatus"] == "ACTIVE"

    def _released(self) -> list[Switch]:
        return [each for each in reversed(self.note.switches) if not each.is_sweep]

    def _swept(self) -> list[Switch]:
        return [each for each in reversed(self.note.switches) if each.is_sweep]

    def _left_of_stop(self, _: bool) -> list[str]:
        if self.is_deployed and JUMP in self.note.done:
            return []
        left = [each for each in self.note.switches if not self.has_begun or not is_at(self._aws, each, 0)]
        when = [] if self.note.stopped_ms is not None and not left else ["note when all was stopped"]
        return [*(each.text(each.before, 0) for each in left), *when]

    def _left_of_restore(self, _: bool) -> list[str]:
        if self.is_deployed:
            return []
        return [
            f"{name}: {each.harmed} of {second_text(self.note.to_s)} as {each.restored}{self._price(each)}"
            for name, each in self.note.tables.items()
            if not (self.has_begun and self._is_there(each))
        ]

    def _price(self, table: TableRestore) -> str:
        described = describe(self._aws, table.harmed) or {}
        return f" ({described.get('TableSizeBytes', 0) / 1e9:.2f} GB, ${restored_usd(described):.2f})"

    def _left_of_settings(self, is_reached: bool) -> list[str]:
        if self.is_deployed:
            return []
        if not is_reached:
            return ["stream, expiry of groups, point-in-time recovery, tags and deletion protection"]
        return [
            setting.text
            for name, table in self.note.tables.items()
            for setting in lacking(self._aws, name, table, self._warm_writes)
        ]

    def _left_of_jump(self, is_reached: bool) -> list[str]:
        if not is_reached:
            return ["each partition goes on 1,000 offsets behind all that were given"]
        is_noted = JUMP in self.note.done
        if RELEASING in self.note.done or (is_noted and describe(self._aws, self.note.tables["log"].harmed) is None):
            return []  # outside of `prod` the deployment deletes the harmed table
        return self._jumps.left(self.stack, self.note) or ([] if is_noted else ["note that all have jumped"])

    def _left_of_expiry(self, is_reached: bool) -> list[str]:
        if not is_reached:
            return ["expiry of the log table"]
        return [setting.text for setting in lacking_expiry(self._aws, LOG, self.note.tables[LOG])]

    def _left_of_deploy(self, is_reached: bool) -> list[str]:
        if not is_reached:
            return ["npx cdk deploy, with the restored tables, all writers at 0 and no canary"]
        return [] if self.is_deployed else [self.deployment().text()]

    def _left_of_look(self, is_reached: bool) -> list[str]:
        return ["read the newest record of each topic"] if self._left_of_release(is_reached) else []

    def _left_of_release(self, _: bool) -> list[str]:
        """The switches that are still off. Before the stack is deployed, that is all."""
        return [] if "release" in self.note.done else self._left_of(self._released()) or ["note that all is back"]

    def _left_of_sweep(self, _: bool) -> list[str]:
        return self._left_of(self._swept())

    def _left_of(self, switches: Sequence[Switch]) -> list[str]:
        is_off = self.has_begun and self.is_deployed
        return [each.text(0, each.before) for each in switches if not is_off or not is_at(self._aws, each, each.before)]


_LEFT: Mapping[str, Callable[[RestoreProgress, bool], list[str]]] = {
    step: getattr(RestoreProgress, f"_left_of_{step}") for step in STEPS
}
