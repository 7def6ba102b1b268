"""All single operations that are billed, for each storage profile."""

from bench.bill.deployment import BilledProfile
from bench.bill.requests import BilledOperation, bill_operations
from bench.bill.shared_records import bill_shared_records


def bill_all_operations(profile: BilledProfile) -> list[BilledOperation]:
    """Appends and fetches, and then the calls of a share group."""
    return [*bill_operations(profile), *bill_shared_records(profile)]
