"""The wait before a retry: exponential, with full jitter. And the wait between two looks, which grows with all waiting.

Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""


def full_jitter_ms(attempt: int, base_ms: float, cap_ms: float, fraction: float) -> float:
    """The wait in milliseconds: a `fraction` in [0, 1) of `base_ms * 2**attempt`, or of `cap_ms` if that is less.

    `attempt` counts from 0. The caller draws `fraction`.
    """
    return float(min(cap_ms, base_ms * 2 ** min(attempt, 30)) * fraction)


def look_again_ms(waited_ms: float, least_ms: int, most_ms: int, part: int) -> int:
    """The wait until the next look, after a wait of `waited_ms` in all: a `part` of it, within both bounds."""
    return int(max(least_ms, min(most_ms, waited_ms // part)))
