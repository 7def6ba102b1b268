from penstock.metrics.exposition import Family, Sample, exposition


def test_text_has_help_type_and_a_line_for_each_value() -> None:
    family = Family(
        name="penstock_lag_records",
        kind="gauge",
        help="Records that wait.",
        samples=[Sample(value=7, labels={"kind": "group", "consumer": "billing"}), Sample(value=0.25)],
    )
    assert exposition([family]) == (
        "# HELP penstock_lag_records Records that wait.\n"
        "# TYPE penstock_lag_records gauge\n"
        'penstock_lag_records{kind="group",consumer="billing"} 7\n'
        "penstock_lag_records 0.25\n"
    )


def test_label_that_could_end_its_text_is_escaped() -> None:
    family = Family(name="a", kind="gauge", help="b", samples=[Sample(value=1, labels={"c": 'x"\n\\y'})])
    assert exposition([family]).splitlines()[-1] == 'a{c="x\\"\\n\\\\y"} 1'
