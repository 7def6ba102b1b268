"""Defects of led groups that the seeds must find."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest

from penstock_kafka.errors import KafkaError
from penstock_kafka.groups.led import board, led_group
from penstock_kafka.groups.led.board import LedBoard, Vigil
from penstock_kafka.groups.led.led_group import LedGroup, LedMember, Phase
from tests.kafka.led.world import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A defect, by name."""

    name: str
    put_in: Callable[[pytest.MonkeyPatch], None]


def _any_writer_wins(patch: pytest.MonkeyPatch) -> None:
    write = Gateway._write

    async def blind(self: Gateway, version: int | None, data: bytes) -> int:
        return await write(self, self.store.version, data)

    patch.setattr(Gateway, "_write", blind)


def _each_member_is_a_leader(patch: pytest.MonkeyPatch) -> None:
    def synced(group: LedGroup, name: str, generation: int, assignments: Mapping[str, bytes]) -> LedGroup:
        return led_group.synced(replace(group, leader=name), name, generation, assignments)

    patch.setattr(board, "synced", synced)


def _generation_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    def checked(group: LedGroup, name: str, generation: int) -> LedMember:
        return is_checked(group, name, group.generation)

    is_checked = led_group.checked
    patch.setattr(led_group, "checked", checked)
    patch.setattr(board, "checked", checked)


def _late_assignments_count(patch: pytest.MonkeyPatch) -> None:
    def synced(group: LedGroup, name: str, generation: int, assignments: Mapping[str, bytes]) -> LedGroup:
        is_late = group.phase is Phase.STABLE and group.leader == name and group.generation == generation
        return led_group.synced(
            replace(group, phase=Phase.SYNCING) if is_late else group, name, generation, assignments
        )

    patch.setattr(board, "synced", synced)


def _sessions_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Vigil, "ended", lambda *_: set())


def _phases_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Vigil, "is_overdue", lambda *_: False)


def _sessions_end_by_requests_here_alone(patch: pytest.MonkeyPatch) -> None:
    def ended(self: Vigil, group: LedGroup, asked_ms: float) -> set[str]:
        return {
            name
            for name, member in group.members.items()
            if name in self._beats and asked_ms - self._beats[name][1] >= member.session_ms
        }

    def look(self: Vigil, group: LedGroup, asked_ms: float, now_ms: float) -> None:
        for name, member in group.members.items():
            self._beats.setdefault(name, (member.beats, now_ms))

    patch.setattr(Vigil, "ended", ended)
    patch.setattr(Vigil, "look", look)


def _beats_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(board, "beaten", lambda group, *_: group)


def _waiting_members_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedBoard, "_waits", lambda *_: nullcontext())


def _heartbeats_tell_of_no_rebalance(patch: pytest.MonkeyPatch) -> None:
    beat = LedBoard.beat

    async def deaf(self: LedBoard, name: str, generation: int) -> KafkaError:
        await beat(self, name, generation)
        return KafkaError.none

    patch.setattr(LedBoard, "beat", deaf)


def _generation_begins_without_the_slow(patch: pytest.MonkeyPatch) -> None:
    advanced = led_group._advanced

    def hasty(group: LedGroup) -> LedGroup:
        joined = {name: each for name, each in group.members.items() if each.has_joined}
        begun = advanced(replace(group, members=joined or group.members))
        return replace(begun, members={**group.members, **begun.members})

    patch.setattr(led_group, "_advanced", hasty)


def _conflict_ends_a_look(patch: pytest.MonkeyPatch) -> None:
    """Two gateways whose looks keep time with each other overtake one of them for ever."""
    patch.setattr(board, "KAFKA_LED_TRIES_MAX", 1)


MUTANTS = [
    Mutant(name="any writer wins", put_in=_any_writer_wins),
    Mutant(name="each member is a leader", put_in=_each_member_is_a_leader),
    Mutant(name="the generation is not checked", put_in=_generation_is_not_checked),
    Mutant(name="late assignments count", put_in=_late_assignments_count),
    Mutant(name="sessions never end", put_in=_sessions_never_end),
    Mutant(name="phases never end", put_in=_phases_never_end),
    Mutant(name="sessions end by requests here alone", put_in=_sessions_end_by_requests_here_alone),
    Mutant(name="beats are not stored", put_in=_beats_are_not_stored),
    Mutant(name="waiting members are forgotten", put_in=_waiting_members_are_forgotten),
    Mutant(name="heartbeats tell of no rebalance", put_in=_heartbeats_tell_of_no_rebalance),
    Mutant(name="a generation begins without the slow", put_in=_generation_begins_without_the_slow),
    Mutant(name="a conflict ends a look", put_in=_conflict_ends_a_look),
]
