"""The bill of a run by Cost Explorer, a day later.

Cost Explorer has whole days, and each resource of a stage has the tag `penstock:stage`. Where the payer has activated
that tag, the day of the tag is the day of the stage. It is the bill of the run if the run had deployed the stage, and
the least upper bound otherwise. Without the tag only the account's whole day is known, which proves nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.prove.proof import Proof, Ruling, ruled, unknown
from penstock_core.errors import ErrorCode, PenstockError

TAG = "penstock:stage"
SETTLED_MS = 86_400_000  # Cost Explorer is a day late
_METRIC = "UnblendedCost"
_LINES_MAX = 20
_PAGES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledLine:
    """One usage type, with its dollars."""

    usage_type: str
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBill:
    """The dearest lines of the days of a run. `is_of_stage` is false for those of the whole account."""

    proof: Proof
    days: str
    is_of_stage: bool
    is_estimated: bool
    usd: float
    lines: tuple[BilledLine, ...]

    def to_json(self) -> dict[str, Any]:
        """The bill as JSON."""
        found = asdict(self)
        return found | {"proof": {"verdict": self.proof.ruling.value, "fact": self.proof.fact}}


def read_bill(cost_explorer: Any, report: Mapping[str, Any], now_ms: int) -> RunBill:
    """The bill of the run that `report` (prove.json) tells of: one page of GetCostAndUsage, or two, $0.01 each.

    Raises INVALID_CONFIG for a file that is no report, for a run without a bill, and if it is too early to ask.
    """
    try:
        began_ms, ended_ms, stage = int(report["began_at_ms"]), int(report["ended_at_ms"]), str(report["stage"])
        usd_max, is_own, is_local = float(report["usd_max"]), bool(report["is_own"]), bool(report["is_local"])
    except (LookupError, TypeError, ValueError) as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"this is no prove.json: it lacks {error}") from error
    if is_local:
        raise PenstockError(ErrorCode.INVALID_CONFIG, "this run was on your machine: nothing was billed")
    first, last = (datetime.fromtimestamp(at_ms / 1_000, UTC).date() for at_ms in (began_ms, ended_ms))
    end = last + timedelta(days=1)
    ready_ms = int(datetime.combine(end, datetime.min.time(), UTC).timestamp() * 1_000) + SETTLED_MS
    if now_ms < ready_ms:
        when = datetime.fromtimestamp(ready_ms / 1_000, UTC).isoformat(timespec="minutes")
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"Cost Explorer is a day late: ask again after {when}")
    days = {"Start": first.isoformat(), "End": end.isoformat()}
    lines, is_estimated = _lines(cost_explorer, days, stage)
    is_of_stage = bool(lines)
    if not lines:
        lines, is_estimated = _lines(cost_explorer, days, None)
    usd = sum(lines.values())
    dearest = sorted(lines.items(), key=lambda each: -each[1])[:_LINES_MAX]
    return RunBill(
        proof=_proof(usd, usd_max, is_of_stage=is_of_stage, is_own=is_own),
        days=f"{first} to {last}",
        is_of_stage=is_of_stage,
        is_estimated=is_estimated,
        usd=usd,
        lines=tuple(BilledLine(usage_type=name, usd=each) for name, each in dearest),
    )


def _proof(usd: float, usd_max: float, *, is_of_stage: bool, is_own: bool) -> Proof:
    if not is_of_stage:
        return unknown(
            f"Cost Explorer knows no costs of the tag {TAG}, so ${usd:.4f} is the account's whole day. The payer "
            f"activates it: aws ce update-cost-allocation-tags-status --cost-allocation-tags-status "
            f"TagKey={TAG},Status=Active. It holds for later days only"
        )
    fact = f"the stage's day cost ${usd:.4f}, and the run said ${usd_max:.4f} at most"
    if is_own or usd <= usd_max:
        return ruled(usd <= usd_max, fact)
    return Proof(ruling=Ruling.UNKNOWN, fact=f"{fact}; the stage had other callers that day")


def _lines(cost_explorer: Any, days: Mapping[str, str], stage: str | None) -> tuple[dict[str, float], bool]:
    """The dollars by usage type that are not 0, and whether AWS may still change them."""
    of_stage = {} if stage is None else {"Filter": {"Tags": {"Key": TAG, "Values": [stage]}}}
    found: dict[str, float] = {}
    is_estimated = False
    token: dict[str, str] = {}
    for _ in range(_PAGES_MAX):
        answer = cost_explorer.get_cost_and_usage(
            TimePeriod=days,
            Granularity="DAILY",
            Metrics=[_METRIC],
            GroupBy=[{"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
            **of_stage,
            **token,
        )
        for day in answer["ResultsByTime"]:
            is_estimated |= bool(day["Estimated"])
            for group in day["Groups"]:
                name = group["Keys"][0]
                found[name] = found.get(name, 0.0) + float(group["Metrics"][_METRIC]["Amount"])
        if "NextPageToken" not in answer:
            break
        token = {"NextPageToken": answer["NextPageToken"]}
    return {name: usd for name, usd in found.items() if usd}, is_estimated
