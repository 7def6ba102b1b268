"""The dashboard for Grafana asks for metrics and labels that `penstock metrics` exports, and for all of them."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from penstock.metrics.collector import Collector
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock

DASHBOARD: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs/reference/grafana.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
UNITS = {"s", "short", "cps", "bytes", "bool_yes_no"}  # those of Grafana's list that fit our metrics


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The labels of each metric."""
    with MemoryPenstock() as service, MemoryPenstock() as other:
        service.create_topic("orders")
        service.admin().commit_group_offsets("billing", {TopicPartition("orders", 0): 0})
        service.add_stage("https://b.example", other)
        service.admin().create_mirror("dr", "orders", "https://b.example")
        with service.producer() as producer:
            producer.send("orders", "a")
        service.deliver_pushes()
        text = Collector(service.transport).text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {re.split(r"[{ ]", line)[0]: set(re.findall(r'(\w+)="', line)) for line in lines}


def expressions() -> list[str]:
    """What the panels and the variables ask for."""
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return asked + [each["query"]["query"] for each in VARIABLES.values() if each["type"] == "query"]


def test_dashboard_names_the_metrics_that_exist_and_all_of_them(exported: dict[str, set[str]]) -> None:
    named = {name for text in expressions() for name in re.findall(r"penstock_\w+", text)}
    assert named == set(exported)


def test_expressions_and_legends_use_labels_that_their_metric_has(exported: dict[str, set[str]]) -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            [name] = re.findall(r"penstock_\w+", target["expr"])
            used = set(re.findall(r"(\w+)=~", target["expr"]))
            used |= set(re.findall(r"by \((\w+)\)", target["expr"]))
            used |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert used <= exported[name], panel["title"]


def test_counter_is_shown_as_a_rate() -> None:
    for text in expressions():
        assert ("_total" in text) == ("rate(" in text), text


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_panel_has_a_title_a_unit_and_a_description(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_variables_that_are_asked_for_exist() -> None:
    text = json.dumps(PANELS)
    assert {*re.findall(r"\$(\w+)", text)} - {"__rate_interval"} <= set(VARIABLES)
    assert "${datasource}" in text


def test_panels_have_their_own_ids_and_places() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)

    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}

    for one, other in combinations(PANELS, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
