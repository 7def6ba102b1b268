"""How a restore begins, or goes on by the note of the one that is under way."""

from dataclasses import replace

from penstock.deployed.aws import Aws
from penstock.deployed.stack import DeployedStack
from penstock.restore.note import (
    TABLE_OUTPUTS,
    NoteStore,
    RestoreNote,
    TableRestore,
    check_tables,
    restored_names,
    second_text,
)
from penstock.restore.progress import Jumps
from penstock.restore.stage_restore import Pace, StageRestore
from penstock.restore.switches import SwitchKind, find_switches
from penstock_core.errors import ErrorCode, PenstockError


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


def _of_stack(note: RestoreNote, stack: DeployedStack) -> RestoreNote:
    """The note without switches that the stack does not have: a deployment has removed them, or somebody forged them.

    Raises as `check_tables`.
    """
    check_tables(note, stack)
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


def _new_note(aws: Aws, stack: DeployedStack, to_s: int) -> RestoreNote:
    tables = {
        name: TableRestore(harmed=stack.outputs[TABLE_OUTPUTS[name]], restored=restored)
        for name, restored in restored_names(stack, to_s).items()
    }
    if all(each.harmed == each.restored for each in tables.values()):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"stack {stack.place.stack} uses tables of {second_text(to_s)} already: it is done",
        )
    return RestoreNote(to_s=to_s, tables=tables, switches=find_switches(aws, stack))
