"""The steps of a restore of a whole stage. Each goes on where another process ended (progress.py).

A step may be done twice: a deployment that fails starts the writers again, and then all is stopped and jumps once more.
Nothing here deletes anything but the note of the restore.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock.deployed.aws import Aws, aws_code
from penstock.deployed.stack import DeployedStack, read_stack
from penstock.restore.note import NoteStore, RestoreNote, check_tables, second_text
from penstock.restore.progress import JUMP, RELEASING, Jumps, RestoreProgress
from penstock.restore.switches import Switch, SwitchKind, is_at, running_jobs, set_state
from penstock.restore.tables import (
    LOG,
    TableSetting,
    check_window,
    describe,
    lacking,
    lacking_expiry,
    left_to_you,
    order,
)
from penstock_core.errors import ErrorCode, PenstockError

POLL_MS = 15_000
PATIENCE_MS = (
    30 * 60_000
)  # a new table takes its first backup for minutes, and refuses point-in-time recovery until then
_MARGIN_MS = 10_000  # clocks, and a function that has just begun
_BUSY = frozenset(
    {
        "ResourceInUseException",
        "ContinuousBackupsUnavailableException",
        "ResourceConflictException",
        "LimitExceededException",
    }
)
_UNDOING = "undo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The clock of a restore, and where its progress is told."""

    now_ms: Callable[[], int]
    sleep_ms: Callable[[int], None]
    tell: Callable[[str], None]


class StageRestore(RestoreProgress):
    """A restore of the stage of a stack to one second, begun or not, and its steps."""

    def __init__(
        self, aws: Aws, stack: DeployedStack, note: RestoreNote, *, notes: NoteStore, pace: Pace, jumps: Jumps
    ) -> None:
        super().__init__(aws, stack, note, notes=notes, jumps=jumps)
        self._pace = pace

    def check(self) -> None:
        """Raises INVALID_CONFIG for a second that the tables cannot come back to, and while the stack changes."""
        check_window(self._aws, self.note.tables, self.note.to_s)
        self.check_quiet()

    def begin(self) -> None:
        """Notes the restore. Raises INVALID_CONFIG if another one has begun meanwhile."""
        self._notes.begin(self.note)

    def stop(self) -> None:
        """Stops what writes, and notes when: whatever runs then may still write until it times out.

        A jump that was made before is checked anew, because what ran since may have given offsets behind it.
        """
        self._set(self.note.switches, lambda _: 0)
        self.note = replace(self.note, stopped_ms=self._pace.now_ms(), done=())
        self._notes.change(self.note)

    def restore(self) -> None:
        """Orders the tables, and waits until they are there: minutes for a small table, hours for a very large one."""
        started_ms = self._pace.now_ms()
        self._order_missing()
        while waiting := [name for name, each in self.note.tables.items() if not self._is_there(each)]:
            minutes = (self._pace.now_ms() - started_ms) // 60_000
            self._pace.tell(
                f"DynamoDB restores {', '.join(waiting)}: {minutes} minutes so far; you may go and come back"
            )
            self._pace.sleep_ms(POLL_MS)
            self._order_missing()

    def settle(self) -> None:
        """Gives the tables what a restore leaves out, one setting after the other."""
        for name, table in self.note.tables.items():
            self._give(lacking(self._aws, name, table, self._warm_writes))
        for table in self.note.tables.values():
            for line in left_to_you(self._aws, table):
                self._pace.tell(f"left to you: {line}")

    def jump(self) -> None:
        """Lets the restored log go on behind all offsets, once no function that ran can write to the harmed one.

        Raises INVALID_CONFIG if something may write, before the jump or behind it, or another machine has gone on.
        """
        if JUMP in self.note.done:
            self._pace.tell("the harmed table has got records since the jump, which are lost: the log jumps once more")
            self.stop()
        self._check_stopped()
        while (left_ms := self._quiet_at_ms - self._pace.now_ms()) > 0:
            self._pace.tell(f"functions that ran when they were stopped may write for {left_ms // 1_000} s more")
            self._pace.sleep_ms(min(left_ms, POLL_MS))
        self._check_stopped()
        for line in self._jumps.make(self.stack, self.note):
            self._pace.tell(line)
        self._check_stopped()
        self._note_done(JUMP)

    def expire(self) -> None:
        """Turns the expiry of the log table on. Before the jump it would take small appends that a walk had kept."""
        self._give(lacking_expiry(self._aws, LOG, self.note.tables[LOG]))

    def check_quiet(self) -> None:
        """Raises INVALID_CONFIG while the stack is being deployed, or if its deployment has failed."""
        if not self.stack.is_deployable:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"stack {self.stack.place.stack} is {self.stack.status}: wait until its deployment has ended, or mend "
                "it, and run this again",
            )

    def after_deployment(self) -> None:
        """Reads the stack again. Raises INVALID_CONFIG if it does not use the restored tables, or still changes."""
        place = self.stack.place
        self._read_stack_again()
        if not self.is_deployed:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"stack {place.stack} still has the table {self.stack.outputs['LogTable']}: deploy it with the "
                "restored_tables of this restore",
            )

    def release(self) -> None:
        """Puts everything back as it was but the sweep: functions first, what starts them last.

        Raises INVALID_CONFIG if another machine has gone on, or the log must jump once more.
        """
        self.after_deployment()
        self._notes.check()
        if self._left_of_jump(True):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                "the harmed table has got records since the jump: run the same command again, and the log jumps anew",
            )
        self._note_done(RELEASING)
        self._set(self._released(), lambda each: each.before)
        self._note_done("release")

    def start_sweep(self) -> None:
        """Puts the sweep back as it was. It removes the objects of what was appended after the restored second."""
        self._set(self._swept(), lambda each: each.before)

    def end(self) -> None:
        """The restore is over."""
        self._notes.end()

    def undo(self) -> list[str]:
        """Puts everything back as it was, and ends the restore. Returns the restored tables, which are yours to delete.

        Raises INVALID_CONFIG if the stack uses them already, or changes: it may be about to use them.
        """
        self._read_stack_again()
        if not self._uses({name: each.harmed for name, each in self.note.tables.items()}):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"stack {self.stack.place.stack} uses the restored tables already, so there is nothing to undo: go on "
                f"with `penstock restore --to {second_text(self.note.to_s)}`",
            )
        self._note_done(_UNDOING)  # a machine that goes on with the restore finds the note changed
        self._set([*self._released(), *self._swept()], lambda each: each.before)
        self._notes.end()
        tables = [each.restored for each in self.note.tables.values()]
        return [table for table in tables if describe(self._aws, table) is not None]

    def _read_stack_again(self) -> None:
        self.stack = read_stack(self._aws, "/".join(each for each in self.stack.place if each))
        self.check_quiet()
        check_tables(self.note, self.stack)

    def _check_stopped(self) -> None:
        """Raises INVALID_CONFIG if anything may write: hours may have passed since it was stopped."""
        self._notes.check()
        self._read_stack_again()
        functions = [each for each in self.note.switches if each.kind is SwitchKind.FUNCTION]
        if again := [each.label for each in functions if not is_at(self._aws, each, 0)]:
            message = f"{', '.join(again)} may run again: run the same command again, which stops it"
            raise PenstockError(ErrorCode.INVALID_CONFIG, message)
        if runs := [*running_jobs(self._aws, self.stack)]:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"jobs still run, and may write: {', '.join(runs[:5])}. Wait for them or cancel them, and run the same "
                "command again",
            )

    @property
    def _quiet_at_ms(self) -> int:
        """From then on nothing that ran when it was stopped runs."""
        return (self.note.stopped_ms or self._pace.now_ms()) + 1_000 * self.longest_run_s + _MARGIN_MS

    def _order_missing(self) -> None:
        for table in self.note.tables.values():
            if describe(self._aws, table.restored) is None:
                self._patiently(table.restored, partial(order, self._aws, table, self.note.to_s))

    def _give(self, settings: Iterable[TableSetting]) -> None:
        for setting in settings:
            self._pace.tell(setting.text)
            self._patiently(setting.text, partial(setting.give, self._aws))

    def _note_done(self, step: str) -> None:
        if step not in self.note.done:
            self.note = replace(self.note, done=(*self.note.done, step))
            self._notes.change(self.note)

    def _set(self, switches: Sequence[Switch], wanted: Callable[[Switch], int | None]) -> None:
        for each in switches:
            state = wanted(each)
            if not is_at(self._aws, each, state):
                self._notes.check()
                self._pace.tell(each.text(each.before if state == 0 else 0, state))
                self._patiently(each.label, partial(set_state, self._aws, each, state))

    def _patiently(self, what: str, act: Callable[[], object]) -> None:
        """Acts again while AWS says that the resource is busy, as a table is while another of its settings changes."""
        until_ms = self._pace.now_ms() + PATIENCE_MS
        while True:
            try:
                act()
                return
            except PenstockError as error:
                if aws_code(error) not in _BUSY or self._pace.now_ms() >= until_ms:
                    raise
                self._pace.tell(f"{what} waits: {aws_code(error)}")
            self._pace.sleep_ms(POLL_MS)
