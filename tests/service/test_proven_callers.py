"""The memory of proofs: one call of the authority for each proof, and no proof that outlives its time on any clock."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from penstock_core.direct.caller_proof import CallerProof, refused_proof
from penstock_core.direct.function_arn import FunctionsPlace, parse_functions_place
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PROOF_AGE_MS_MAX, PROOF_AHEAD_MS_MAX, PROOFS_REMEMBERED_MAX
from penstock_service.instance.proven_callers import ProvenCallers
from tests.support.refusals import refused
from tests.support.service import FrozenClock, SteppedClock

PLACE = parse_functions_place("arn:aws:lambda:us-east-1:111122223333:function:penstock")
ADA = "arn:aws:iam::111122223333:user/ada"
AWAY = PenstockError(ErrorCode.IDENTITY_UNAVAILABLE, "no answer")


class Authority:
    """Tells one name for every proof, or fails."""

    def __init__(self) -> None:
        self.arn = ADA
        self.failure: PenstockError | None = None
        self.asked: list[tuple[str, str]] = []

    def arn_of(self, proof: CallerProof, stage: str) -> str:
        self.asked.append((proof.signature, stage))
        if self.failure is not None:
            raise self.failure
        return self.arn


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(SteppedClock())


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def callers(authority: Authority, clock: FrozenClock) -> ProvenCallers:
    return ProvenCallers(authority, clock, "penstock")


def proof_of(clock: FrozenClock, number: int = 0, age_ms: int = 0) -> CallerProof:
    time = datetime.fromtimestamp((clock.now_ms() - age_ms) // 1_000, UTC)
    return CallerProof(key="A" * 20, time=f"{time:%Y%m%dT%H%M%SZ}", token="", signature=f"{number:064x}")


def test_caller_is_asked_for_once_when_its_proof_comes_again(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    proof = proof_of(clock)
    assert [callers.arn_of(proof, PLACE) for _ in range(3)] == [ADA] * 3
    assert authority.asked == [(proof.signature, PLACE.arn)]


@pytest.mark.parametrize("part", [{"signature": "f" * 64}, {"key": "B" * 20}, {"token": "t"}])
def test_other_proof_is_asked_for_when_one_is_known(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock, part: dict[str, str]
) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    authority.failure = refused_proof("no")
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(replace(proof, **part), PLACE))


def test_known_proof_is_refused_when_it_is_too_old(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    clock.sleep_ms(PROOF_AGE_MS_MAX + 1_000)
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof, PLACE))
    assert len(authority.asked) == 1


def test_known_proof_is_refused_when_it_grew_old_in_a_freeze(callers: ProvenCallers, clock: FrozenClock) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    clock.freeze(PROOF_AGE_MS_MAX + 1_000)
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof, PLACE))


def test_known_proof_is_asked_for_again_when_the_wall_clock_was_set_back(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    later_ms = PROOF_AGE_MS_MAX + PROOF_AHEAD_MS_MAX + 1_000
    clock.sleep_ms(later_ms)
    clock.set_back_ms = later_ms
    authority.failure = refused_proof("expired")
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof, PLACE))


def test_old_proof_costs_no_call(callers: ProvenCallers, authority: Authority, clock: FrozenClock) -> None:
    refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof_of(clock, age_ms=PROOF_AGE_MS_MAX + 1_000), PLACE))
    assert authority.asked == []


def test_refusal_is_not_remembered(callers: ProvenCallers, authority: Authority, clock: FrozenClock) -> None:
    proof = proof_of(clock)
    authority.failure = AWAY
    error = refused(ErrorCode.IDENTITY_UNAVAILABLE, lambda: callers.arn_of(proof, PLACE))
    assert not error.maybe_applied
    authority.failure = None
    assert callers.arn_of(proof, PLACE) == ADA


def test_known_caller_goes_on_when_the_authority_is_away(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    proof = proof_of(clock)
    callers.arn_of(proof, PLACE)
    authority.failure = AWAY
    assert callers.arn_of(proof, PLACE) == ADA


@pytest.mark.parametrize(
    "arn", ["arn:aws:iam::999999999999:user/ada", "arn:aws:sts::999999999999:assumed-role/r/s", "ada", ""]
)
def test_caller_of_another_account_is_refused(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock, arn: str
) -> None:
    authority.arn = arn
    error = refused(ErrorCode.NOT_AUTHORIZED, lambda: callers.arn_of(proof_of(clock), PLACE))
    assert "assume a role of that account" in error.message


def test_memory_forgets_the_oldest_proof_when_it_is_full(
    callers: ProvenCallers, authority: Authority, clock: FrozenClock
) -> None:
    for number in range(PROOFS_REMEMBERED_MAX + 1):
        callers.arn_of(proof_of(clock, number), PLACE)
    assert len(authority.asked) == PROOFS_REMEMBERED_MAX + 1
    callers.arn_of(proof_of(clock, 1), PLACE)
    assert len(authority.asked) == PROOFS_REMEMBERED_MAX + 1
    callers.arn_of(proof_of(clock, 0), PLACE)
    assert len(authority.asked) == PROOFS_REMEMBERED_MAX + 2


def test_place_of_another_name_is_what_the_authority_hears(authority: Authority, clock: FrozenClock) -> None:
    other = FunctionsPlace(partition="aws", region="eu-west-1", account="111122223333", stage="penstock-dev")
    ProvenCallers(authority, clock, "penstock-dev").arn_of(proof_of(clock), other)
    assert authority.asked[0][1] == other.arn
