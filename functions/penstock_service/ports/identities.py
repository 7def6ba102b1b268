"""The authority that tells whose a signature is: AWS STS, or a stand-in for it."""

from typing import Protocol

from penstock_core.direct.caller_proof import CallerProof


class Identities(Protocol):
    """Checks proofs of callers."""

    def arn_of(self, proof: CallerProof, stage: str) -> str:
        """The ARN of the caller who has signed the proof for that stage. One call.

        Raises NOT_AUTHORIZED if no one has, and IDENTITY_UNAVAILABLE if the authority does not tell.
        """
        ...
