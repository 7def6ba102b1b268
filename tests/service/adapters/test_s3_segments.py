"""S3SegmentStore against answers that only AWS gives."""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import new_segment_id
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.s3.segments import S3SegmentStore
from tests.support.refusals import refused

SEGMENT = new_segment_id(1_700_000_000_000, b"0123456789")


class Answers:
    """A client of S3 whose put_object gives these answers in turn, and keeps the conditions that it was sent."""

    def __init__(self, *codes: str | None) -> None:
        self._codes = list(codes)
        self.conditions: list[str | None] = []

    def put_object(self, **arguments: Any) -> dict[str, Any]:
        self.conditions.append(arguments.get("IfNoneMatch"))
        code = self._codes.pop(0)
        if code is not None:
            raise AnsweredError(code)
        return {}


def test_put_is_made_again_without_its_condition_when_an_earlier_try_is_under_way() -> None:
    client = Answers("ConditionalRequestConflict", None)
    S3SegmentStore(lambda: client, "bucket", "a").put(SEGMENT, b"x", 1)
    assert client.conditions == ["*", None]


def test_put_is_no_error_when_an_earlier_try_has_left_the_object() -> None:
    client = Answers("PreconditionFailed")
    S3SegmentStore(lambda: client, "bucket", "a").put(SEGMENT, b"x", 1)
    assert client.conditions == ["*"]


@pytest.mark.parametrize("codes", [("SlowDown",), ("ConditionalRequestConflict", "InternalError")])
def test_put_fails_when_s3_refuses_for_another_reason(codes: tuple[str, ...]) -> None:
    client = Answers(*codes)
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: S3SegmentStore(lambda: client, "bucket", "a").put(SEGMENT, b"x", 1))
    assert len(client.conditions) == len(codes)
