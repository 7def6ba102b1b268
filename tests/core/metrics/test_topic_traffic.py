from penstock_core.metrics.topic_traffic import OTHER, TopicTraffic, by_series


def test_topics_without_a_series_are_summed() -> None:
    traffic = {
        "orders": TopicTraffic(records_received=2, bytes_received=300),
        "clicks": TopicTraffic(records_received=3),
        "views": TopicTraffic(records_received=4, requests_failed=1),
    }
    assert by_series(traffic, {"orders"}) == {
        "orders": traffic["orders"],
        OTHER: TopicTraffic(records_received=7, requests_failed=1),
    }


def test_counts_name_only_what_is_not_zero() -> None:
    assert TopicTraffic(bytes_sent=7, requests_throttled=1).counts() == {"bytes_sent": 7, "requests_throttled": 1}
