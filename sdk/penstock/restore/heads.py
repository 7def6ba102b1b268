"""The heads of the restored log table, by the service of this process: their jumps, and a look at their topics."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.deployed.stack import DeployedStack
from penstock.restore.note import RestoreNote
from penstock.transports.embedded_storage import storage_of_outputs
from penstock.transports.restoring import (
    OpenRestore,
    PartitionJump,
    RestoredTables,
    TopicLook,
    jump_topics,
    look_at_topics,
    open_restore,
)
from penstock_core.errors import PenstockError


class RestoredHeads:
    """The heads of a restore of a whole stage: their jumps, and the look at their topics (`stage_restore.Jumps`)."""

    def __init__(self, region: str | None) -> None:
        self._region = region

    def left(self, stack: DeployedStack, note: RestoreNote) -> list[str]:
        """The topics whose partitions have not jumped yet. Costs the reads of `jump_heads`."""
        found = [*jump_topics(*self._open(stack, note, is_dry_run=True), lambda _: None)]
        undone = [each for each in found if not (isinstance(each.outcome, Sequence) and _is_done(each.outcome))]
        return [f"topic {each.topic}: its partitions go on behind all offsets that were given" for each in undone]

    def make(self, stack: DeployedStack, note: RestoreNote) -> Iterator[str]:
        """Yields a line for each topic that has jumped. Raises the first error once all topics were tried."""
        errors: list[PenstockError] = []
        for each in jump_topics(*self._open(stack, note, is_dry_run=False), lambda _: None):
            if isinstance(each.outcome, PenstockError):
                errors.append(each.outcome)
                continue
            ends = max((jump.end for jump in each.outcome), default=0)
            yield f"topic {each.topic}: {len(each.outcome)} partitions go on, at offset {ends:,} at most"
        if errors:
            raise errors[0]

    def look(self, stack: DeployedStack, note: RestoreNote) -> Iterator[TopicLook]:
        """As `look_at_topics`."""
        yield from look_at_topics(self._open(stack, note, is_dry_run=True)[0])

    def zones(self, stack: DeployedStack, note: RestoreNote) -> list[str]:
        """The names of the stage's zones."""
        return [*self._open(stack, note, is_dry_run=True)[0].stores.zone_names]

    def _open(self, stack: DeployedStack, note: RestoreNote, *, is_dry_run: bool) -> OpenRestore:
        tables = note.tables
        stage = replace(storage_of_outputs(stack.outputs, self._region), groups_table=tables["groups"].restored)
        named = RestoredTables(
            topics_table=tables["topics"].restored,
            log_table=tables["log"].restored,
            harmed_log_table=tables["log"].harmed,
        )
        return open_restore(named, self._region, is_dry_run=is_dry_run, stage=stage)


def _is_done(jumps: Sequence[PartitionJump]) -> bool:
    return all(each.was_done for each in jumps)
