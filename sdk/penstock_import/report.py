"""The output of `penstock import`: a live line and sentences on stderr for people, or events as lines of JSON."""

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError
from penstock_core.limits import IMPORT_REPORT_MS
from penstock_core.text import escaped
from penstock_import.copying.group_mover import GroupMove


class Report:
    """Tells of a copy or a drain. Use it in `with`: the live line ends with it."""

    def __init__(self, name: str, *, as_json: bool) -> None:
        self._as_json = as_json
        console = Console(stderr=True)
        self._progress: Progress | None = None
        if not as_json and console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=console, transient=True)
            self._task = self._progress.add_task(escaped(name), total=None)
        self._name = name
        self._began_ms = monotonic_ms()
        self._told_ms = self._began_ms

    @property
    def seconds(self) -> float:
        """The time since it was made."""
        return (monotonic_ms() - self._began_ms) / 1_000

    def __enter__(self) -> Self:
        """Show the live line."""
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the live line."""
        if self._progress is not None:
            self._progress.stop()

    def resumed(self, positions: Mapping[int, int], *, is_first: bool) -> None:
        """As CopyReport.resumed."""
        text = "copies from the beginning that was chosen" if is_first else "goes on where the notes end"
        self._say("started", f"{self._name}: {text}", is_first=is_first, positions=dict(positions))

    def copied(self, records: int, skipped: int, lag: int) -> None:
        """As CopyReport.copied."""
        self._live("progress", f"{records:,} records, {lag:,} behind", records=records, skipped=skipped, lag=lag)

    def drained_so_far(self, records: int, repeats: int, undeleted: int) -> None:
        """As DrainReport.drained_so_far."""
        text = f"{records:,} records, {repeats:,} messages came again"
        self._live("progress", text, records=records, repeats=repeats, undeleted=undeleted)

    def drained(self) -> None:
        """As ImportReport.drained."""
        self._say("drained", f"{self._name}: all is copied; the import follows new records until you stop it (Ctrl-C)")

    def moved(self, moves: Sequence[GroupMove]) -> None:
        """As ImportReport.moved."""
        for each in moves:
            self._say("group", _group_text(each), **group_json(each))

    def waits(self, error: PenstockError, seconds: float) -> None:
        """As CopyReport.waits."""
        self._say("retry", f"tries again in {seconds:.1f} s: {error}", error=error.to_json(), seconds=round(seconds, 1))

    def _live(self, event: str, text: str, **facts: Any) -> None:
        if self._progress is not None:
            rate = facts["records"] / max(self.seconds, 0.001)
            self._progress.update(self._task, description=escaped(f"{self._name}: {text}, {rate:,.0f}/s"))
        elif self._as_json and monotonic_ms() >= self._told_ms + IMPORT_REPORT_MS:
            self._told_ms = monotonic_ms()
            self._say(event, text, **facts)

    def _say(self, event: str, text: str, **facts: Any) -> None:
        if self._as_json:
            click.echo(json.dumps({"event": event, **facts}))
        elif self._progress is not None:
            self._progress.console.print(escaped(text), markup=False, highlight=False)
        else:
            click.echo(escaped(text), err=True)


def group_json(move: GroupMove) -> dict[str, Any]:
    """A move for programs."""
    return {
        "group": move.group,
        "offsets": {str(each): at for each, at in sorted(move.offsets.items())},
        "further": list(move.further),
        "waiting": list(move.waiting),
        "refusal": move.refusal or None,
    }


def _group_text(move: GroupMove) -> str:
    if move.refusal:
        return f"group {move.group} was not moved: {move.refusal}"
    parts = [f"group {move.group} goes on at {_offsets_text(move.offsets)}"]
    if move.further:
        parts.append(f"it had gone further in {_numbers_text(move.further)} (--groups-may-go-back sets it back)")
    if move.waiting:
        parts.append(f"its offsets in {_numbers_text(move.waiting)} are not copied yet")
    return "; ".join(parts)


def _offsets_text(offsets: Mapping[int, int]) -> str:
    shown = [f"{each}={at}" for each, at in sorted(offsets.items())]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "") or "no offset"


def _numbers_text(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:10]))
    return f"partition {shown}" + (f" and {len(partitions) - 10} more" if len(partitions) > 10 else "")
