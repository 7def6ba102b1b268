from penstock.cost.hourly_sum import hourly_sum


def test_hourly_sum_asks_for_the_sums_of_hours_of_one_metric() -> None:
    asked = hourly_sum(3, "AWS/Lambda", "Invocations", {"FunctionName": "produce"})
    assert asked["Id"] == "m3"
    assert asked["MetricStat"]["Metric"] == {
        "Namespace": "AWS/Lambda",
        "MetricName": "Invocations",
        "Dimensions": [{"Name": "FunctionName", "Value": "produce"}],
    }
    assert (asked["MetricStat"]["Period"], asked["MetricStat"]["Stat"]) == (3_600, "Sum")
