import pytest

from penstock_core.metrics.lag_memory import OTHER, Consumer, ConsumerKind, ConsumerLag, parse_consumer, together


@pytest.mark.parametrize("kind", ConsumerKind)
def test_consumer_is_parsed_from_its_text(kind: ConsumerKind) -> None:
    consumer = Consumer(kind, "billing.eu-1")
    assert parse_consumer(str(consumer)) == consumer


@pytest.mark.parametrize("text", ["", "billing", "team/billing", "group/"])
def test_text_that_names_no_consumer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"consumer|ConsumerKind"):
        parse_consumer(text)


def test_together_has_all_records_and_the_greatest_age() -> None:
    lags = [
        ConsumerLag(consumer=Consumer(ConsumerKind.GROUP, name), records=records, oldest_age_ms=age_ms)
        for name, records, age_ms in (("a", 3, 900), ("b", 0, 0), ("c", 5, 100))
    ]
    assert together(ConsumerKind.GROUP, lags) == ConsumerLag(
        consumer=Consumer(ConsumerKind.GROUP, OTHER), records=8, oldest_age_ms=900
    )
    assert not together(ConsumerKind.GROUP, []).is_behind
