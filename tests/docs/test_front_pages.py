"""README, its comparison and CONTRIBUTING say what is so: the figures are measured, and named files exist."""

import re

import pytest

from bench.report.result import load_results
from localstack.places import CHECKOUT
from penstock_core.limits import SESSION_TIMEOUT_MS_DEFAULT
from tests.docs.pages import PAGES, ROOT

README = (CHECKOUT / "README.md").read_text()
COMPARE = (CHECKOUT / "docs" / "explanation" / "compare.md").read_text()
FIGURES = "".join(page.read_text() for page in (CHECKOUT / "docs").rglob("*.md") if "/performance" in str(page))
README_LINES_MAX = 130
BILL_AGAIN = "python -m bench.bill --write and python -m bench.pages write them"
MONEY_AGAIN = "compare.md takes it from bench.money: python -m bench.money tables --write and bench.pages write it"


def _row(page: str, name: str) -> list[str]:
    """The cells of the comparison's row, without its name."""
    [row] = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", page, re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


def test_readme_says_under_its_title_that_penstock_has_not_run_on_aws() -> None:
    assert README.splitlines()[2].startswith("> **Penstock has not run on AWS yet.**")


def test_readme_is_short_and_shows_code_on_its_first_screen() -> None:
    lines = README.splitlines()
    assert len(lines) <= README_LINES_MAX
    assert lines.index("```python orders.py") < 30


def test_figures_of_the_readme_are_those_of_the_comparison() -> None:
    pairs = {
        "Writing 1 GiB in requests of 64 KiB, with AWS keys of the account": "Writing 1 GiB",
        "Idle, a month": "Idle stage, a month",
        "An idle consumer of six partitions, a day": "Idle consumer of six partitions, a day",
    }
    for short, long in pairs.items():
        for figure, whole in zip(_row(README, short), _row(COMPARE, long), strict=True):
            for number in re.findall(r"[\d.]*\d", figure):
                said = re.findall(r"[\d.]*\d", whole)
                assert number in said or number == "0", (short, figure, "README takes the figures of compare.md")


def test_comparison_shows_the_latency_that_was_measured() -> None:
    [(p50, p99)] = re.findall(r"One write takes ([\d.]+ ms) at p50 and ([\d.]+ ms) at p99", COMPARE)
    assert f"{p50} p50, {p99} p99" in FIGURES


def test_comparison_shows_the_cost_that_was_modelled() -> None:
    cost = _row(COMPARE, "Writing 1 GiB")[0]
    table = "A produce request of Penstock by transport, $ per GiB"
    ours = {"profile": "express3", "transport": "lambda"}  # which clients in the account take by themselves
    for dollars, size in re.findall(r"\$([\d.]+) (?:in requests )?of ([\w ]+?KiB|1 MiB)", cost):
        assert float(dollars) == load_results()["money"].find(table, ours, size), (size, MONEY_AGAIN)
    assert cost.count("$") == 3


def test_comparison_shows_the_idle_costs_of_the_bill() -> None:
    bill = load_results()["bill"]
    stage, without_alarms = (
        bill.find("an unused stage, a month", {"stage": "prod"}, column) for column in ("sum_usd", "without_alarms_usd")
    )
    waiting, polling = (
        bill.find("an idle consumer", {"consumer of 6 partitions": how}, "usd_per_day")
        for how in ("waits for wake-ups", "polls")
    )
    default, long = (
        bill.find("an idle member of a group", {"session_timeout_s": session_s}, "usd_per_day")
        for session_s in (SESSION_TIMEOUT_MS_DEFAULT // 1_000, 180)
    )
    assert f"${default} a day with the default session, and ${long} with one of 3 minutes" in COMPARE
    idle = _row(COMPARE, "Idle stage, a month")[0] + _row(COMPARE, "Idle consumer of six partitions, a day")[0]
    shown = [float(each) for each in re.findall(r"\$([\d.]+)", idle)]
    assert shown == [stage, without_alarms, waiting, polling], f"compare.md takes them from bench.bill: {BILL_AGAIN}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "SECURITY.md", "CHANGELOG.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`((?:\.?[a-z_]+/)+[\w.-]*)`", (CHECKOUT / page).read_text())
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


def test_every_example_has_a_line_in_the_index_of_docs() -> None:
    index = (CHECKOUT / "docs" / "README.md").read_text()
    examples = {path.name for path in (CHECKOUT / "examples").glob("*.py")}
    assert {name for name in examples if f"[{name}](../examples/{name}): " in index} == examples


def test_no_label_of_the_changelog_is_there_twice() -> None:
    text = (CHECKOUT / "CHANGELOG.md").read_text()
    labels = re.findall(r"^- \*\*(.+?)\.?\*\*", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if len(line) > len("- **A label.**")]
    assert [each for each in {*labels} if labels.count(each) > 1] == []
    assert [each for each in {*lines} if lines.count(each) > 1] == []


def test_no_block_installs_penstock_by_a_name_that_somebody_else_could_register() -> None:
    """A wheel by its path, until PyPI has ours. An extra of an installed wheel may be named in a sentence."""
    bare = re.compile(r"^\s*(?:\$ )?(?:uv )?(?:pip|npm) install .*?(?<![\w./-])penstock(?:\[|['\"\s]|$)", re.MULTILINE)
    texts = [*PAGES, *(ROOT / "examples").rglob("*.py"), *(ROOT / "examples").rglob("*.md")]
    found = [str(path.relative_to(ROOT)) for path in texts if bare.search(path.read_text())]
    assert not found
    assert bare.search("pip install 'penstock[kafka]'")
    assert bare.search("    pip install --target x aws-lambda-powertools penstock\n")
    assert not bare.search('pip install "./penstock-0.1.0-py3-none-any.whl[kafka]"')
