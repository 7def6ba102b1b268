"""How long to wait before trying again: full jitter, after
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ."""


def full_jitter_ms(attempt: int, base_ms: float, cap_ms: float, chance: float) -> float:
    """Between 0 and `base_ms * 2**attempt`, `cap_ms` at most; `attempt` counts from 0, `chance` is in [0, 1)."""
    return float(min(cap_ms, base_ms * 2 ** min(attempt, 30)) * chance)
