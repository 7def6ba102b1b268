"""Defects put into the moves of tails to the archive (see mutant.py)."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.compaction import tail_move as core_module
from penstock_core.compaction.tail_move import TailMove
from penstock_service.compaction import compact as compact_module
from penstock_service.compaction import move_tail as move_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _long_tail_is_not_rolled() -> Patch:
    return patch.object(compact_module, "roll_old_tail", lambda run: run)


def _moved_segments_are_not_retired() -> Patch:
    return patch.object(TailMove, "retired", frozenset())


def _new_segment_is_retired() -> Patch:
    def retired(move: TailMove) -> Any:
        return frozenset(ref.segment_id for ref in move.new.values())

    return patch.object(TailMove, "retired", property(retired))


def _moved_ref_loses_its_producer() -> Patch:
    original = core_module.tail_move

    def without(*arguments: Any) -> TailMove:
        move = original(*arguments)
        return replace(move, new={place: replace(ref, sequence=None) for place, ref in move.new.items()})

    return patch.object(move_module, "tail_move", without)


def _moved_refs_begin_at_0() -> Patch:
    original = core_module.tail_move

    def at_0(*arguments: Any) -> TailMove:
        move = original(*arguments)
        return replace(move, new={place: replace(ref, position=0) for place, ref in move.new.items()})

    return patch.object(move_module, "tail_move", at_0)


TIERING_MUTANTS = [
    Mutant("long tail not rolled before it moves", "tiering", _long_tail_is_not_rolled),
    Mutant("moved segments not retired", "tiering,sweep", _moved_segments_are_not_retired),
    Mutant("new segment retired in place of the old ones", "tiering,sweep", _new_segment_is_retired),
    Mutant("moved ref loses its producer", "tiering", _moved_ref_loses_its_producer),
    Mutant("moved refs begin at 0", "tiering", _moved_refs_begin_at_0),
]
