"""Callers that have proved who they are: an instance asks about each proof once, and remembers it by its hash."""

from collections import OrderedDict
from dataclasses import dataclass

from penstock_core.direct.caller_proof import CallerProof, account_of, check_age
from penstock_core.direct.function_arn import FunctionsPlace
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PROOF_AGE_MS_MAX, PROOF_AHEAD_MS_MAX, PROOFS_REMEMBERED_MAX
from penstock_service.ports.access import Identities
from penstock_service.ports.runtime import Clock

_REMEMBERED_MS_MAX = PROOF_AGE_MS_MAX + PROOF_AHEAD_MS_MAX


@dataclass(frozen=True, slots=True)
class _Known:
    arn: str
    asked_at_ms: float  # on the monotonic clock


class ProvenCallers:
    """The memory of one instance for the functions of `place`.

    `functions` is the ARN by which clients name the stage. Only the function that tells it to clients has it.

    A proof that was refused is not remembered. An entry holds until its proof is too old by the wall clock, and never
    longer than a proof can be good by the monotonic one. So neither a freeze nor a step of a clock makes a proof last.
    """

    def __init__(self, identities: Identities, clock: Clock, stage: str, functions: str = "") -> None:
        self.stage = stage
        self.functions = functions
        self._identities = identities
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def arn_of(self, proof: CallerProof, place: FunctionsPlace) -> str:
        """The ARN of the caller. One call of `Identities` for a proof that this instance has not seen.

        `place` is that of the function itself. Raises NOT_AUTHORIZED for a proof that is too old, that its caller has
        not signed for this place, or whose caller is of another account; and IDENTITY_UNAVAILABLE.
        """
        check_age(proof, self._clock.now_ms())
        key = proof.digest()
        known = self._known.get(key)
        if known is None or self._clock.monotonic_ms() - known.asked_at_ms > _REMEMBERED_MS_MAX:
            asked_at_ms = self._clock.monotonic_ms()
            known = _Known(_of_account(self._identities.arn_of(proof, place.arn), place.account), asked_at_ms)
            self._remember(key, known)
        return known.arn

    def _remember(self, key: bytes, known: _Known) -> None:
        self._known.pop(key, None)
        self._known[key] = known
        while len(self._known) > PROOFS_REMEMBERED_MAX:
            self._known.popitem(last=False)


def _of_account(arn: str, account: str) -> str:
    """The ARN. A caller of another account could make any number of names, each with a quota of its own."""
    if account_of(arn) != account:
        raise PenstockError(
            ErrorCode.NOT_AUTHORIZED,
            f"the caller {arn:.200} is of another account than the stage's, {account}: assume a role of that account",
        )
    return arn
