"""Asks the rows one after the other within a budget of money and time, and puts back what they changed.

A row that waits is parked, and other rows of its phase run meanwhile. All of it is one thread, so each call belongs to
the row that runs. A row begins only if what it may cost and take still fits.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from penstock.errors import AccessDeniedError
from penstock.prove.proof import Emulator, Proof, ProofRow, ProvenRow, Ruling, Steps, left_out, unknown
from penstock.prove.proven_stage import ProvenStage, UnexpectedAnswerError
from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError

CLEANING_SECONDS = 15  # kept for the end of each run
STAGE_USD_MAX = 0.01  # of what the stage does by itself meanwhile: repairs, wake-ups, tasks
_DENIED = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "Forbidden")
_INTERRUPTED = "the run was interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofBudget:
    """The most that a run may cost and take. `usd_before` was spent before the first row."""

    usd_max: float
    seconds_max: float
    usd_before: float = 0.0


@dataclass(slots=True, kw_only=True)
class _AskedRow:
    """A row that has begun. `steps` is None once it has answered."""

    row: ProofRow
    began_ms: int
    due_ms: int = 0
    steps: Steps | None = None
    usd: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)


class ProveRun:
    """One run. `answered` has the rows in the order of their answers, `failures` what could not be put back."""

    def __init__(
        self,
        stage: ProvenStage,
        phases: Sequence[Sequence[ProofRow]],
        budget: ProofBudget,
        *,
        tell: Callable[[str], None],
        began_ms: int,
    ) -> None:
        self._stage, self._phases, self._budget, self._tell = stage, phases, budget, tell
        self._began_ms = began_ms
        self._parked: list[_AskedRow] = []
        self._told = ""
        self.answered: list[ProvenRow] = []
        self.failures: list[str] = []

    @property
    def usd_max(self) -> float:
        """The most that the run can have cost until now."""
        return self._budget.usd_before + self._stage.transport.cost(self._stage.aws_calls.count).usd_max

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return (monotonic_ms() - self._began_ms) / 1_000

    def run(self) -> None:
        """Ask all rows. Raises KeyboardInterrupt after it has put back what they changed, with answers for all."""
        interrupted = None
        try:
            for rows in self._phases:
                for row in rows:
                    self._resume_due()
                    self._begin(row)
                while self._parked:
                    self._wait()
                    self._resume_due()
        except KeyboardInterrupt as interrupt:
            interrupted = interrupt
        finally:
            self._end()
        if interrupted is not None:
            raise interrupted

    def _begin(self, row: ProofRow) -> None:
        asked = _AskedRow(row=row, began_ms=monotonic_ms())
        why_not = self._why_not(row)
        if why_not is not None:
            self._answer(asked, why_not)
            return
        self._tell(f"{row.name} …")
        self._step(asked)

    def _why_not(self, row: ProofRow) -> Proof | None:
        stage, budget = self._stage, self._budget
        if row.action and stage.account is None:
            return Proof(ruling=Ruling.ONLY_ON_AWS, fact="this service runs on your machine, without AWS")
        if stage.is_local and row.emulator is Emulator.LACKS:
            return Proof(ruling=Ruling.ONLY_ON_AWS, fact="an emulator cannot answer this")
        if row.disturbs and not (stage.may_disturb or stage.is_own):
            return left_out("it changes the stage or loads it for a moment: allow it by --may-disturb")
        owed = sum(max(0.0, each.row.usd_max - each.usd) for each in self._parked)
        usd_left = budget.usd_max - self.usd_max - owed
        if row.usd_max > usd_left:
            return left_out(f"it may cost ${row.usd_max:g}, and ${max(0.0, usd_left):.4f} are left")
        left = budget.seconds_max - CLEANING_SECONDS - self.seconds
        if row.seconds_max > left:
            return left_out(f"it may take {row.seconds_max} s, and {max(0, left):.0f} s are left")
        return None

    def _step(self, asked: _AskedRow) -> None:
        """Run the row until it answers or waits."""
        stage = self._stage
        exchanges, aws_calls, usd = len(stage.transport.exchanges), stage.aws_calls.count, self.usd_max
        proof: Proof | None = None
        try:
            if asked.steps is None:
                found = asked.row.ask(stage)
                if isinstance(found, Proof):
                    proof = found
                else:
                    asked.steps = found
            if asked.steps is not None:
                asked.due_ms = monotonic_ms() + next(asked.steps)
        except StopIteration as stop:
            proof = stop.value
        except Exception as error:  # the edge of a row: no defect in one keeps the others from being asked
            proof = self._proof_of(error, asked.row)
        asked.usd += self.usd_max - usd
        asked.calls.update(f"{each.method} {each.path}" for each in stage.transport.exchanges[exchanges:])
        asked.calls.update(stage.aws_calls.names[aws_calls:])
        if proof is not None:
            self._answer(asked, proof)
        elif asked not in self._parked:
            self._parked.append(asked)

    def _proof_of(self, error: Exception, row: ProofRow) -> Proof:
        from botocore.exceptions import BotoCoreError, ClientError  # 0.1 s, which other commands need not wait for

        if isinstance(error, ClientError):
            code = error.response["Error"]["Code"]
            if self._stage.is_local:
                return Proof(ruling=Ruling.ONLY_ON_AWS, fact=f"the emulator answers {code} to {error.operation_name}")
            if code in _DENIED:
                return unknown(f"you may not call {error.operation_name}: it needs {row.action}")
            return unknown(f"AWS answered {code} to {error.operation_name}")
        if isinstance(error, BotoCoreError):
            return unknown(f"AWS could not be asked: {type(error).__name__}")
        if isinstance(error, AccessDeniedError):
            return unknown(f"the service refused you: {error.message}; attach the stage's policy Admin")
        if isinstance(error, PenstockError | UnexpectedAnswerError):
            return Proof(ruling=Ruling.DOES_NOT_HOLD, fact=str(error))
        return Proof(
            ruling=Ruling.DOES_NOT_HOLD, fact=f"a defect of this row, please tell us: {type(error).__name__}: {error}"
        )

    def _resume_due(self) -> None:
        for asked in [each for each in self._parked if each.due_ms <= monotonic_ms()]:
            self._step(asked)

    def _wait(self) -> None:
        """Wait for the next parked row. Rows whose wait would end behind the budget are left out."""
        end_ms = self._began_ms + round((self._budget.seconds_max - CLEANING_SECONDS) * 1_000)
        for asked in [each for each in self._parked if each.due_ms > end_ms]:
            self._drop(asked, "the time ended while it waited")
        if self._parked:
            due_ms = min(each.due_ms for each in self._parked)
            waiting = f"waiting for {', '.join(each.row.name for each in self._parked)} …"
            if waiting != self._told:
                self._tell(waiting)
            self._told = waiting
            self._stage.wait(max(0, due_ms - monotonic_ms()) / 1_000)

    def _drop(self, asked: _AskedRow, why: str) -> None:
        if asked.steps is not None:
            asked.steps.close()
        self._answer(asked, left_out(why))

    def _answer(self, asked: _AskedRow, proof: Proof) -> None:
        if self._stage.is_local and proof.ruling is Ruling.HOLDS and asked.row.emulator is not Emulator.PROVES:
            proof = replace(proof, ruling=Ruling.ONLY_ON_AWS, fact=f"the emulator agrees: {proof.fact}")
        if asked in self._parked:
            self._parked.remove(asked)
        seconds = (monotonic_ms() - asked.began_ms) / 1_000
        self.answered.append(
            ProvenRow(row=asked.row, proof=proof, calls=asked.calls, usd_max=asked.usd, seconds=seconds)
        )
        self._tell(f"{asked.row.name}: {proof.ruling.value}")

    def _end(self) -> None:
        for asked in list(self._parked):
            self._drop(asked, _INTERRUPTED)
        done = {each.row.name for each in self.answered}
        missing = [row for rows in self._phases for row in rows if row.name not in done]
        self.answered += [ProvenRow(row=row, proof=left_out(_INTERRUPTED)) for row in missing]
        order = [row.name for rows in self._phases for row in rows]
        self.answered.sort(key=lambda each: order.index(each.row.name))
        self.failures = self._stage.leftovers.undo_all()
