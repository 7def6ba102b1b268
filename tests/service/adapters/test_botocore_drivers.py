"""The clients of botocore: how they read times."""

from datetime import UTC, datetime

import pytest
from botocore.utils import parse_timestamp

from penstock_service.adapters.botocore_drivers import parse_time


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T10:20:30.123Z",
        "2026-11-21T10:20:30Z",
        "2026-11-21T10:20:30+02:00",
        "Sat, 21 Nov 2026 10:20:30 GMT",
        1_790_000_000,
        1_790_000_000.5,
        "1790000000",
    ],
)
def test_times_are_parsed_as_botocore_does(value: object) -> None:
    """botocore reads the end of an S3 Express session from such a time."""
    assert parse_time(value) == parse_timestamp(value)
    assert parse_time(value).tzinfo is not None


def test_bad_time_is_refused() -> None:
    with pytest.raises(ValueError, match="noon"):
        parse_time("2026-11-21Tnoon")
    assert parse_time("2026-11-21T00:00:00Z") == datetime(2026, 11, 21, tzinfo=UTC)
