"""Times of the simulation."""

EPOCH_MS = 1_700_000_000_000  # the wall time at which each run begins
CLOCK_SKEW_MS = 500.0  # the largest error of an instance's clock, either way
FUNCTION_TIMEOUT_MS = 30_000.0
