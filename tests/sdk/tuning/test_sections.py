"""Every setting that the code reads is in the table, and the page is the table's."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from penstock.consumer.settings import ConsumerSettings
from penstock.local_files import JOBS_ENV_NAMES, LOCAL_ENV_NAMES
from penstock.producer.settings import ProducerSettings
from penstock.share.settings import ShareSettings
from penstock.tuning.environment import CONNECTION, NOT_SETTINGS, STORAGE
from penstock.tuning.page import default_text, settings_page
from penstock.tuning.sections import BY_NAME, SECTIONS, first_sentences
from penstock.tuning.setting import default_of, settings_with
from penstock_core.groups.group import GroupConfig
from penstock_core.limits import KAFKA_CONNECTIONS_DEFAULT_MAX
from penstock_core.log.topic import TopicConfig
from penstock_core.push.subscription import SubscriptionConfig
from penstock_core.share.share_group import ShareGroupConfig
from penstock_kafka.command import kafka

ROOT = Path(__file__).parents[3]
READERS = ("sdk", "functions", "glue_jobs", "infra")
SETTINGS = [(section, each) for section in SECTIONS for each in section.settings]


@pytest.mark.parametrize(
    ("section", "options"),
    [
        ("producer", ProducerSettings),
        ("consumer", ConsumerSettings),
        ("share-consumer", ShareSettings),
        ("topic", TopicConfig),
        ("group", GroupConfig),
        ("share-group", ShareGroupConfig),
        ("subscription", SubscriptionConfig),
    ],
)
def test_section_has_each_field_with_its_default(section: str, options: type[Any]) -> None:
    listed = {each.name: each.default for each in BY_NAME[section].settings}
    assert listed == {field.name: default_of(field) for field in fields(options)}


def test_gateway_has_each_option_of_its_command_with_its_default() -> None:
    listed = {each.name: each.default for each in BY_NAME["gateway"].settings}
    options = [each for each in kafka.params if isinstance(each, click.Option)]
    assert [*listed] == [max(each.opts, key=len) for each in options]
    assert (listed["--listen"], listed["--partitions"], listed["--create-topics"]) == ("127.0.0.1:9092", 1, False)
    assert (listed["--users"], listed["--connections-max"]) == (None, KAFKA_CONNECTIONS_DEFAULT_MAX)


def test_each_variable_of_penstock_that_the_code_names_is_listed() -> None:
    named: set[str] = set()
    for folder in READERS:
        for path in (ROOT / folder).rglob("*.py"):
            named |= set(re.findall(r"\bPENSTOCK_[A-Z_]+", path.read_text()))
    listed = {each.name for section in (CONNECTION, STORAGE) for each in section.settings}
    assert named - {*NOT_SETTINGS} == {name for name in listed if name.startswith("PENSTOCK_")}


def test_each_variable_of_the_local_files_is_listed() -> None:
    listed = {each.name for section in (CONNECTION, STORAGE) for each in section.settings}
    assert {*LOCAL_ENV_NAMES, *JOBS_ENV_NAMES} <= listed


def test_each_effect_is_one_sentence() -> None:
    for section, setting in SETTINGS:
        is_one = re.fullmatch(r"[A-Z`\"].*\.", setting.effect) and not re.search(r"\. [A-Z]", setting.effect)
        assert is_one, f"{section.name}.{setting.name}: {setting.effect}"


def test_names_are_unique_in_a_section() -> None:
    for section in SECTIONS:
        names = [each.name for each in section.settings]
        assert len(names) == len(set(names))


def test_page_is_what_the_table_makes() -> None:
    """`make settings` makes it."""
    assert (ROOT / "docs" / "reference" / "settings.md").read_text() == settings_page()


def test_a_field_without_an_effect_is_refused() -> None:
    with pytest.raises(KeyError):
        settings_with(GroupConfig, {"assignor": "The way."})


def test_first_sentences_end_where_the_next_one_begins() -> None:
    found = first_sentences(ConsumerSettings)
    assert found["group_id"] == "The group whose offsets this consumer commits and starts from."
    assert found["on_assigned"] == "Called with a list of partitions before their first record is returned."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        ({}, "none"),
        (True, "true"),
        (1_000, "1,000"),
        (["a", "b"], "a, b"),
        ({"a": 1, "b": "x"}, "a 1, b x"),
        ("x", "x"),
        (-1, "-1"),
    ],
)
def test_default_text(value: object, text: str) -> None:
    assert default_text(value) == text
