"""The wait before a retry: exponential, with full jitter.

Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""


def full_jitter_ms(attempt: int, base_ms: float, cap_ms: float, fraction: float) -> float:
    """The wait in milliseconds: a `fraction` in [0, 1) of `base_ms * 2**attempt`, or of `cap_ms` if that is less.

    `attempt` counts from 0. The caller draws `fraction`.
    """
    return float(min(cap_ms, base_ms * 2 ** min(attempt, 30)) * fraction)
