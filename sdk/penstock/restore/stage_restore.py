"""The steps of a restore, and what is left of each: read off AWS, so that any call goes on where another one ended.

```
 stop ▶ restore ▶ settings ▶ jump ▶ deploy ▶ look ▶ release ▶ sweep
                                      └ from here on the stage uses the restored tables, and there is no way back
```
A step may be done twice: a deployment that fails starts the writers again, and then all is stopped and jumps once more.
Nothing here deletes anything but the note of the restore.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from penstock.deployed.aws import Aws, aws_code
from penstock.deployed.stack import DeployedStack, read_stack
from penstock.restore.note import NOTE_KEY, NoteStore, RestoreNote, TableRestore, second_text
from penstock.restore.switches import Switch, SwitchKind, find_switches, is_at, running_jobs, set_state
from penstock.restore.tables import (
    check_source,
    check_window,
    describe,
    lacking,
    left_to_you,
    order,
    restored_usd,
)
from penstock_core.errors import ErrorCode, PenstockError

STEPS = ("stop", "restore", "settings", "jump", "deploy", "look", "release", "sweep")
TABLE_OUTPUTS: Mapping[str, str] = {"topics": "TopicsTable", "log": "LogTable", "groups": "GroupsTable"}
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
_JUMP = "jump"
_RELEASING = "releasing"  # noted before the first writer comes back: from then on the log grows, and jumps no more
_UNDOING = "undo"
_ALL = 100  # percent: a first step below it is a canary


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The clock of a restore, and where its progress is told."""

    now_ms: Callable[[], int]
    sleep_ms: Callable[[int], None]
    tell: Callable[[str], None]


class StageRestore:
    """A restore of the stage of a stack to one second, begun or not.

    `note` is the note of the one that is under way, or the one that `begin` would write.
    """

    def __init__(
        self, aws: Aws, stack: DeployedStack, note: RestoreNote, *, notes: NoteStore, pace: Pace, jumps: Jumps
    ) -> None:
        self.note = note
        self._aws = aws
        self.stack = stack
        self._pace = pace
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

    def check(self) -> None:
        """Raises INVALID_CONFIG for a second that the tables cannot come back to, and while the stack changes."""
        check_window(self._aws, self.note.tables, self.note.to_s)
        self.check_quiet()

    def begin(self) -> None:
        """Notes the restore. Raises INVALID_CONFIG if another one has begun meanwhile."""
        self._notes.begin(self.note)

    def use_contexts(self, given: Sequence[str], *, is_dry_run: bool) -> None:
        """Takes the `-c` of your deployments, and notes them. Without any it goes by those that are noted."""
        if given and tuple(given) != self.note.contexts:
            self.note = replace(self.note, contexts=tuple(given))
            if self.has_begun and not is_dry_run:
                self._notes.change(self.note)

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
            for setting in lacking(self._aws, name, table, self._warm_writes):
                self._pace.tell(setting.text)
                self._patiently(setting.text, partial(setting.give, self._aws))
        for table in self.note.tables.values():
            for line in left_to_you(self._aws, table):
                self._pace.tell(f"left to you: {line}")

    def jump(self) -> None:
        """Lets the restored log go on behind all offsets, once no function that ran can write to the harmed one.

        Raises INVALID_CONFIG if something may write, before the jump or behind it, or another machine has gone on.
        """
        if _JUMP in self.note.done:
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
        self._note_done(_JUMP)

    def deploy_command(self) -> list[str]:
        """The command that points the stack at the restored tables, with all writers still stopped.

        The template stops the writers, too, because CloudFormation may write a function's concurrency with its
        environment. A canary would leave most requests at the harmed tables, and the refusals of stopped functions
        would stop it.
        """
        if self.stack.is_of_your_app:
            return ["npx", "cdk", "deploy", self.stack.place.stack]
        canary = self.stack.settings.get("canary") or {}
        contexts = [
            *self.stack.contexts(self.note.contexts),
            "restored_tables=" + ",".join(f"{name}={value}" for name, value in self._restored_tables().items()),
            *(["canary=off"] if canary.get("percent", _ALL) < _ALL else []),
            "reserved_concurrency=" + ",".join(f"{handler}=0" for handler in self._handlers()),
        ]
        return ["npx", "cdk", "deploy", *(word for each in contexts for word in ("-c", each))]

    def deploy_text(self) -> str:
        """The deployment, for people."""
        command = shlex.join(self.deploy_command())
        if not self.stack.is_of_your_app:
            return command
        tables = ", ".join(f'{name}="{value}"' for name, value in self._restored_tables().items())
        stopped = ", ".join(f'"{handler}": 0' for handler in self._handlers())
        return (
            f"set restored_tables=RestoredTables({tables}), canary=AT_ONCE if you have one, and reserved_concurrency="
            f"{{{stopped}}} in the settings of {self.stack.name}, then: {command}"
        )

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
        self._note_done(_RELEASING)
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

    def _uses(self, tables: Mapping[str, str]) -> bool:
        return all(self.stack.outputs[TABLE_OUTPUTS[name]] == table for name, table in tables.items())

    def _read_stack_again(self) -> None:
        self.stack = read_stack(self._aws, "/".join(each for each in self.stack.place if each))
        self.check_quiet()
        _check_tables(self.note, self.stack)

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

    def _restored_tables(self) -> dict[str, str]:
        log = self.note.tables["log"].restored
        label = (describe(self._aws, log) or {}).get("LatestStreamLabel")
        if label is None:
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"table {log} has no stream any more: run the command again")
        return {**{name: each.restored for name, each in self.note.tables.items()}, "log_stream": label}

    def _handlers(self) -> list[str]:
        return [each.handler for each in self.note.switches if each.handler]

    @property
    def _quiet_at_ms(self) -> int:
        """From then on nothing that ran when it was stopped runs."""
        return (self.note.stopped_ms or self._pace.now_ms()) + 1_000 * self.longest_run_s + _MARGIN_MS

    @property
    def _warm_writes(self) -> int | None:
        writes: int | None = self.stack.settings.get("warm_log_writes")
        return writes

    def _is_there(self, table: TableRestore) -> bool:
        found = describe(self._aws, table.restored)
        if found is not None:
            check_source(found, table)
        return found is not None and found["TableStatus"] == "ACTIVE"

    def _order_missing(self) -> None:
        for table in self.note.tables.values():
            if describe(self._aws, table.restored) is None:
                self._patiently(table.restored, partial(order, self._aws, table, self.note.to_s))

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

    def _released(self) -> list[Switch]:
        return [each for each in reversed(self.note.switches) if not each.is_sweep]

    def _swept(self) -> list[Switch]:
        return [each for each in reversed(self.note.switches) if each.is_sweep]

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

    def _left_of_stop(self, _: bool) -> list[str]:
        if self.is_deployed and _JUMP in self.note.done:
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
            return ["stream, expiry, point-in-time recovery, tags and deletion protection"]
        return [
            setting.text
            for name, table in self.note.tables.items()
            for setting in lacking(self._aws, name, table, self._warm_writes)
        ]

    def _left_of_jump(self, is_reached: bool) -> list[str]:
        if not is_reached:
            return ["each partition goes on 1,000 offsets behind all that were given"]
        is_noted = _JUMP in self.note.done
        if _RELEASING in self.note.done or (is_noted and describe(self._aws, self.note.tables["log"].harmed) is None):
            return []  # outside of `prod` the deployment deletes the harmed table
        return self._jumps.left(self.stack, self.note) or ([] if is_noted else ["note that all have jumped"])

    def _left_of_deploy(self, is_reached: bool) -> list[str]:
        if not is_reached:
            return ["npx cdk deploy, with the restored tables, all writers at 0 and no canary"]
        return [] if self.is_deployed else [self.deploy_text()]

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


_LEFT: Mapping[str, Callable[[StageRestore, bool], list[str]]] = {
    step: getattr(StageRestore, f"_left_of_{step}") for step in STEPS
}


def open_restore(aws: Aws, stack: DeployedStack, to_s: int | None, pace: Pace, jumps: Jumps) -> StageRestore:
    """The restore that is under way, or a new one to `to_s`.

    Raises INVALID_CONFIG if one to another second is under way, and for None if none is.
    """
    notes = NoteStore(aws, stack.outputs["ArchiveBucket"])
    found = notes.read()
    if found is None and to_s is None:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"no restore of stack {stack.place.stack} is under way")
    if found is not None and to_s not in (None, found.to_s):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"a restore to {second_text(found.to_s)} is under way: go on with `penstock restore --to "
            f"{second_text(found.to_s)}`, or give it up with `penstock restore --undo`",
        )
    note = _new_note(aws, stack, to_s or 0) if found is None else _of_stack(found, stack)
    return StageRestore(aws, stack, note, notes=notes, pace=pace, jumps=jumps)


def _check_tables(note: RestoreNote, stack: DeployedStack) -> None:
    """Raises INVALID_CONFIG if the tables of the note are not those of a restore of this stack."""
    outputs = {name: stack.outputs[output] for name, output in TABLE_OUTPUTS.items()}
    wanted = _restored_names(stack, note.to_s)
    tables = {name: each.restored for name, each in note.tables.items()}
    if tables != wanted or any(outputs[name] not in (each.harmed, each.restored) for name, each in note.tables.items()):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the note of the restore names tables that are not of stack {stack.place.stack}: "
            f"{', '.join(f'{each.harmed} as {each.restored}' for each in note.tables.values()):.300}. Find out who "
            f"wrote s3://{stack.outputs['ArchiveBucket']}/{NOTE_KEY}, and delete it",
        )


def _of_stack(note: RestoreNote, stack: DeployedStack) -> RestoreNote:
    """The note without switches that the stack does not have: a deployment has removed them, or somebody forged them.

    Raises as `_check_tables`.
    """
    _check_tables(note, stack)
    handlers = {each.name: each.handler for each in stack.functions()}
    known = {
        SwitchKind.FUNCTION: handlers.keys(),
        SwitchKind.RULE: {*stack.resources_of("AWS::Events::Rule")},
        SwitchKind.MAPPING: {*stack.resources_of("AWS::Lambda::EventSourceMapping")},
        SwitchKind.SCHEDULE: {*stack.schedules()},
    }
    switches = [
        replace(each, handler=handlers.get(each.name, "")) for each in note.switches if each.name in known[each.kind]
    ]
    return replace(note, switches=tuple(switches))


def _restored_names(stack: DeployedStack, to_s: int) -> dict[str, str]:
    when = second_text(to_s).replace("-", "").replace(":", "").lower()
    return {name: f"{stack.name}-{name}-restored-{when}" for name in TABLE_OUTPUTS}


def _new_note(aws: Aws, stack: DeployedStack, to_s: int) -> RestoreNote:
    tables = {
        name: TableRestore(harmed=stack.outputs[TABLE_OUTPUTS[name]], restored=restored)
        for name, restored in _restored_names(stack, to_s).items()
    }
    if all(each.harmed == each.restored for each in tables.values()):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"stack {stack.place.stack} uses tables of {second_text(to_s)} already: it is done",
        )
    return RestoreNote(to_s=to_s, tables=tables, switches=find_switches(aws, stack))
