"""The note of a restore that is under way: one object in the archive bucket, which outlives process and machine.

A run reads off AWS what each step has done. The note holds what AWS forgets: the second, the tables' names, and what
each function, rule, mapping and schedule was before it was stopped. Each put is conditional: two operators cannot begin
two restores of one stage, and a machine that slept finds that another one has gone on.

A writer of `restore/` in the bucket could forge it, and no role of the stage may write there. A run believes it only
about what the stack has: it refuses other tables, and leaves out other switches. A run never takes the `-c` of a
deployment from a note.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.deployed.aws import Aws, aws_code
from penstock.deployed.stack import DeployedStack
from penstock.restore.switches import Switch, SwitchKind
from penstock_core.errors import ErrorCode, PenstockError

NOTE_KEY = "restore/under-way.json"  # the sweep lists folders of segments only
TABLE_OUTPUTS: Mapping[str, str] = {"topics": "TopicsTable", "log": "LogTable", "groups": "GroupsTable"}
_VERSION = 1
_MOVED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRestore:
    """A table of the stage, and the name under which its restored copy comes back."""

    harmed: str
    restored: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreNote:
    """A restore to the second `to_s`. `stopped_ms` is None until everything that writes has been stopped.

    `done` names the steps that are not done twice: what came after them, such as a new topic, is none of theirs.
    """

    to_s: int
    tables: Mapping[str, TableRestore]
    switches: tuple[Switch, ...]
    stopped_ms: int | None = None
    done: tuple[str, ...] = ()


class NoteStore:
    """The note in the archive bucket of a stage, as this process has read or put it last.

    A call behind that raises INVALID_CONFIG if the note has changed since: another machine has gone on.
    """

    def __init__(self, aws: Aws, bucket: str) -> None:
        self._etag: str | None = None
        self._aws = aws
        self._place = {"Bucket": bucket, "Key": NOTE_KEY}
        self._name = f"{bucket}/{NOTE_KEY}"

    def read(self) -> RestoreNote | None:
        """The note, None if no restore is under way. One GetObject."""
        found = self._get()
        self._etag = None if found is None else found["ETag"]
        return None if found is None else _parse(found["Body"].read(), self._name)

    @property
    def has_begun(self) -> bool:
        """This process has begun a restore, or has read the note of one."""
        return self._etag is not None

    def check(self) -> None:
        """Raises if the note has changed. One GetObject."""
        found = self._get()
        if found is None or found["ETag"] != self._etag:
            raise _gone_on()

    def begin(self, note: RestoreNote) -> None:
        """Raises INVALID_CONFIG if another restore has begun meanwhile. One conditional PutObject."""
        try:
            self._put(note, IfNoneMatch="*")
        except PenstockError as error:
            if aws_code(error) not in _MOVED:
                raise
            message = "another restore of this stage has begun meanwhile: run the same command again to see it"
            raise PenstockError(ErrorCode.INVALID_CONFIG, message) from error

    def change(self, note: RestoreNote) -> None:
        """One conditional PutObject."""
        try:
            self._put(note, IfMatch=self._etag)
        except PenstockError as error:
            if aws_code(error) not in _MOVED:
                raise
            found = self._get()
            if found is None or found["Body"].read() != _text(note):  # else it is ours, and its answer was lost
                raise _gone_on() from error
            self._etag = found["ETag"]

    def end(self) -> None:
        """The restore is over. One conditional DeleteObject."""
        try:
            self._aws.call("s3", "delete_object", self._name, **self._place, IfMatch=self._etag)
        except PenstockError as error:
            if aws_code(error) not in _MOVED:
                raise
            if self._get() is not None:  # else it has gone: by the try whose answer was lost, or by another machine
                raise _gone_on() from error

    def _get(self) -> dict[str, Any] | None:
        return self._aws.find("NoSuchKey", "s3", "get_object", self._name, **self._place)

    def _put(self, note: RestoreNote, **condition: str | None) -> None:
        answer = self._aws.call("s3", "put_object", self._name, **self._place, Body=_text(note), **condition)
        self._etag = answer["ETag"]


def check_tables(note: RestoreNote, stack: DeployedStack) -> None:
    """Raises INVALID_CONFIG if the tables of the note are not those of a restore of this stack."""
    outputs = {name: stack.outputs[output] for name, output in TABLE_OUTPUTS.items()}
    wanted = restored_names(stack, note.to_s)
    tables = {name: each.restored for name, each in note.tables.items()}
    if tables != wanted or any(outputs[name] not in (each.harmed, each.restored) for name, each in note.tables.items()):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the note of the restore names tables that are not of stack {stack.place.stack}: "
            f"{', '.join(f'{each.harmed} as {each.restored}' for each in note.tables.values()):.300}. Find out who "
            f"wrote s3://{stack.outputs['ArchiveBucket']}/{NOTE_KEY}, and delete it",
        )


def restored_names(stack: DeployedStack, to_s: int) -> dict[str, str]:
    """The names of the tables of a restore to that second."""
    when = second_text(to_s).replace("-", "").replace(":", "").lower()
    return {name: f"{stack.name}-{name}-restored-{when}" for name in TABLE_OUTPUTS}


def second_text(to_s: int) -> str:
    """The second as `--to` takes it: 2026-11-22T20:15:00Z."""
    return datetime.fromtimestamp(to_s, UTC).isoformat().replace("+00:00", "Z")


def _gone_on() -> PenstockError:
    message = "another machine has gone on with this restore: run the same command again to see where it is"
    return PenstockError(ErrorCode.INVALID_CONFIG, message)


def _text(note: RestoreNote) -> bytes:
    document = {"version": _VERSION, "to": second_text(note.to_s), **asdict(note)}
    return json.dumps(document, indent=1).encode()


def _parse(text: bytes, name: str) -> RestoreNote:
    try:
        document: dict[str, Any] = json.loads(text)
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']}")
        return RestoreNote(
            to_s=document["to_s"],
            tables={table: TableRestore(**each) for table, each in document["tables"].items()},
            switches=tuple(Switch(**{**each, "kind": SwitchKind(each["kind"])}) for each in document["switches"]),
            stopped_ms=document["stopped_ms"],
            done=tuple(document["done"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the note of the restore in s3://{name} cannot be read ({error!s:.200}): use the release that wrote it",
        ) from error
